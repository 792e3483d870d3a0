package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestUpgradeStalledWorker upgrades and reloads while a worker is stopped, under
// load: both take their time, and the worker is replaced.
func TestUpgradeStalledWorker(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 0\n")
	d := startUpgradable(t, config)
	d.dumped = true
	// Sessions of a worker that is ended for its silence end with it: there are
	// none.
	freeze(t, d.worker(0).PID)
	load := startMixed(t, p, 1)
	d.upgrade()
	d.awaitOldGone()
	load.end()
	freeze(t, d.worker(1).PID)
	load = startMixed(t, p, 1)
	// A worker that is busy for a moment has a say in a reload; one that has
	// been silent for long has none.
	eventually(t, 2*patience, func() string {
		if _, stderr, code := d.ctl("reload"); code != 0 {
			return stderr
		}
		return ""
	})
	d.upgrade()
	d.awaitOldGone()
	load.end()
}

// TestUpgradeDuringDrain upgrades while a drained worker has a session that
// cannot move yet; it follows to the new daemon.
func TestUpgradeDuringDrain(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 1\nupgrade_trial 0\n"))
	half := halfTunnel(t, p.proxy)
	tunnel := connectVia(t, p.proxy, p.echo)
	mustPing(t, tunnel)
	load := startMixed(t, p, 1)
	for range 2 {
		if _, stderr, code := d.ctl("drain", "--worker", "0", "--timeout", "60"); code != 0 {
			t.Fatal(stderr)
		}
		d.upgrade()
		mustPing(t, tunnel)
	}
	finishHalf(t, half, p.echo)
	mustPing(t, half)
	d.awaitOldGone()
	mustPing(t, half)
	load.end()
	half.Close()
	tunnel.Close()
}

// TestUpgradeHalfOpen upgrades, twice, while connections are in every state of a
// handshake: nothing sent yet, a part of a request, waiting for the next one.
func TestUpgradeHalfOpen(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\n"))
	part, socks := halfTunnel(t, p.proxy), dial(t, p.socks)
	halfHandshake(t, socks)
	silent := dial(t, p.socks)
	d.awaitOpen(3)
	d.upgrade()
	d.upgrade()
	time.Sleep(200 * time.Millisecond)
	finishHalf(t, part, p.echo)
	mustPing(t, part)
	if _, err := socks.Write([]byte{5, 1, 0, 1, 127, 0, 0, 1, byte(p.echo >> 8), byte(p.echo)}); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 10)
	if _, err := socks.Read(answer); err != nil || answer[1] != 0 {
		t.Errorf("SOCKS reply %v, %v", answer, err)
	}
	mustPing(t, socks)
	halfHandshake(t, silent)
	silent.Close()
	d.awaitOldGone()
	mustPing(t, part)
	mustPing(t, socks)
	part.Close()
	socks.Close()
	if strings.Contains(d.printed(), "has died") {
		t.Errorf("printed: %s", d.printed())
	}
}
