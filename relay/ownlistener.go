package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// ListenTCP opens a socket that listens on local, whose port may be 0, and
// accepts from it. s owns the descriptor until Close, and the loop counts it
// (Descriptors). prepare, which may be nil, is called before bind(2) to set
// socket options, which accepted sockets inherit. On failure s has no socket and
// op names the call that failed.
func (l *Loop) ListenTCP(s *Listener, local netip.AddrPort, backlog int, prepare func(fd int32) unix.Errno, h AcceptHandler) (op string, errno unix.Errno) {
	family := unix.AF_INET6
	if local.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, errno := sys.Socket(family)
	if errno != 0 {
		return "socket", errno
	}
	if op, errno = l.bindAndListen(fd, local, backlog, prepare); errno == 0 {
		op, errno = "epoll_ctl", l.Listen(s, fd, false, h)
	}
	if errno != 0 {
		sys.Close(fd)
		return op, errno
	}
	s.owned = true
	l.conns++
	return "", 0
}

func (l *Loop) bindAndListen(fd int32, local netip.AddrPort, backlog int, prepare func(fd int32) unix.Errno) (op string, errno unix.Errno) {
	if prepare != nil {
		if errno = prepare(fd); errno != 0 {
			return "setsockopt", errno
		}
	}
	l.sa.Set(local)
	if errno = sys.Bind(fd, &l.sa); errno != 0 {
		return "bind", errno
	}
	return "listen", sys.Listen(fd, backlog)
}

// LocalAddr returns the address of the listening socket, getsockname(2).
func (s *Listener) LocalAddr() netip.AddrPort {
	if sys.Getsockname(s.fd, &s.loop.sa) != 0 {
		return netip.AddrPort{}
	}
	return s.loop.sa.AddrPort()
}

// Close stops accepting and closes a socket that ListenTCP has opened; what
// waits in its queue is reset. Closing a closed listener does nothing.
func (s *Listener) Close() {
	if !s.owned {
		return
	}
	s.Pause()
	sys.Close(s.fd)
	s.loop.conns--
	s.fd, s.owned = -1, false
}
