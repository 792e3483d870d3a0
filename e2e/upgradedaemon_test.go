package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startUpgradable runs a daemon that may be replaced by others: they are no
// children of the test, and write into a file.
func startUpgradable(t *testing.T, config string, binary ...string) *daemon {
	t.Helper()
	if len(binary) == 0 {
		binary = []string{daemonBin}
	}
	d := newDaemon(t, "")
	d.startUpgradable(config, binary...)
	return d
}

// startUpgradable runs a command line that is, or becomes, the daemon.
func (d *daemon) startUpgradable(config string, command ...string) {
	t := d.t
	t.Helper()
	d.write("pidfile " + d.pidFile() + "\n" + config)
	log, err := os.OpenFile(d.logFile(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	args := append(command[:len(command):len(command)], "-c", d.config)
	d.cmd = exec.Command(args[0], args[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.ExtraFiles = d.inherited
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, exited := d.cmd, make(chan struct{})
	d.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(d.finishUpgraded)
	d.await()
}

func (d *daemon) pidFile() string { return filepath.Join(d.dir, "pid") }

func (d *daemon) logFile() string { return filepath.Join(d.dir, "log") }

func (d *daemon) printed() string {
	text, _ := os.ReadFile(d.logFile())
	return string(text)
}

// supervisor is the process id in the pidfile.
func (d *daemon) supervisor() int {
	d.t.Helper()
	text, err := os.ReadFile(d.pidFile())
	if err != nil {
		d.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		d.t.Fatal(err)
	}
	return pid
}

// family lists the supervisors and workers that use the configuration.
func (d *daemon) family() []int {
	var pids []int
	for _, pid := range processes() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(cmdline), d.config) && alive(pid) {
			pids = append(pids, pid)
			pids = append(pids, children(pid)...)
		}
	}
	return pids
}

// finishUpgraded ends the daemon, whichever process it is now, and checks that
// nothing is left.
func (d *daemon) finishUpgraded() {
	t := d.t
	defer func() {
		if t.Failed() {
			t.Logf("the daemon printed:\n%s", d.printed())
		}
	}()
	if !t.Failed() && readPID(d.pidFile()) > 0 && !d.isDraining() {
		eventually(t, patience, func() string {
			if n := d.stats().Total["open"]; n != 0 {
				return fmt.Sprintf("%d sessions are open", n)
			}
			return ""
		})
	}
	if pid := readPID(d.pidFile()); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	deadline := time.Now().Add(patience)
	for len(d.family()) > 0 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	for _, pid := range d.family() {
		t.Errorf("process %d is left behind", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, word := range []string{"panic", "fatal error", "goroutine "} {
		if !d.dumped && strings.Contains(d.printed(), word) {
			t.Errorf("the daemon printed %q", word)
		}
	}
	for _, path := range []string{d.socket, d.pidFile()} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left behind", path)
		}
	}
}

func readPID(path string) int {
	text, _ := os.ReadFile(path)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// upgrade replaces the daemon and waits until the old one is gone.
func (d *daemon) upgrade(args ...string) {
	d.t.Helper()
	old := d.supervisor()
	if out, stderr, code := d.ctl(append([]string{"upgrade"}, args...)...); code != 0 {
		d.t.Fatalf("upgrade: exit code %d: %s%s", code, out, stderr)
	}
	if now := d.supervisor(); now == old || !alive(now) {
		d.t.Fatalf("after the upgrade the daemon is %d, before it was %d", now, old)
	}
}

// awaitOldGone waits until no old generation is left.
func (d *daemon) awaitOldGone() {
	d.t.Helper()
	eventually(d.t, 2*patience, func() string {
		if n := len(d.status().OldGenerations); n > 0 {
			return fmt.Sprintf("%d old generations are left", n)
		}
		if n := len(d.family()); n != 1+len(d.status().Workers) {
			return fmt.Sprintf("%d processes are left", n)
		}
		return ""
	})
}

// awaitOpen waits until so many sessions are open.
func (d *daemon) awaitOpen(n uint64) {
	d.t.Helper()
	eventually(d.t, patience, func() string {
		if now := d.stats().Total["open"]; now != n {
			return fmt.Sprintf("%d sessions are open instead of %d", now, n)
		}
		return ""
	})
}

// isDraining says whether the daemon has been told to stop.
func (d *daemon) isDraining() bool {
	out, _, code := d.ctl("-o", "json", "status")
	return code != 0 || strings.Contains(out, `"state": "draining"`)
}
