package main

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

// phases of a run at which it is ended: files that the lab has by then.
var phases = []struct{ name, until string }{
	{"making the network", ""},
	{"starting the proxy", "nginx-*"},
	{"under load", "nginx-*/nginx.pid"},
	{"counting system calls", "strace"},
}

// startRun starts a run as a process of its own, with a link by the wire.
func startRun(t *testing.T, out string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "run", "--proxy", "nginx", "--scenario", "relay-ka-1k-4,relay-ka-1k-5,relay-ka-1k-6", "--reps", "1", "--attempts", "1",
		"--secs", "0.3", "--warm", "200ms", "--quiet", "0s", "--no-plots", "--link", "100mbit,1ms", "--link-by", "wire", "--out", out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// made lists the network namespaces and directories that the process pid made,
// and the processes that run in the namespaces.
func made(t *testing.T, pid int) (names, processes []string) {
	t.Helper()
	for _, dir := range []string{"/run/netns", os.TempDir()} {
		found, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("3pb-%d-*", pid)))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	tasks, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		ns, err := os.Stat(filepath.Join(task, "ns/net"))
		if err != nil || filepath.Base(task) == strconv.Itoa(pid) {
			continue
		}
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && os.SameFile(st, ns) {
				line, _ := os.ReadFile(filepath.Join(task, "cmdline"))
				processes = append(processes, filepath.Base(task)+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
	}
	return names, processes
}

// waitPhase waits until the run is in a phase.
func waitPhase(t *testing.T, pid int, until string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("3pb-%d-*", pid), until))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Skipf("the run has no %q: another one may have the lab", until)
		}
	}
}

func TestEndedRunsLeaveNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, tool := range []string{"nginx", "strace"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	out := filepath.Join(t.TempDir(), "runs.csv")
	for _, phase := range phases {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			t.Run(phase.name+", "+sig.String(), func(t *testing.T) { endRun(t, out, phase.until, sig) })
		}
	}
}

func endRun(t *testing.T, out, until string, sig syscall.Signal) {
	_ = os.Remove(out)
	cmd := startRun(t, out)
	pid := cmd.Process.Pid
	waitPhase(t, pid, until)
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if sig == syscall.SIGINT && cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("interrupted: %v, want status 130", err)
	}
	// After a run that was killed its cleaner has work to do.
	var names, processes []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if names, processes = made(t, pid); len(names) == 0 {
			return
		}
	}
	t.Errorf("left behind: %q, running %q", names, processes)
}
