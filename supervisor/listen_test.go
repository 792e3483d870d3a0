package supervisor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

func tcpService(addr string, port int) *config.Service {
	return &config.Service{Listen: config.Endpoint{Addr: netip.MustParseAddr(addr), Port: uint16(port)}}
}

func mustListen(t *testing.T, s *config.Service, slots int, ours bool) *listener {
	t.Helper()
	l, err := listen(s, slots, ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// accepted counts the connections waiting in each socket's queue.
func accepted(fds []int) []int {
	counts := make([]int, len(fds))
	for i, fd := range fds {
		for {
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			_ = unix.Close(c)
			counts[i]++
		}
	}
	return counts
}

func TestListenGroupBalances(t *testing.T) {
	port := freePorts(t, 1)[0]
	l := mustListen(t, tcpService("127.0.0.1", port), 4, false)
	const clients = 200
	for range clients {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	sum := 0
	for i, n := range accepted(l.fds) {
		sum += n
		if n < clients/4/4 {
			t.Errorf("socket %d got %d of %d connections", i, n, clients)
		}
	}
	if sum != clients {
		t.Errorf("%d of %d connections arrived", sum, clients)
	}
}

func TestListenInheritedOptions(t *testing.T) {
	port := freePorts(t, 1)[0]
	s := tcpService("127.0.0.1", port)
	s.ListenOptions = []config.SockOpt{{Name: "SO_RCVBUF", Value: 65536}}
	l := mustListen(t, s, 1, false)
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fd, _, err := unix.Accept4(l.fds[0], unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, o := range []struct{ level, opt, want int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 2 * 65536},
	} {
		if got, err := unix.GetsockoptInt(fd, o.level, o.opt); err != nil || got != o.want {
			t.Errorf("option %d/%d is %d (%v), want %d", o.level, o.opt, got, err, o.want)
		}
	}
}

func TestListenExclusive(t *testing.T) {
	port := freePorts(t, 1)[0]
	mustListen(t, tcpService("127.0.0.1", port), 2, false)
	for name, s := range map[string]*config.Service{
		"the same address": tcpService("127.0.0.1", port),
		"the wildcard":     tcpService("0.0.0.0", port),
	} {
		if l, err := listen(s, 2, false); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				l.close()
			}
		}
	}
	// The daemon's own overlapping address may be joined: a reload that
	// widens an address opens the new one before it closes the old one.
	mustListen(t, tcpService("0.0.0.0", port), 2, true)
	// IPv6 wildcards never take IPv4 connections.
	v6, err := listen(tcpService("::", port), 2, false)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return
	}
	if err != nil {
		t.Fatalf("IPv6: %v", err)
	}
	v6.close()
}

func TestListenClosedEndsDuplicates(t *testing.T) {
	port := freePorts(t, 1)[0]
	l, err := listen(tcpService("127.0.0.1", port), 2, false)
	if err != nil {
		t.Fatal(err)
	}
	dup, err := unix.FcntlInt(uintptr(l.fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	l.close()
	mustListen(t, tcpService("127.0.0.1", port), 2, false)
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := &config.Service{Listen: config.Endpoint{Unix: path}}
	l := mustListen(t, s, 4, false)
	if !l.shared || len(l.fds) != 1 {
		t.Errorf("listener %+v", l)
	}
	if _, err := listen(s, 4, false); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a path in use: %v", err)
	}

	stale := filepath.Join(t.TempDir(), "stale")
	fd, _, err := bindUnix(stale, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	_ = unix.Close(fd)
	mustListen(t, &config.Service{Listen: config.Endpoint{Unix: stale}}, 1, false)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(&config.Service{Listen: config.Endpoint{Unix: file}}, 1, false); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the place: %v", err)
	}
	long := "/" + strings.Repeat("x", 200)
	if _, err := listen(&config.Service{Listen: config.Endpoint{Unix: long}}, 1, false); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("a long path: %v", err)
	}

	name := fmt.Sprintf("@3proxyd-test-%d", os.Getpid())
	mustListen(t, &config.Service{Listen: config.Endpoint{Unix: name}}, 2, false)
	if c, err := net.DialTimeout("unix", name, time.Second); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

func TestUnixFileOfAnotherIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := mustListen(t, &config.Service{Listen: config.Endpoint{Unix: path}}, 1, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other := mustListen(t, &config.Service{Listen: config.Endpoint{Unix: path}}, 1, false)
	l.close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of the other socket: %v", err)
	}
	other.close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the own file is left: %v", err)
	}
}

func TestListenerUpdate(t *testing.T) {
	port := freePorts(t, 1)[0]
	s := tcpService("127.0.0.1", port)
	s.Backlog = 1
	s.ListenOptions = []config.SockOpt{{Name: "SO_RCVBUF", Value: 65536}}
	l := mustListen(t, s, 1, false)
	changed := tcpService("127.0.0.1", port)
	changed.Backlog = 100
	changed.ListenOptions = []config.SockOpt{{Name: "SO_SNDBUF", Value: 65536}}
	warnings := l.update(changed)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "SO_RCVBUF is gone") {
		t.Errorf("warnings %q", warnings)
	}
	if got, _ := unix.GetsockoptInt(l.fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF); got != 2*65536 {
		t.Errorf("SO_SNDBUF is %d", got)
	}
	for range 50 {
		c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), 2*time.Second)
		if err != nil {
			t.Fatalf("the backlog was not raised: %v", err)
		}
		defer c.Close()
	}
	if warnings := l.update(changed); len(warnings) != 0 {
		t.Errorf("warnings without a change %q", warnings)
	}
}

func TestListenReason(t *testing.T) {
	endpoint := config.Endpoint{Addr: netip.MustParseAddr("127.0.0.1"), Port: 80}
	for _, c := range []struct {
		err  error
		want string
	}{
		{os.NewSyscallError("bind", unix.EADDRINUSE), "127.0.0.1:80 is already in use by another process (address already in use)"},
		{os.NewSyscallError("bind", unix.EACCES), "no permission for ports below 1024: start as root"},
		{os.NewSyscallError("bind", unix.EADDRNOTAVAIL), "is not an address of this host"},
		{os.NewSyscallError("socket", unix.EMFILE), "cannot listen on 127.0.0.1:80: socket: too many open files"},
	} {
		if got := listenReason(endpoint, c.err, false); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

func udpService(addr string, port int) *config.Service {
	s := tcpService(addr, port)
	s.Listen.Network = config.UDP
	return s
}

// TestListenDatagrams has a socket for each slot, beside one for streams of the
// same port; another process's use of the port is an error.
func TestListenDatagrams(t *testing.T) {
	port := freePorts(t, 1)[0]
	mustListen(t, tcpService("127.0.0.1", port), 2, false)
	s := udpService("127.0.0.1", port)
	l := mustListen(t, s, 3, false)
	if l.shared || len(l.fds) != 3 || l.key != fmt.Sprintf("udp:127.0.0.1:%d", port) || l.key == tcpService("127.0.0.1", port).Listen.Key() {
		t.Fatalf("listener %+v", l)
	}
	counts := make([]int, 3)
	const clients = 120
	for range clients {
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("x"))
	}
	sum := 0
	for i, fd := range l.fds {
		socket, err := describeHandoff(fd)
		if err != nil || socket.Network != "udp" || socket.Listening || !socket.ReusePort {
			t.Errorf("socket %d: %+v, %v", i, socket, err)
		}
		buf := make([]byte, 8)
		for {
			if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil {
				break
			}
			counts[i]++
		}
		sum += counts[i]
	}
	if sum != clients || counts[0] < 10 || counts[1] < 10 || counts[2] < 10 {
		t.Errorf("datagrams %v of %d", counts, clients)
	}
	if _, err := listen(s, 1, false); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	if err := probe(s, false); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a probe of a port in use: %v", err)
	}
	// More slots: the sockets are bound when the generation is in force.
	g, err := l.grow(5)
	if err != nil || len(g.fds) != 0 || g.late != 2 {
		t.Fatalf("growth %+v, %v", g, err)
	}
	if err := g.start(); err != nil || len(l.fds) != 5 {
		t.Errorf("%d sockets, %v", len(l.fds), err)
	}
}

// TestListenDatagramsAlone has one socket, of the first slot, with
// SO_REUSEPORT=0.
func TestListenDatagramsAlone(t *testing.T) {
	s := udpService("127.0.0.1", freePorts(t, 1)[0])
	s.ListenOptions = []config.SockOpt{{Name: "SO_REUSEPORT", Value: 0}}
	l := mustListen(t, s, 4, false)
	if l.shared || len(l.fds) != 1 || len(listenerFiles(l, "a", 0)) != 1 || len(listenerFiles(l, "a", 1)) != 0 {
		t.Errorf("listener %+v", l)
	}
	if l.grouped() {
		t.Error("it would be given sockets for more slots")
	}
}
