package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReloadSignalInUpgrade sends many signals to reload in an upgrade, and has a
// monitored file change in another: whichever daemon goes on reads the
// configuration afterwards.
func TestReloadSignalInUpgrade(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 60\n")
	d := startUpgradable(t, config)
	load := startMixed(t, p, 1)
	added := []int{}
	change := func() {
		added = append(added, port(t))
		text := "pidfile " + d.pidFile() + "\nmonitor " + d.config + "\n" + config
		for _, p := range added {
			text += fmt.Sprintf("socks -p%d\n", p)
		}
		d.write(text)
	}
	awaitAdded := func() {
		t.Helper()
		eventually(t, patience, func() string {
			if !listens(added[len(added)-1]) {
				return "the new service does not listen"
			}
			return ""
		})
	}
	storm := func() {
		for range 50 {
			_ = syscall.Kill(d.supervisor(), syscall.SIGHUP)
			_ = syscall.Kill(d.supervisor(), syscall.SIGUSR1)
			_ = syscall.Kill(d.supervisor(), syscall.SIGUSR2)
		}
	}
	// One that fails.
	newPID, outcome := d.inTrial()
	change()
	storm()
	_ = syscall.Kill(newPID, syscall.SIGTERM)
	d.awaitOutcome(outcome, "told to stop")
	awaitAdded()
	// One that succeeds.
	_, outcome = d.inTrial("--trial", "1")
	change()
	storm()
	d.awaitOutcome(outcome, "has taken over")
	awaitAdded()
	d.awaitOldGone()
	// A monitored file is looked at by the new daemon.
	_, outcome = d.inTrial("--trial", "1")
	change()
	d.awaitOutcome(outcome, "has taken over")
	awaitAdded()
	d.awaitOldGone()
	load.end()
}

// TestManySignals has signals to reload come faster than reloads are made.
func TestManySignals(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := start(t, mixedConfig(p, "workers 2\n"))
	load := startMixed(t, p, 1)
	for range 1000 {
		_ = syscall.Kill(d.pid(), syscall.SIGHUP)
		time.Sleep(time.Millisecond / 2)
	}
	before := d.status().Generation
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Error(stderr)
	}
	if now := d.status().Generation; now > before+3 {
		t.Errorf("%d reloads were waiting", now-before)
	}
	load.end()
}

// TestControlSocketRemoved removes the control socket: it is opened anew, and
// works after an upgrade.
func TestControlSocketRemoved(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 1\nupgrade_trial 0\n"))
	fds := openFDs(t, d.supervisor())
	for range 2 {
		if err := os.Remove(d.socket); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, func() string {
			if _, stderr, code := d.ctl("status"); code != 0 {
				return stderr
			}
			return ""
		})
		if info, err := os.Stat(d.socket); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if now := openFDs(t, d.supervisor()); now > fds+1 {
			t.Errorf("%d descriptors, %d before:\n%s", now, fds, strings.Join(fdTargets(d.supervisor()), "\n"))
		}
		d.upgrade()
		d.awaitOldGone()
	}
}

// TestControlSocketTaken puts something else in the place of the control socket:
// that is said, and the socket comes back when the path is free.
func TestControlSocketTaken(t *testing.T) {
	t.Parallel()
	d := startUpgradable(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t)))
	if err := os.Remove(d.socket); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.socket, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if !strings.Contains(d.printed(), "is not this daemon's any more") {
			return "nothing is said"
		}
		return ""
	})
	if err := os.Remove(d.socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if _, stderr, code := d.ctl("status"); code != 0 {
			return stderr
		}
		return ""
	})
}
