package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tunnelsInTrial opens a tunnel before an upgrade and one in its trial, and returns
// the process of the new daemon between them.
func (d *daemon) tunnelsInTrial(p mixedPorts) (before net.Conn, newPID int, during net.Conn) {
	d.t.Helper()
	before = connectVia(d.t, p.proxy, p.echo)
	mustPing(d.t, before)
	newPID, _ = d.inTrial()
	during = connectVia(d.t, p.proxy, p.echo)
	mustPing(d.t, during)
	return before, newPID, during
}

// TestUpgradeBothKilled kills both daemons of an upgrade in its trial, under
// load: the workers serve on, and the next daemon takes over from all of them.
func TestUpgradeBothKilled(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 60\n")
	d := startUpgradable(t, config)
	old := d.supervisor()
	before, newPID, during := d.tunnelsInTrial(p)
	load := startMixed(t, p, 1)
	killAndAwait(t, old, newPID)
	// Workers that leave their queues to the other daemon do so for a while only.
	time.Sleep(4 * time.Second)
	mustPing(t, before)
	mustPing(t, during)
	d.startUpgradable(config, daemonBin)
	d.awaitOldGone()
	mustPing(t, before)
	mustPing(t, during)
	load.end()
	before.Close()
	during.Close()
}

// killAndAwait kills processes and waits until they are gone.
func killAndAwait(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	awaitGone(t, pids)
}

// TestUpgradeNobodyLeft kills the old daemon in the trial, and the new one ends
// without any worker: those of the old one accept again after a while.
func TestUpgradeNobodyLeft(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 60\n")
	d := startUpgradable(t, config)
	d.inTrial("--binary", fakeSuccessor(t, "dies on check"))
	killAndAwait(t, d.supervisor())
	load := startMixed(t, p, 1)
	eventually(t, patience, func() string {
		if load.made.Load() < 100 {
			return "nobody accepts"
		}
		return ""
	})
	d.startUpgradable(config, daemonBin)
	d.awaitOldGone()
	load.end()
}

// TestReplacedKilled kills a daemon that an upgrade has replaced while a session
// is left to it: the new one takes its workers over, and the session moves when
// it can.
func TestReplacedKilled(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\n"))
	half := halfTunnel(t, p.proxy)
	d.awaitOpen(1)
	old := d.supervisor()
	d.upgrade()
	killAndAwait(t, old)
	eventually(t, patience, func() string {
		if !strings.Contains(d.printed(), "has died before its workers: this daemon takes ") {
			return "the worker is not taken over"
		}
		return ""
	})
	time.Sleep(200 * time.Millisecond)
	finishHalf(t, half, p.echo)
	d.awaitOldGone()
	mustPing(t, half)
	half.Close()
}

// finishHalf sends the rest of a halfTunnel's request, and waits for the answer.
func finishHalf(t *testing.T, half net.Conn, target int) {
	t.Helper()
	fmt.Fprintf(half, "%d HTTP/1.1\r\nHost: x\r\n\r\n", target)
	readHead(t, half, "HTTP/1.1 200 ")
}

// TestUpgradeFailsSoon gives a binary that hangs, or leaves a process with the
// handoff socket behind, no more time than it has.
func TestUpgradeFailsSoon(t *testing.T) {
	t.Parallel()
	d := startUpgradable(t, mixedConfig(newMixedPorts(t), "workers 1\n"))
	for _, c := range []struct {
		binary, want string
		limit        time.Duration
	}{
		{script(t, "sleep 1000"), "did not say hello within 2s", 5 * time.Second},
		{fakeSuccessor(t, "silent"), "did not take the sockets within", 5 * time.Second},
		{script(t, "sleep 1000 & exit 3"), "ended before it could say hello: exit status 3", 2 * time.Second},
	} {
		began := time.Now()
		_, stderr, code := d.ctl("upgrade", "--timeout", "2", "--binary", c.binary)
		took := time.Since(began)
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("exit code %d, %s; expected %q", code, stderr, c.want)
		}
		if took > c.limit {
			t.Errorf("%s: it took %v", c.want, took)
		}
	}
	d.awaitProcesses(2)
}

// awaitProcesses waits until the daemon consists of n processes.
func (d *daemon) awaitProcesses(n int) {
	d.t.Helper()
	eventually(d.t, patience, func() string {
		if now := len(d.family()); now != n {
			return fmt.Sprintf("%d processes instead of %d", now, n)
		}
		return ""
	})
}

// TestUpgradeReclaimedSurvives kills the supervisors one after the other, with
// upgrades between, while one worker drains: whoever supervises it by then, the
// next daemon does not take it for one that hangs.
func TestUpgradeReclaimedSurvives(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 0\nupgrade_old 16\n")
	d := startUpgradable(t, config)
	half := halfTunnel(t, p.proxy)
	d.awaitOpen(1)
	takenOver := func(n int) {
		t.Helper()
		eventually(t, patience, func() string {
			if strings.Count(d.printed(), "has died before its workers: this daemon takes 1 worker over") < n {
				return "the worker is not taken over"
			}
			return ""
		})
	}
	first := d.supervisor()
	d.upgrade()
	second := d.supervisor()
	killAndAwait(t, first)
	takenOver(1)
	d.upgrade("--binary", renamedDaemon(t))
	killAndAwait(t, d.supervisor())
	d.startUpgradable(config, daemonBin)
	if !alive(second) {
		t.Fatal("the supervisor of the worker is gone")
	}
	killAndAwait(t, second)
	takenOver(2)
	if strings.Contains(d.printed(), "does not answer; killing it") {
		t.Error("a worker with a supervisor was taken for one that hangs")
	}
	finishHalf(t, half, p.echo)
	mustPing(t, half)
	d.awaitOldGone()
	mustPing(t, half)
	half.Close()
}

// renamedDaemon is the daemon under another name.
func renamedDaemon(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "other")
	if err := os.Link(daemonBin, path); err != nil {
		data, err := os.ReadFile(daemonBin)
		if err == nil {
			err = os.WriteFile(path, data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestUpgradeHungSuccessor kills the old daemon in the trial while the new one
// hangs: a start by hand says who is in the way, and takes over from all workers
// when that one is ended.
func TestUpgradeHungSuccessor(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 60\n")
	d := startUpgradable(t, config)
	before, newPID, during := d.tunnelsInTrial(p)
	freeze(t, newPID)
	killAndAwait(t, d.supervisor())
	load := startMixed(t, p, 1)
	out, code := d.startOnce()
	if want := fmt.Sprintf("process %d, which does not answer: end it with `kill -9 %d`", newPID, newPID); code != 1 || !strings.Contains(out, want) {
		t.Errorf("exit code %d: %s; expected %s", code, out, want)
	}
	killAndAwait(t, newPID)
	d.startUpgradable(config, daemonBin)
	d.awaitOldGone()
	mustPing(t, before)
	mustPing(t, during)
	load.end()
	before.Close()
	during.Close()
}

// startOnce runs a daemon that is expected to end soon.
func (d *daemon) startOnce() (out string, code int) {
	stdout, stderr, code := command(d.t, daemonBin, "-c", d.config)
	return stdout + stderr, code
}
