package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// launchWith starts the daemon with inherited sockets, as a service manager
// does: LISTEN_PID is its own process.
func (d *daemon) launchWith(names string, files ...*os.File) {
	d.t.Helper()
	script := fmt.Sprintf("LISTEN_PID=$$ LISTEN_FDS=%d LISTEN_FDNAMES=%s exec %s -c %s", len(files), names, daemonBin, d.config)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.ExtraFiles = files
	d.run(cmd)
}

// listenFile is a listening TCP socket to be inherited.
func listenFile(t *testing.T, port int, reusePort bool) *os.File {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		if !reusePort {
			return nil
		}
		var err error
		if ctlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}); ctlErr != nil {
			return ctlErr
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestInheritedSockets starts the daemon with sockets that others have opened,
// and connections that wait in them.
func TestInheritedSockets(t *testing.T) {
	t.Parallel()
	echo := echoOrigin(t)
	single, named, grouped, unwanted := port(t), port(t), port(t), port(t)
	files := []*os.File{
		listenFile(t, single, false), listenFile(t, named, false),
		listenFile(t, grouped, true), listenFile(t, grouped, true), listenFile(t, unwanted, false),
	}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	datagram, err := udp.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer datagram.Close()

	var early []net.Conn
	for _, p := range []int{single, named, grouped, grouped, grouped} {
		early = append(early, dial(t, p))
	}
	d := newDaemon(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\n"+
		"tcppm %d 127.0.0.1 %d\ntcppm -isystemd:name 1 127.0.0.1 %d\ntcppm %d 127.0.0.1 %d\n", single, echo, echo, grouped, echo))
	d.launchWith("a:name:g:g:b:c", append(files, datagram)...)
	d.await()
	for _, c := range early {
		mustPing(t, c)
		c.Close()
	}
	for _, p := range []int{single, named, grouped} {
		l := newLoad(p, 2)
		eventually(t, patience, func() string {
			if l.served.Load() < 100 {
				return "the load is not served"
			}
			return ""
		})
		l.mustBeServed(t)
	}
	for _, want := range []string{
		fmt.Sprintf(`warning: no service wants the inherited socket "b" (tcp 127.0.0.1:%d): it is closed`, unwanted),
		fmt.Sprintf(`warning: no service wants the inherited socket "c" (udp %s): it is closed`, udp.LocalAddr()),
		fmt.Sprintf("systemd:name (127.0.0.1:%d)", named),
	} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("not printed: %s", want)
		}
	}
	// The sockets are not the daemon's: they go on listening after it.
	d.stop(syscall.SIGTERM)
	for _, p := range []int{single, named, grouped} {
		if !listens(p) {
			t.Errorf("the socket at port %d is shut down", p)
		}
	}
}

// TestInheritedGrow changes the number of workers of inherited sockets, of which
// only a service manager can make more: each worker gets connections.
func TestInheritedGrow(t *testing.T) {
	t.Parallel()
	echo, single, grouped := echoOrigin(t), port(t), port(t)
	config := func(workers int) string {
		return fmt.Sprintf("workers %d\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\ntcppm %d 127.0.0.1 %d\n", workers, single, echo, grouped, echo)
	}
	d := newDaemon(t, config(2))
	d.launchWith("a:g:g", listenFile(t, single, false), listenFile(t, grouped, true), listenFile(t, grouped, true))
	d.await()
	for _, p := range []int{single, grouped} {
		load := startPings(t, p, 4)
		for _, n := range []int{4, 1, 3, 2} {
			d.write(config(n))
			if out, stderr, code := d.ctl("reload"); code != 0 {
				t.Fatalf("reload: %s%s", out, stderr)
			}
			d.awaitWorkers(n)
			d.awaitAccepting(n)
		}
		load.end()
	}
	for p, want := range map[int]int{single: 1, grouped: 2} {
		if n := len(listeners(p)); n != want {
			t.Errorf("%d sockets listen instead of %d", n, want)
		}
	}
}

// awaitAccepting waits until each of n workers has accepted something more.
func (d *daemon) awaitAccepting(n int) {
	d.t.Helper()
	before := map[int]uint64{}
	for _, w := range d.stats().Workers {
		before[w.Slot] = w.Counters["accepted"]
	}
	eventually(d.t, patience, func() string {
		for _, w := range d.stats().Workers {
			if w.Slot < n && w.Counters["accepted"] == before[w.Slot] {
				return fmt.Sprintf("worker %d of %d accepts nothing", w.Slot, n)
			}
		}
		return ""
	})
}

// TestInheritedOrphans starts the daemon by hand after one has died that had
// inherited its sockets: the workers have them still.
func TestInheritedOrphans(t *testing.T) {
	t.Parallel()
	echo, single, named := echoOrigin(t), port(t), port(t)
	text := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\n"+
		"tcppm %d 127.0.0.1 %d\ntcppm -isystemd:name 1 127.0.0.1 %d\n", single, echo, echo)
	d := newDaemon(t, text)
	files := []*os.File{listenFile(t, single, false), listenFile(t, named, false)}
	d.launchWith("a:name", files...)
	for _, f := range files {
		f.Close()
	}
	d.await()
	tunnel := dial(t, single)
	mustPing(t, tunnel)
	d.kill()
	d.restart(text)
	for _, p := range []int{single, named} {
		if err := pingOnce(p); err != nil {
			t.Error(err)
		}
	}
	mustPing(t, tunnel)
	tunnel.Close()
}

// TestInheritedRefused starts the daemon with variables that are wrong, or
// without the sockets a service needs.
func TestInheritedRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, config, want string }{
		{"LISTEN_PID=$$ LISTEN_FDS=x", "proxy -i127.0.0.1 -p%d\n", `3proxyd: inherited descriptors: LISTEN_FDS="x" is not a number of descriptors`},
		{"LISTEN_PID=$$ LISTEN_FDS=1", "proxy -i127.0.0.1 -p%d\n", "3proxyd: inherited descriptors: LISTEN_FDS=1: descriptor 3"},
		{"LISTEN_PID=$$ LISTEN_FDS=0 LISTEN_FDNAMES=a", "proxy -i127.0.0.1 -p%d\n", "3proxyd: inherited descriptors: LISTEN_FDNAMES has 1 names for the 0 descriptors"},
		{"", "proxy -isystemd:web\nproxy -i127.0.0.1 -p%d\n", `3proxy.cfg:2:1: error: proxy: no stream socket of the name "web" was inherited`},
	} {
		d := newDaemon(t, fmt.Sprintf(c.config, port(t)))
		out, err := exec.Command("/bin/sh", "-c", c.env+" exec "+daemonBin+" -c "+d.config).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.env, err, out)
		}
	}
}

// TestInheritedDatagrams serves UDP sockets of socket units by address and by
// name, with what waits in them.
func TestInheritedDatagrams(t *testing.T) {
	t.Parallel()
	origin := newUDPOrigin(t, "127.0.0.1:0")
	var files []*os.File
	var clients []*net.UDPConn
	var ports []int
	for range 2 {
		p := port(t)
		c, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.(*net.UDPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c.Close()
		k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", p))
		if _, err := k.Write([]byte("early")); err != nil {
			t.Fatal(err)
		}
		files, clients, ports = append(files, f), append(clients, k), append(ports, p)
	}
	d := newDaemon(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 2\n"+
		"udppm %d 127.0.0.1 %d\nudppm -isystemd:dns 1 127.0.0.1 %d\n", ports[0], origin.port(), origin.port()))
	d.launchWith("a:dns", files...)
	d.await()
	for i, k := range clients {
		if err := awaitEcho(k, []byte("early"), patience); err != nil {
			t.Errorf("socket %d: %v", i, err)
		}
		if err := echoed(k, []byte("late")); err != nil {
			t.Errorf("socket %d: %v", i, err)
		}
	}
	if want := fmt.Sprintf("systemd:dns (127.0.0.1:%d)", ports[1]); !strings.Contains(d.out.String(), want) {
		t.Errorf("not printed: %s", want)
	}
}
