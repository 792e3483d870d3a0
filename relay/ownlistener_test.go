package relay

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

func TestListenTCP(t *testing.T) { eachEngine(t, testListenTCP) }

// testListenTCP opens a listener twice, as sessions that are reused do.
func testListenTCP(t *testing.T) {
	l := newTestLoop(t, Options{})
	var s Listener
	var a acceptor
	t.Cleanup(a.closeAll)
	for round := range 2 {
		prepared := false
		op, errno := l.ListenTCP(&s, netip.MustParseAddrPort("127.0.0.1:0"), 1, func(fd int32) unix.Errno {
			prepared = true
			return sys.SetInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}, &a)
		if errno != 0 || !prepared {
			t.Fatalf("%s: %v", op, errno)
		}
		if n := l.Descriptors(); n != 1 {
			t.Errorf("%d descriptors", n)
		}
		local := s.LocalAddr()
		dialMany(t, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}, 1)
		l.until("a connection", func() bool { return len(a.fds) == round+1 })
		if v, err := unix.GetsockoptInt(int(a.fds[round]), unix.IPPROTO_TCP, unix.TCP_NODELAY); err != nil || v == 0 {
			t.Errorf("TCP_NODELAY is %d, %v", v, err)
		}
		s.Close()
		s.Close()
		if n := l.Descriptors(); n != 0 || s.Active() {
			t.Errorf("%d descriptors after Close", n)
		}
		if fd, err := dialTCP(&unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}); err == nil {
			unix.Close(fd)
			t.Error("connected after Close")
		}
	}
}

func TestListenTCPFails(t *testing.T) { eachEngine(t, testListenTCPFails) }

func testListenTCPFails(t *testing.T) {
	l := newTestLoop(t, Options{})
	var s Listener
	for _, c := range []struct {
		local   string
		prepare func(fd int32) unix.Errno
		op      string
		errno   unix.Errno
	}{
		{"192.0.2.1:0", nil, "bind", unix.EADDRNOTAVAIL},
		{"127.0.0.1:0", func(int32) unix.Errno { return unix.EINVAL }, "setsockopt", unix.EINVAL},
	} {
		op, errno := l.ListenTCP(&s, netip.MustParseAddrPort(c.local), 1, c.prepare, &acceptor{})
		if op != c.op || errno != c.errno {
			t.Errorf("%s: %s, %v", c.local, op, errno)
		}
		s.Close()
	}
}
