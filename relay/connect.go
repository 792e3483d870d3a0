package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// Target is where Connect connects to, and how. Addr or Unix is set.
type Target struct {
	Addr netip.AddrPort
	Unix string
	// Source is the local address to connect from; the zero Addr leaves the
	// choice to the kernel.
	Source netip.Addr
	// NoDelay has TCP_NODELAY set, before the second write: the first is never
	// held back, and most short connections make no second (tcp(7)).
	NoDelay bool
	// Prepare is called with the descriptor before connect(2), to set socket
	// options; it may be nil.
	Prepare func(fd int32) unix.Errno
}

// Connect opens a socket and starts to connect it; OnConnect tells the
// outcome. When nothing could be started, c stays closed and the errno says
// why (op names the call that failed).
func (l *Loop) Connect(c *Conn, t *Target, h Handler) (op string, errno unix.Errno) {
	family := unix.AF_UNIX
	if t.Unix != "" {
		if !l.sa.SetUnix(t.Unix) {
			return "connect", unix.ENAMETOOLONG
		}
	} else {
		family = familyOf(t.Addr.Addr())
	}
	fd, errno := sys.Socket(family)
	if errno != 0 {
		return "socket", errno
	}
	if op, errno = l.prepare(fd, t); errno == 0 {
		// The ring connects TCP with its next submission; a Unix socket does not
		// wait for its peer.
		op, errno = "connect", unix.EINPROGRESS
		if l.ring == nil || t.Unix != "" {
			errno = sys.Connect(fd, &l.sa)
		}
	}
	// A Unix socket whose queue is full says EAGAIN and is not connecting.
	if errno != 0 && errno != unix.EINPROGRESS {
		sys.Close(fd)
		return op, errno
	}
	flags := flagConnecting
	started := errno == unix.EINPROGRESS
	if !started {
		flags |= flagWritable
	}
	switch {
	case t.Unix != "":
		flags |= flagDistrust
	case t.NoDelay:
		flags |= flagUnsent
	}
	if errno := l.register(c, fd, h, flags); errno != 0 {
		return "epoll_ctl", errno
	}
	switch {
	case !started:
		c.enqueue()
	case l.ring != nil:
		l.ring.connect(c, &l.sa)
	}
	return "", 0
}

func familyOf(ip netip.Addr) int {
	if ip.Is4() || ip.Is4In6() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// prepare sets the options and the source address of a new socket and leaves
// the target's address in l.sa.
func (l *Loop) prepare(fd int32, t *Target) (op string, errno unix.Errno) {
	if t.Prepare != nil {
		if errno := t.Prepare(fd); errno != 0 {
			return "setsockopt", errno
		}
	}
	if t.Unix != "" {
		return "", 0
	}
	if t.Source.IsValid() {
		// Without the option bind(2) would take a port for good and so limit
		// the connections to the number of ports, not of port pairs (ip(7)).
		sys.SetInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		l.sa.Set(netip.AddrPortFrom(t.Source, 0))
		if errno := sys.Bind(fd, &l.sa); errno != 0 {
			return "bind", errno
		}
	}
	l.sa.Set(t.Addr)
	return "", 0
}

func (c *Conn) connected() {
	c.flags &^= flagConnecting
	errno := unix.Errno(c.uring.late)
	c.uring.late = 0
	if errno == 0 && c.flags&flagHangup != 0 {
		errno = sys.SocketError(c.fd)
	}
	if errno != 0 {
		c.flags |= flagReported
	} else if c.flags&flagWaiting != 0 || c.out != nil && c.out.inPipe > 0 {
		// What was written before now has no event of its own to wait for.
		c.enqueue()
	}
	c.h.OnConnect(c, errno)
}
