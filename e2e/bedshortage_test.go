package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bedTasks upgrades a service whose TasksMax= leaves too little for a second
// daemon: that is said before anything is started, with the number that does.
func bedTasks(t *testing.T) {
	const port = 4029
	tunnelService(t, port, 60, nil)
	before, l := stream(t, port), newLoad(port, 2)
	pid := mainPID(t)
	current := 0
	if _, err := fmt.Sscan(property(t, "TasksCurrent"), &current); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) { systemctl(t, "set-property", "--runtime", bedService, fmt.Sprintf("TasksMax=%d", n)) }
	defer limit(8192)
	limit(current + 30)
	out, err := exec.Command(ctlBin, "upgrade", "--trial", "0").CombinedOutput()
	text := string(out)
	if err == nil || !strings.Contains(text, fmt.Sprintf("pids.max of the control group is %d", current+30)) {
		t.Fatalf("upgrade: %v: %s", err, text)
	}
	enough := 0
	if _, err := fmt.Sscan(text[strings.LastIndexByte(text, '=')+1:], &enough); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if now := mainPID(t); now != pid {
		t.Errorf("the main process is %d instead of %d", now, pid)
	}
	// Threads come and go meanwhile.
	limit(enough + 4)
	if out, err := exec.Command(ctlBin, "upgrade", "--trial", "0").CombinedOutput(); err != nil {
		t.Errorf("upgrade: %v: %s", err, out)
	}
	awaitSuccessor(t, pid)
	awaitProcesses(t, 3)
	l.mustBeServed(t)
	before.mustBeWhole(t)
}

// bedRuntimeDirectoryGone upgrades, reloads, restarts and kills a service whose
// runtime directory has been removed, which its sandbox does not let it make: it
// goes on, and is reached at the same path as soon as that can be.
func bedRuntimeDirectoryGone(t *testing.T) {
	const port, dir = 4030, "/run/3proxy"
	tunnelService(t, port, 60, nil)
	writeConfig(t, readFile(t, bedConfig)+"upgrade_trial 0\n")
	systemctl(t, "reload", bedService)
	before, l := stream(t, port), newLoad(port, 2)
	remove := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	answers := func() {
		t.Helper()
		eventually(t, patience, func() string {
			if out, err := exec.Command(ctlBin, "status").CombinedOutput(); err != nil {
				return string(out)
			}
			return ""
		})
	}
	remove()
	pid := mainPID(t)
	systemctl(t, "kill", "--signal", "USR2", "--kill-whom", "main", bedService)
	awaitSuccessor(t, pid)
	systemctl(t, "kill", "--signal", "HUP", "--kill-whom", "main", bedService)
	for _, command := range [][]string{{"mkdir", "-m", "755", dir}, {"chown", "proxyd:proxyd", dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	answers()
	for _, end := range []func(pid int){
		func(int) { systemctl(t, "restart", bedService) },
		func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
	} {
		remove()
		pid := mainPID(t)
		end(pid)
		awaitSuccessor(t, pid)
		answers()
		time.Sleep(200 * time.Millisecond)
		if _, err := os.Stat(dir + "/control.sock"); err != nil {
			t.Error(err)
		}
	}
	awaitProcesses(t, 3)
	l.mustBeServed(t)
	before.mustBeWhole(t)
}
