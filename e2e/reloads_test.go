package e2e

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestManyReloadsUnderLoad reloads 100 times in a row, or as often as
// E2E_RELOADS says, while clients of every kind connect and tunnels carry data:
// nothing fails, and nothing grows.
func TestManyReloadsUnderLoad(t *testing.T) {
	rounds := 100
	if n, err := strconv.Atoi(os.Getenv("E2E_RELOADS")); err == nil {
		rounds = max(n, 30)
	}
	p, extra := newMixedPorts(t), port(t)
	config := func(i int) string {
		text := mixedConfig(p, fmt.Sprintf("workers 2\ndrain_timeout 20\nmaxconn %d\n", 1000+i%7))
		if i%2 == 1 {
			text += fmt.Sprintf("socks -p%d\n", extra)
		}
		return text
	}
	d := start(t, config(0))
	streams := startStreams(t, p, 6)
	load := startMixed(t, p, 4)
	measure := func() (fds, rss int) {
		for pid, n := range d.countFDs() {
			if pid == d.pid() {
				fds = n
			}
			rss += statusKB(t, pid, "VmRSS")
		}
		return fds, rss
	}
	var firstFDs, firstRSS int
	began := time.Now()
	for i := range rounds {
		d.write(config(i))
		if i%10 == 9 {
			// Signals that come while a reload is under way.
			_ = d.cmd.Process.Signal(syscall.SIGHUP)
			_ = d.cmd.Process.Signal(syscall.SIGUSR1)
		}
		if out, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload %d: %s%s", i, out, stderr)
		}
		if i == 20 {
			firstFDs, firstRSS = measure()
		}
	}
	took := time.Since(began)
	d.write(config(0))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	made := load.made.Load()
	load.end()
	endStreams(t, streams)
	fds, rss := measure()
	t.Logf("%d reloads in %v under %.0f connections a second; descriptors of the supervisor %d → %d, resident %d → %d KiB",
		rounds, took.Round(time.Millisecond), float64(made)/took.Seconds(), firstFDs, fds, firstRSS, rss)
	if fds > firstFDs+2 {
		t.Errorf("the supervisor has %d descriptors, %d before", fds, firstFDs)
	}
	if rss > firstRSS+20<<10 {
		t.Errorf("%d KiB are resident, %d before", rss, firstRSS)
	}
	if n := len(children(d.pid())); n != 2 {
		t.Errorf("%d workers", n)
	}
	for _, port := range []int{p.proxy, p.socks, p.tcppm} {
		if n := len(listeners(port)); n != 2 {
			t.Errorf("%d sockets listen on a port instead of 2", n)
		}
	}
	if listens(extra) {
		t.Error("a removed service still listens")
	}
}
