package e2e

import "testing"

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
