package e2e

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// upgradeInTrial starts an upgrade with a long trial, and returns when the new
// daemon is on trial, with the channel that is closed at its end.
func upgradeInTrial(t *testing.T) (over chan struct{}) {
	t.Helper()
	over = make(chan struct{})
	go func() {
		defer close(over)
		_ = exec.Command(ctlBin, "upgrade", "--trial", "60").Run()
	}()
	eventually(t, patience, func() string {
		if u := serviceStatus(t).Upgrade; u == nil || u.State != "trial" {
			return "no trial"
		}
		return ""
	})
	return over
}

// bedTrialRestart restarts the service in the trial of an upgrade: the next
// supervisor has the sessions of all workers.
func bedTrialRestart(t *testing.T) {
	succeedInTrial(t, 4022, func(int) { systemctl(t, "restart", bedService) })
}

// succeedInTrial has another supervisor follow in the trial of an upgrade, by what
// end does to the daemons, of which the old one has the given process: it serves on,
// with the streams from before the upgrade and from the trial.
func succeedInTrial(t *testing.T, port int, end func(old int)) {
	t.Helper()
	tunnelService(t, port, 60, nil)
	before, l := stream(t, port), newLoad(port, 4)
	pid := mainPID(t)
	over := upgradeInTrial(t)
	during := stream(t, port)
	time.Sleep(200 * time.Millisecond)
	end(pid)
	<-over
	awaitSuccessor(t, pid)
	awaitProcesses(t, 3)
	l.mustBeServed(t)
	before.mustBeWhole(t)
	during.mustBeWhole(t)
}

// bedTrialStop stops the service in the trial of an upgrade: the sessions of both
// daemons have the time of a drain.
func bedTrialStop(t *testing.T) {
	const port = 4023
	tunnelService(t, port, 60, nil)
	before := stream(t, port)
	over := upgradeInTrial(t)
	during := stream(t, port)
	time.Sleep(200 * time.Millisecond)
	systemctl(t, "stop", "--no-block", bedService)
	<-over
	awaitState(t, "deactivating")
	// Longer than a new daemon that is given up may take.
	time.Sleep(8 * time.Second)
	before.mustBeWhole(t)
	during.mustBeWhole(t)
	awaitState(t, "inactive")
	if result := property(t, "Result"); result != "success" {
		t.Errorf("result %s", result)
	}
	awaitNoProcesses(t)
	awaitStored(t, 0)
}

// bedTrialHangs has the new daemon hang in the trial of an upgrade, and kills the
// old one: the manager starts another, which ends the one that hangs and has the
// sessions of both.
func bedTrialHangs(t *testing.T) {
	succeedInTrial(t, 4024, func(old int) {
		freeze(t, serviceStatus(t).Upgrade.PID)
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
}

// bedKillAll kills all processes of the service: what comes meanwhile waits in the
// stored sockets, and only the sessions there were end.
func bedKillAll(t *testing.T) {
	const port = 4025
	tunnelService(t, port, 60, nil)
	before := stored(t)
	for range 3 {
		l := newLoad(port, 4)
		time.Sleep(200 * time.Millisecond)
		pid := mainPID(t)
		systemctl(t, "kill", "--signal", "KILL", bedService)
		awaitSuccessor(t, pid)
		served := l.served.Load()
		eventually(t, patience, func() string {
			if l.served.Load() < served+100 {
				return "the load is not served"
			}
			return ""
		})
		err := l.stop()
		if l.refused.Load() > 0 || l.failed.Load() > 4 {
			t.Errorf("%d connections of 4 clients failed (%v), %d were refused", l.failed.Load(), err, l.refused.Load())
		}
	}
	awaitStored(t, before)
	if n := len(listeners(port)); n != 2 {
		t.Errorf("%d listening sockets", n)
	}
}

// bedDatagrams restarts, upgrades and kills the supervisor of a service with UDP
// sockets, its own and one of a socket unit: no datagram is lost.
func bedDatagrams(t *testing.T) {
	const own, unit = 4026, 4027
	origin := newUDPOrigin(t, "127.0.0.1:0")
	stoppedService(t, bedHead+fmt.Sprintf("timeouts 1 1 30 3\nudppm %d 127.0.0.1 %d\nudppm %d 127.0.0.1 %d\n", own, origin.port(), unit, origin.port()),
		map[string]string{bedSocket: fmt.Sprintf("[Socket]\nListenDatagram=127.0.0.1:%d\n", unit)})
	systemctl(t, "start", bedSocket, bedService)
	before := stored(t)
	loads := []*udpLoad{startUDPLoad(t, own, 10, 10*time.Millisecond), startUDPLoad(t, unit, 10, 10*time.Millisecond)}
	for _, step := range []func(pid int){
		func(int) { systemctl(t, "restart", bedService) },
		func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
		func(int) {
			if out, err := exec.Command(ctlBin, "upgrade", "--trial", "0").CombinedOutput(); err != nil {
				t.Errorf("upgrade: %v: %s", err, out)
			}
		},
		func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) },
	} {
		time.Sleep(200 * time.Millisecond)
		pid := mainPID(t)
		step(pid)
		awaitSuccessor(t, pid)
		awaitStored(t, before)
	}
	for i, l := range loads {
		l.end()
		if n := l.lost.Load(); n > 0 {
			t.Errorf("socket %d: %d datagrams are lost", i, n)
		}
	}
}

// bedReusePortLife restarts, upgrades and kills the supervisor of a service with
// a group of sockets of a socket unit, under load.
func bedReusePortLife(t *testing.T) {
	const port = 4028
	stoppedService(t, bedHead+fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", port, echoOrigin(t)), map[string]string{
		bedSocket: fmt.Sprintf("[Socket]\nReusePort=yes\nListenStream=127.0.0.1:%d\nListenStream=127.0.0.1:%d\n", port, port),
	})
	systemctl(t, "start", bedSocket, bedService)
	long, l := stream(t, port), newLoad(port, 4)
	for i, workers := range []int{2, 3, 1, 2} {
		time.Sleep(200 * time.Millisecond)
		writeConfig(t, fmt.Sprintf("%s\nworkers %d\n", readFile(t, bedConfig), workers))
		pid := mainPID(t)
		switch i % 4 {
		case 0:
			systemctl(t, "restart", bedService)
		case 1:
			_ = syscall.Kill(pid, syscall.SIGKILL)
		case 2:
			if out, err := exec.Command(ctlBin, "upgrade", "--trial", "0").CombinedOutput(); err != nil {
				t.Errorf("upgrade: %v: %s", err, out)
			}
		case 3:
			systemctl(t, "reload", bedService)
			continue
		}
		awaitSuccessor(t, pid)
	}
	awaitProcesses(t, 3)
	l.mustBeServed(t)
	long.mustBeWhole(t)
	if n := len(listeners(port)); n != 2 {
		t.Errorf("%d listening sockets", n)
	}
}
