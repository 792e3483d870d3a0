package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReloadKind has other kinds of service take over addresses, by reloads and
// upgrades, with a worker that has adopted a retired slot and without, under a load
// that all of them understand: the sockets stay, and nothing fails.
func TestReloadKind(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	origin := newUDPOrigin(t, "127.0.0.1:0")
	udp := port(t)
	d := newDaemon(t, "").shared()
	unix := d.dir + "/u.sock"
	config := func(workers int, http, socks, datagrams string) string {
		return fmt.Sprintf("workers %d\nupgrade_trial 0\nauth none\ntimeouts 1 1 30 3\ninternal 127.0.0.1\n%s -p%d\n%s -p%d\ntcppm %d 127.0.0.1 %d\n%s -iunix:%s\n%s\n",
			workers, http, p.proxy, socks, p.socks, p.tcppm, p.echo, http, unix, datagrams)
	}
	mapped := fmt.Sprintf("udppm %d 127.0.0.1 %d", udp, origin.port())
	names := fmt.Sprintf("dnspr -p%d", udp)
	d.startUpgradable(config(2, "proxy", "socks", mapped), daemonBin)
	sockets := listeners(p.proxy)
	load, streams := startMixed(t, p, 1), startStreams(t, p, 6)
	load.clients.Go(func() {
		load.run("unix", func() error {
			c, err := net.Dial("unix", unix)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if err := connectTo(p.echo)(c); err != nil {
				return err
			}
			return ping(c)
		})
	})
	step := func(command, text string) {
		t.Helper()
		time.Sleep(100 * time.Millisecond)
		d.write("pidfile " + d.pidFile() + "\n" + text)
		if out, stderr, code := d.ctl(command); code != 0 {
			t.Fatalf("%s: %s%s", command, out, stderr)
		}
	}
	for _, workers := range []int{2, 1} {
		step("reload", config(workers, "proxy", "socks", mapped))
		step("reload", config(workers, "auto", "auto", names))
		step("reload", config(workers, "proxy", "socks", mapped))
		step("upgrade", config(workers, "auto", "auto", names))
		d.awaitOldGone()
		step("upgrade", config(workers, "proxy", "socks", mapped))
		d.awaitOldGone()
	}
	time.Sleep(100 * time.Millisecond)
	load.end()
	endStreams(t, streams)
	if now := listeners(p.proxy); !slices.Equal(now, sockets) {
		t.Errorf("the sockets are %v instead of %v", now, sockets)
	}
	c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", udp))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustPing(t, c)
}

// TestUpgradeUnixFileGone removes the file of a service's Unix socket before
// upgrades: a reload of the last daemon makes it again.
func TestUpgradeUnixFileGone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "").shared()
	path := d.dir + "/u.sock"
	d.startUpgradable(fmt.Sprintf("workers 1\nupgrade_trial 0\nauth none\ninternal 127.0.0.1\ntcppm -iunix:%s 1 127.0.0.1 %d\n", path, echoOrigin(t)), daemonBin)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.upgrade()
		d.awaitOldGone()
	}
	for _, command := range [][]string{{"reload", "--dry-run"}, {"reload"}} {
		if out, stderr, code := d.ctl(command...); code != 0 || !strings.Contains(out+stderr, "is made again") {
			t.Errorf("%v: exit code %d: %s%s", command, code, out, stderr)
		}
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mustPing(t, c)
	c.Close()
	d.upgrade()
	d.awaitOldGone()
	if c, err = net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
	mustPing(t, c)
	c.Close()
}
