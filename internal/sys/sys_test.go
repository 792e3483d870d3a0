package sys

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func noErrno(t *testing.T, what string, e unix.Errno) {
	t.Helper()
	if e != 0 {
		t.Fatalf("%s: %v", what, e)
	}
}

func TestSockaddr(t *testing.T) {
	for _, c := range []struct {
		in, out string
		family  int
	}{
		{"127.0.0.1:80", "127.0.0.1:80", unix.AF_INET},
		{"255.255.255.255:65535", "255.255.255.255:65535", unix.AF_INET},
		{"0.0.0.0:0", "0.0.0.0:0", unix.AF_INET},
		{"[::1]:443", "[::1]:443", unix.AF_INET6},
		{"[2001:db8::1:2]:258", "[2001:db8::1:2]:258", unix.AF_INET6},
		{"[::ffff:10.1.2.3]:1", "10.1.2.3:1", unix.AF_INET},
	} {
		var s Sockaddr
		s.SetUnix("/left/over/from/an/earlier/use")
		s.Set(netip.MustParseAddrPort(c.in))
		if got := s.AddrPort(); got != netip.MustParseAddrPort(c.out) || s.Family() != c.family {
			t.Errorf("%s: %v, family %d", c.in, got, s.Family())
		}
	}
}

func TestSockaddrUnix(t *testing.T) {
	for _, c := range []struct {
		name string
		ok   bool
		len  uint32
	}{
		{"", false, 0},
		{"/run/x", true, 2 + 6 + 1},
		{"@abstract", true, 2 + 9},
		{strings.Repeat("p", 107), true, 2 + 107 + 1},
		{strings.Repeat("p", 108), false, 0},
		{strings.Repeat("p", 5000), false, 0},
	} {
		var s Sockaddr
		ok := s.SetUnix(c.name)
		if ok != c.ok || ok && (s.len != c.len || s.Family() != unix.AF_UNIX) {
			t.Errorf("%.20q of %d bytes: %v, length %d", c.name, len(c.name), ok, s.len)
		}
		if s.AddrPort().IsValid() {
			t.Errorf("%.20q: a Unix address has an AddrPort", c.name)
		}
	}
}

func FuzzSockaddr(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, uint16(80))
	f.Add(netip.MustParseAddr("2001:db8::1").AsSlice(), uint16(1))
	f.Add(netip.MustParseAddr("::ffff:1.2.3.4").AsSlice(), uint16(65535))
	f.Fuzz(func(t *testing.T, b []byte, port uint16) {
		ip, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		var s Sockaddr
		s.Set(netip.AddrPortFrom(ip, port))
		if got := s.AddrPort(); got != netip.AddrPortFrom(ip.Unmap(), port) {
			t.Fatalf("%v:%d became %v", ip, port, got)
		}
	})
}

func FuzzSockaddrUnix(f *testing.F) {
	f.Add("/run/socket")
	f.Add("@name")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		var s Sockaddr
		if s.SetUnix(name) != (name != "" && len(name) < 108) {
			t.Fatalf("SetUnix of %d bytes", len(name))
		}
	})
}

// listen returns a listening socket bound by Bind to sa, which then holds the
// address.
func listen(t *testing.T, family int, sa *Sockaddr) int32 {
	t.Helper()
	fd, e := Socket(family)
	noErrno(t, "socket", e)
	t.Cleanup(func() { Close(fd) })
	noErrno(t, "bind", Bind(fd, sa))
	if err := unix.Listen(int(fd), 8); err != nil {
		t.Fatal(err)
	}
	if family != unix.AF_UNIX {
		noErrno(t, "getsockname", Getsockname(fd, sa))
	}
	return fd
}

// connected opens a connection to sa and accepts it from ln.
func connected(t *testing.T, family int, ln int32, sa *Sockaddr) (client, server int32, peer Sockaddr) {
	t.Helper()
	client, e := Socket(family)
	noErrno(t, "socket", e)
	t.Cleanup(func() { Close(client) })
	if e := Connect(client, sa); e != 0 && e != unix.EINPROGRESS {
		t.Fatalf("connect: %v", e)
	}
	for start := time.Now(); ; {
		server, e = Accept(ln, &peer)
		if e != unix.EAGAIN || time.Since(start) > 30*time.Second {
			break
		}
		runtime.Gosched()
	}
	noErrno(t, "accept", e)
	t.Cleanup(func() { Close(server) })
	return client, server, peer
}

func TestConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		name   string
		family int
		set    func(s *Sockaddr)
	}{
		{"ipv4", unix.AF_INET, func(s *Sockaddr) { s.Set(netip.MustParseAddrPort("127.0.0.1:0")) }},
		{"ipv6", unix.AF_INET6, func(s *Sockaddr) { s.Set(netip.MustParseAddrPort("[::1]:0")) }},
		{"path", unix.AF_UNIX, func(s *Sockaddr) { s.SetUnix(path) }},
		{"abstract", unix.AF_UNIX, func(s *Sockaddr) { s.SetUnix(fmt.Sprintf("@sys-test-%d", unix.Getpid())) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sa Sockaddr
			c.set(&sa)
			if c.name == "ipv6" && !hasIPv6() {
				t.Skip("no IPv6 on the loopback interface")
			}
			ln := listen(t, c.family, &sa)
			client, server, peer := connected(t, c.family, ln, &sa)
			if c.family != unix.AF_UNIX {
				var local Sockaddr
				noErrno(t, "getsockname", Getsockname(client, &local))
				if local.AddrPort() != peer.AddrPort() || !peer.AddrPort().IsValid() {
					t.Errorf("client is at %v, accept says %v", local.AddrPort(), peer.AddrPort())
				}
			}
			exchange(t, client, server)
		})
	}
}

func hasIPv6() bool {
	fd, e := Socket(unix.AF_INET6)
	if e != 0 {
		return false
	}
	defer Close(fd)
	var sa Sockaddr
	sa.Set(netip.MustParseAddrPort("[::1]:0"))
	return Bind(fd, &sa) == 0
}

func exchange(t *testing.T, a, b int32) {
	t.Helper()
	buf := make([]byte, 100)
	if n, e := Recv(b, buf); e != unix.EAGAIN || n != 0 {
		t.Fatalf("recv of nothing: %d, %v", n, e)
	}
	if n, e := Send(a, []byte("one "), 0); e != 0 || n != 4 {
		t.Fatalf("send: %d, %v", n, e)
	}
	for _, c := range [][2]string{{"two ", "three"}, {"", " four"}, {" five", ""}} {
		if n, e := Send2(a, []byte(c[0]), []byte(c[1])); e != 0 || n != len(c[0])+len(c[1]) {
			t.Fatalf("send of %q: %d, %v", c, n, e)
		}
	}
	noErrno(t, "shutdown", ShutdownWrite(a))
	var got []byte
	for {
		n, e := Recv(b, buf)
		if e == unix.EAGAIN {
			continue
		}
		noErrno(t, "recv", e)
		if n == 0 {
			break
		}
		got = append(got, buf[:n]...)
	}
	if string(got) != "one two three four five" {
		t.Errorf("got %q", got)
	}
	if _, e := Send(a, []byte("x"), 0); e != unix.EPIPE {
		t.Errorf("send after shutdown: %v", e)
	}
	noErrno(t, "SO_ERROR", SocketError(b))
}

func TestReset(t *testing.T) {
	var sa Sockaddr
	sa.Set(netip.MustParseAddrPort("127.0.0.1:0"))
	ln := listen(t, unix.AF_INET, &sa)
	client, server, _ := connected(t, unix.AF_INET, ln, &sa)
	noErrno(t, "SO_LINGER", SetLinger(client, 0))
	noErrno(t, "close", Close(client))
	for start := time.Now(); ; {
		if e := SocketError(server); e == unix.ECONNRESET {
			break
		} else if e != 0 || time.Since(start) > 30*time.Second {
			t.Fatalf("SO_ERROR: %v", e)
		}
	}
	if e := SocketError(server); e != 0 {
		t.Errorf("SO_ERROR is taken once: %v", e)
	}
}

func TestSetInt(t *testing.T) {
	fd, e := Socket(unix.AF_INET)
	noErrno(t, "socket", e)
	defer Close(fd)
	noErrno(t, "setsockopt", SetInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || v == 0 {
		t.Errorf("TCP_NODELAY is %d, %v", v, err)
	}
	if e := SetInt(fd, unix.IPPROTO_TCP, 9999, 1); e == 0 {
		t.Error("an unknown option was accepted")
	}
}

func TestPipeAndSplice(t *testing.T) {
	var sa Sockaddr
	sa.Set(netip.MustParseAddrPort("127.0.0.1:0"))
	ln := listen(t, unix.AF_INET, &sa)
	client, server, _ := connected(t, unix.AF_INET, ln, &sa)
	r, w, e := Pipe()
	noErrno(t, "pipe2", e)
	defer Close(r)
	defer Close(w)
	if size, e := Fcntl(w, unix.F_GETPIPE_SZ, 0); e != 0 || size < 4096 {
		t.Errorf("F_GETPIPE_SZ: %d, %v", size, e)
	}
	if n, e := Splice(server, w, 1000, 0); e != unix.EAGAIN || n != 0 {
		t.Errorf("splice of nothing: %d, %v", n, e)
	}
	want := bytes.Repeat([]byte("spliced "), 100)
	if n, e := Send(client, want, 0); e != 0 || n != len(want) {
		t.Fatalf("send: %d, %v", n, e)
	}
	var n int
	for start := time.Now(); n == 0 && time.Since(start) < 30*time.Second; {
		n, _ = Splice(server, w, 10_000, 0)
	}
	if n != len(want) {
		t.Fatalf("splice into the pipe: %d", n)
	}
	if n, e = Splice(r, server, n, 0); e != 0 || n != len(want) {
		t.Fatalf("splice out of the pipe: %d, %v", n, e)
	}
	got := make([]byte, 10_000)
	for n, e = Recv(client, got); e == unix.EAGAIN; {
		n, e = Recv(client, got)
	}
	if !bytes.Equal(got[:n], want) {
		t.Errorf("%d bytes came back", n)
	}
}

func TestEpoll(t *testing.T) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	ev, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ev)
	const data = 0xfedcba9876543210
	noErrno(t, "epoll_ctl", EpollCtl(int32(ep), unix.EPOLL_CTL_ADD, int32(ev), unix.EPOLLIN|unix.EPOLLET&(1<<32-1), data))
	if e := EpollCtl(int32(ep), unix.EPOLL_CTL_ADD, int32(ev), unix.EPOLLIN, data); e != unix.EEXIST {
		t.Errorf("added twice: %v", e)
	}
	evs := make([]unix.EpollEvent, 4)
	for name, wait := range map[string]func(int32, []unix.EpollEvent, int) (int, unix.Errno){"raw": EpollWaitRaw, "blocking": EpollWait} {
		if n, e := wait(int32(ep), evs, 0); n != 0 || e != 0 {
			t.Errorf("%s: %d events before any, %v", name, n, e)
		}
		// Each Wake is an edge of its own, read or not.
		Wake(int32(ev))
		if n, e := wait(int32(ep), evs, 1000); n != 1 || e != 0 || EventData(&evs[0]) != data || evs[0].Events != unix.EPOLLIN {
			t.Errorf("%s: %d events, %v, %#x", name, n, e, EventData(&evs[0]))
		}
	}
	noErrno(t, "epoll_ctl", EpollCtl(int32(ep), unix.EPOLL_CTL_DEL, int32(ev), 0, 0))
	Wake(int32(ev))
	if n, _ := EpollWaitRaw(int32(ep), evs, 0); n != 0 {
		t.Error("an event of a descriptor that was removed")
	}
}

// Descriptors that are closed, or were never open, are errors.
func TestBadDescriptor(t *testing.T) {
	buf := make([]byte, 1)
	var sa Sockaddr
	for name, call := range map[string]func() unix.Errno{
		"recv":        func() unix.Errno { _, e := Recv(-1, buf); return e },
		"send":        func() unix.Errno { _, e := Send(-1, buf, 0); return e },
		"send2":       func() unix.Errno { _, e := Send2(-1, buf, buf); return e },
		"splice":      func() unix.Errno { _, e := Splice(-1, -1, 1, 0); return e },
		"accept":      func() unix.Errno { _, e := Accept(-1, &sa); return e },
		"connect":     func() unix.Errno { return Connect(-1, &sa) },
		"bind":        func() unix.Errno { return Bind(-1, &sa) },
		"getsockname": func() unix.Errno { return Getsockname(-1, &sa) },
		"SO_ERROR":    func() unix.Errno { return SocketError(-1) },
		"shutdown":    func() unix.Errno { return ShutdownWrite(-1) },
		"close":       func() unix.Errno { return Close(-1) },
		"fcntl":       func() unix.Errno { _, e := Fcntl(-1, unix.F_GETFD, 0); return e },
		"linger":      func() unix.Errno { return SetLinger(-1, 0) },
		"epoll_ctl":   func() unix.Errno { return EpollCtl(-1, unix.EPOLL_CTL_ADD, -1, 0, 0) },
		"epoll_wait":  func() unix.Errno { _, e := EpollWait(-1, make([]unix.EpollEvent, 1), 0); return e },
	} {
		if e := call(); e != unix.EBADF {
			t.Errorf("%s: %v", name, e)
		}
	}
}
