package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestInheritedUpgrade upgrades a daemon with inherited sockets, of which one has
// no SO_REUSEPORT, changes the number of its workers, kills it and starts the next
// one by hand, all under load.
func TestInheritedUpgrade(t *testing.T) {
	t.Parallel()
	echo, single, grouped := echoOrigin(t), port(t), port(t)
	config := func(workers int) string {
		return fmt.Sprintf("workers %d\nupgrade_trial 0\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\ntcppm %d 127.0.0.1 %d\n", workers, single, echo, grouped, echo)
	}
	d := newDaemon(t, "")
	d.inherited = []*os.File{listenFile(t, single, false), listenFile(t, grouped, true), listenFile(t, grouped, true)}
	d.startUpgradable(config(2), "/bin/sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=a:g:g exec "$0" "$@"`, daemonBin)
	for _, f := range d.inherited {
		f.Close()
	}
	d.inherited = nil
	tunnel := dial(t, single)
	mustPing(t, tunnel)
	loads := []*pingLoad{startPings(t, single, 2), startPings(t, grouped, 2)}
	for _, workers := range []int{3, 1, 2} {
		d.upgrade()
		d.write("pidfile " + d.pidFile() + "\n" + config(workers))
		if _, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatal(stderr)
		}
		d.awaitAccepting(workers)
		d.awaitOldGone()
	}
	killAndAwait(t, d.supervisor())
	d.startUpgradable(config(2), daemonBin)
	d.awaitOldGone()
	d.awaitAccepting(2)
	d.upgrade()
	d.awaitOldGone()
	for _, load := range loads {
		load.end()
	}
	mustPing(t, tunnel)
	tunnel.Close()
	for p, want := range map[int]int{single: 1, grouped: 2} {
		if n := len(listeners(p)); n != want {
			t.Errorf("%d sockets listen instead of %d", n, want)
		}
	}
}
