package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestUpgradeAfterShrink upgrades a daemon that has retired workers, whose
// sockets go on being served.
func TestUpgradeAfterShrink(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 3\nupgrade_trial 0\n"))
	d.write("pidfile " + d.pidFile() + "\n" + mixedConfig(p, "workers 1\nupgrade_trial 0\n"))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	load := startMixed(t, p, 2)
	for range 3 {
		if out, stderr, code := d.ctl("upgrade"); code != 0 {
			t.Fatalf("upgrade: %s%s", out, stderr)
		}
	}
	d.write("pidfile " + d.pidFile() + "\n" + mixedConfig(p, "workers 2\nupgrade_trial 0\n"))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	load.end()
}

// TestReloadWorkersCycles shrinks and grows again and again: the sockets of slots
// that are out of use are those of the slots that come back.
func TestReloadWorkersCycles(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := start(t, mixedConfig(p, "workers 3\n"))
	sockets := listeners(p.proxy)
	load := startMixed(t, p, 1)
	fds := 0
	for i := range 20 {
		for _, workers := range []int{1, 3} {
			d.write(mixedConfig(p, fmt.Sprintf("workers %d\n", workers)))
			if _, stderr, code := d.ctl("reload"); code != 0 {
				t.Fatal(stderr)
			}
		}
		d.awaitWorkers(3)
		if now := openFDs(t, d.pid()); i == 2 {
			fds = now
		} else if i > 2 && now > fds+2 {
			t.Fatalf("cycle %d: the supervisor has %d descriptors, %d before:\n%s", i, now, fds, strings.Join(fdTargets(d.pid()), "\n"))
		}
	}
	load.end()
	if now := listeners(p.proxy); !slices.Equal(now, sockets) {
		t.Errorf("the sockets are %v instead of %v", now, sockets)
	}
	d.fds = d.countFDs()
}

// TestReloadWorkersMoves retires the worker of a tunnel, which goes on in
// another one, and grows again.
func TestReloadWorkersMoves(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := start(t, mixedConfig(p, "workers 3\n"))
	streams := startStreams(t, p, 12)
	for _, head := range []string{"workers 1\n", "workers 4\n", "workers 2\n", "workers 3\n"} {
		d.write(mixedConfig(p, head))
		if _, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatal(stderr)
		}
		d.awaitWorkers(int(head[len("workers ")] - '0'))
	}
	endStreams(t, streams)
	d.fds = d.countFDs()
}
