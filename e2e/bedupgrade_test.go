package e2e

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// bedUpgradeStop upgrades the service several times under load and stops it: the
// manager follows the main process and lets it drain.
func bedUpgradeStop(t *testing.T) {
	const port = 4020
	tunnelService(t, port, 60, nil)
	before := stored(t)
	long, l := stream(t, port), newLoad(port, 4)
	upgrade := func() {
		t.Helper()
		pid := mainPID(t)
		if out, err := exec.Command(ctlBin, "upgrade", "--trial", "0.5").CombinedOutput(); err != nil {
			t.Fatalf("upgrade: %v: %s", err, out)
		}
		awaitSuccessor(t, pid)
		if parent, _ := parentOf(mainPID(t)); parent != 1 {
			t.Errorf("the parent of the main process is %d", parent)
		}
	}
	for range 3 {
		upgrade()
	}
	if out, err := exec.Command(ctlBin, "upgrade", "--binary", "/bin/false").CombinedOutput(); err == nil {
		t.Errorf("/bin/false takes over: %s", out)
	}
	awaitState(t, "active")
	if n := property(t, "NRestarts"); n != "0" {
		t.Errorf("%s restarts", n)
	}
	awaitStored(t, before)
	awaitProcesses(t, 3)

	l.mustBeServed(t)
	long.mustBeWhole(t)

	c := dial(t, port)
	mustPing(t, c)
	upgrade()
	systemctl(t, "stop", "--no-block", bedService)
	awaitState(t, "deactivating")
	time.Sleep(time.Second)
	mustPing(t, c)
	c.Close()
	awaitState(t, "inactive")
	if result := property(t, "Result"); result != "success" {
		t.Errorf("result %s", result)
	}
	awaitStored(t, 0)
}

func awaitProcesses(t *testing.T, want int) {
	t.Helper()
	eventually(t, patience, func() string {
		if pids := serviceProcesses(t); len(pids) != want {
			return fmt.Sprintf("processes %v instead of %d", pids, want)
		}
		return ""
	})
}

// bedUpgradeOldKilled kills the main process in the trial of an upgrade: the new
// daemon or the one that the manager starts is the service then, with the
// sessions of both.
func bedUpgradeOldKilled(t *testing.T) {
	const port = 4021
	tunnelService(t, port, 60, nil)
	for _, delay := range []time.Duration{0, 30 * time.Millisecond, 300 * time.Millisecond} {
		long, l := stream(t, port), newLoad(port, 4)
		pid := mainPID(t)
		failed := upgradeInTrial(t)
		time.Sleep(delay)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-failed
		awaitSuccessor(t, pid)
		awaitProcesses(t, 3)
		if s := serviceStatus(t); s.PID != mainPID(t) || len(s.OldGenerations) > 0 {
			t.Errorf("process %d answers, %d is the main process; old generations: %+v", s.PID, mainPID(t), s.OldGenerations)
		}
		l.mustBeServed(t)
		long.mustBeWhole(t)
	}
}
