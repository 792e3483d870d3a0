package e2e

import (
	"fmt"
	"net"
	"testing"
)

// The addresses that a service of these tests is moved between.
const (
	narrow = "127.0.0.1"
	wide   = "0.0.0.0"
)

// mappingsOn is a configuration with mappings of a TCP and a UDP port.
func mappingsOn(address string, port, echo int) string {
	return fmt.Sprintf("workers 2\nauth none\ntcppm -i%s %d 127.0.0.1 %d\nudppm -i%s %d 127.0.0.1 %d\n", address, port, echo, address, port, echo)
}

func (d *daemon) checkListens(how, address string) {
	d.t.Helper()
	services := d.status().Services
	if len(services) != 2 {
		d.t.Fatalf("services after %s: %+v", how, services)
	}
	for _, s := range services {
		if host, _, _ := net.SplitHostPort(s.Address); host != address {
			d.t.Errorf("%s listens on %s after %s, not on %s", s.Kind, s.Address, how, address)
		}
	}
}

// checkWidened checks that no connection failed.
func checkWidened(t *testing.T, l *load) {
	t.Helper()
	if err := l.stop(); l.refused.Load() > 0 || err != nil {
		t.Errorf("%d served, %d refused, %d failed (%v)", l.served.Load(), l.refused.Load(), l.failed.Load(), err)
	}
}

// TestWidenedAddress gives services a wildcard address in the place of a narrower
// one, and takes it back: by reloads, and by new starts while the workers of the
// supervisor before still serve the old address. No connection fails.
func TestWidenedAddress(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	last := start(t, mappingsOn(narrow, ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	l := newLoad(ppm, 2)
	for _, address := range []string{wide, narrow} {
		last.write(mappingsOn(address, ppm, echo))
		if _, stderr, code := last.ctl("reload"); code != 0 {
			t.Fatalf("reload with %s: %s", address, stderr)
		}
		last.checkListens("a reload", address)
		mustPing(t, c)
	}
	for _, address := range []string{wide, narrow} {
		workers := children(last.pid())
		last.kill()
		last = last.restart(mappingsOn(address, ppm, echo))
		last.checkListens("a start", address)
		awaitGone(t, workers)
		mustPing(t, c)
	}
	checkWidened(t, l)
	c.Close()
}

// TestWidenedByUpgrade does the same in upgrades.
func TestWidenedByUpgrade(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := startUpgradable(t, mappingsOn(narrow, ppm, echo)+"upgrade_trial 1\n")
	c := dial(t, ppm)
	mustPing(t, c)
	l := newLoad(ppm, 2)
	for _, address := range []string{wide, narrow} {
		d.write("pidfile " + d.pidFile() + "\n" + mappingsOn(address, ppm, echo) + "upgrade_trial 1\n")
		d.upgrade()
		d.checkListens("an upgrade", address)
		d.awaitOldGone()
		mustPing(t, c)
	}
	checkWidened(t, l)
	c.Close()
}
