package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processes lists the process ids of /proc.
func processes() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children lists the living children of a process.
func children(pid int) []int {
	var found []int
	for _, p := range processes() {
		if parent, state := parentOf(p); parent == pid && state != "Z" {
			found = append(found, p)
		}
	}
	return found
}

func parentOf(pid int) (parent int, state string) {
	return readStat(fmt.Sprintf("/proc/%d/stat", pid))
}

// readStat reads parent and state of a process or thread (proc_pid_stat(5)).
func readStat(path string) (parent int, state string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, ""
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return parent, fields[0]
}

func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	_, state := parentOf(pid)
	return state != "Z" && state != ""
}

// awaitGone waits until none of the processes is alive.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	eventually(t, patience, func() string {
		if i := slices.IndexFunc(pids, alive); i >= 0 {
			return fmt.Sprintf("process %d goes on", pids[i])
		}
		return ""
	})
}

// openFDs counts the descriptors of a process.
func openFDs(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// fdTargets lists what the descriptors of a process refer to.
func fdTargets(pid int) []string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	var list []string
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		list = append(list, e.Name()+" "+target)
	}
	return list
}

// cpuTime is the time a process has run, over all of its threads that live.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if len(files) == 0 {
		skip(t, "the kernel keeps no schedstat")
	}
	var sum time.Duration
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// statusKB reads a field of /proc/PID/status in KiB.
func statusKB(t *testing.T, pid int, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, field)
	return 0
}

// eventually waits until check returns "", or fails with what it returned.
func eventually(t *testing.T, limit time.Duration, check func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", limit, wrong)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// listens tells whether a socket listens on a port of 127.0.0.1, without
// connecting to it.
func listens(port int) bool { return len(listeners(port)) > 0 }

// listeners returns the inodes of the sockets that listen on a port of
// 127.0.0.1, sorted. ss(8) asks for listening sockets only: /proc/net/tcp has to
// be read with all that are left of connections, which are many in a test.
func listeners(port int) []string {
	out, _ := exec.Command("ss", "-Hltne", "src", fmt.Sprintf("127.0.0.1:%d", port)).Output()
	var inodes []string
	for line := range strings.Lines(string(out)) {
		for _, f := range strings.Fields(line) {
			if inode, ok := strings.CutPrefix(f, "ino:"); ok {
				inodes = append(inodes, inode)
			}
		}
	}
	slices.Sort(inodes)
	return inodes
}

// freeze stops a process and waits until every thread of it has stopped.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, task := range tasks {
			if _, state := readStat(task); state != "T" {
				return fmt.Sprintf("%s: state %q", task, state)
			}
		}
		return ""
	})
}
