package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// checkPIDFile refuses a file that names another running daemon, and warns of
// one that names a process that is something else.
func (d *daemon) checkPIDFile() error {
	path := d.startConfig.PIDFile
	pid := readPID(path)
	if pid <= 0 || pid == os.Getpid() || !processExists(pid) {
		return nil
	}
	if d.succession != nil && pid == d.succession.manifest.PID {
		return nil
	}
	if sameProgram(pid) {
		return fmt.Errorf("pidfile %s: another daemon runs, process %d: stop it, or name another file with `pidfile PATH`", path, pid)
	}
	d.logf("warning: pidfile %s names process %d, which is not a 3proxyd; the file is overwritten", path, pid)
	return nil
}

// readPID returns the process id in a file, or 0.
func readPID(path string) int {
	if path == "" {
		return 0
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer file.Close()
	data, _ := io.ReadAll(io.LimitReader(file, 32))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// processExists says whether a process runs. One that has ended and that its
// parent has yet to notice does not.
func processExists(pid int) bool {
	err := unix.Kill(pid, 0)
	if err != nil && !errors.Is(err, unix.EPERM) {
		return false
	}
	state, _ := processStat(pid)
	return state != "Z" && state != "X"
}

// sameProgram says whether the process runs a program of the own one's name. A
// program replaced on disk has " (deleted)" after its name (proc_pid_exe(5)).
func sameProgram(pid int) bool {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		// Of a daemon of another user only the name can be read.
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return strings.TrimSpace(string(name)) == programName(own)
	}
	return programName(other) == programName(own)
}

func programName(exe string) string {
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
}

// writePIDFile puts the process id into a file; "" is none.
func writePIDFile(path string) error {
	if path == "" {
		return nil
	}
	if err := renameio.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	return nil
}

// removePIDFile removes the file unless another daemon has written its own.
func removePIDFile(path string) {
	if path == "" {
		return
	}
	data, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(data)) == strconv.Itoa(os.Getpid()) {
		_ = os.Remove(path)
	}
}
