package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// PacketHandler is told what happens to a PacketConn.
type PacketHandler interface {
	// OnPackets brings datagrams in the order of their arrival. They, and the
	// slice, are valid during the call.
	OnPackets(c *PacketConn, packets []Packet)
	// OnPacketError reports an errno that a call on the socket has returned: of
	// a connected one, what ICMP says of its peer (ECONNREFUSED: nobody has the
	// port). The socket stays open and goes on.
	OnPacketError(c *PacketConn, errno unix.Errno)
}

// Path is the two ends of a datagram. It is comparable.
type Path struct {
	// Peer is the other side: the source of what was received, the destination
	// of what is sent. The zero AddrPort is the peer of a connected socket.
	Peer netip.AddrPort
	// Local is the address on this side, if the socket tells
	// (PacketOptions.Local); what is sent comes from it. The zero Addr leaves
	// the choice to the kernel.
	Local netip.Addr
	// Scope is the index of the interface of a link-local peer, 0 of any other.
	Scope uint32
}

// Packet is a datagram that has been received. v4-mapped addresses are IPv4
// ones.
type Packet struct {
	Path
	Data []byte
	// Truncated says that the datagram was larger than Data.
	Truncated bool
}

// PacketOptions says what kind of socket a PacketConn gets.
type PacketOptions struct {
	// Local has the local address of each datagram told (IP_PKTINFO of ip(7),
	// IPV6_RECVPKTINFO of ipv6(7)): for sockets that are bound to a wildcard
	// address, whose answers must come from the address that was asked.
	Local bool
	// Shared says that other processes have the socket, so that closing the
	// descriptor would not take it out of the epoll set (epoll(7)).
	Shared bool
	// Borrowed says that Close leaves the descriptor open.
	Borrowed bool
}

// packetEvents are those of a PacketConn, edge-triggered.
const packetEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET&(1<<32-1)

const (
	packetReadable uint16 = 1 << iota // a receive may bring something
	packetBlocked                     // the socket has no room for output
	packetPaused                      // the handler wants no datagrams
	packetQueued                      // in the run list
	packetBorrowed                    // the descriptor is not the PacketConn's
	packetShared                      // other processes have the socket
	packetOpen
	packetPolled     // of io_uring: a poll for input is under way
	packetRoomPolled // of io_uring: a poll for room is under way
)

// PacketConn is a datagram socket of a Loop, bound, connected or both. It is
// made part of what owns it and reused with it; the zero value is closed.
type PacketConn struct {
	loop *Loop
	h    PacketHandler
	// held is output that the socket had no room for.
	held *heldPackets

	fd   int32
	slot uint32
	gen  uint32
	// first and last are 1 + the indices of the datagrams that will be sent at
	// the end of the turn.
	first, last int32
	errno       shortErrno
	flags       uint16
}

// IsOpen reports whether the socket is open.
func (c *PacketConn) IsOpen() bool { return c.flags&packetOpen != 0 }

// FD returns the descriptor, which stays where it is.
func (c *PacketConn) FD() int32 { return c.fd }

// OpenPacket registers a non-blocking datagram socket and starts to receive
// from it. c owns the descriptor unless it is borrowed; on failure an owned one
// is closed and the errno returned.
func (l *Loop) OpenPacket(c *PacketConn, fd int32, o PacketOptions, h PacketHandler) unix.Errno {
	errno := l.openPacket(c, fd, o, h)
	if errno != 0 && !o.Borrowed {
		sys.Close(fd)
	}
	return errno
}

func (l *Loop) openPacket(c *PacketConn, fd int32, o PacketOptions, h PacketHandler) unix.Errno {
	if errno := l.packets.open(); errno != 0 {
		return errno
	}
	if o.Local {
		if errno := tellLocal(fd); errno != 0 {
			return errno
		}
	}
	queued := c.flags & packetQueued
	*c = PacketConn{loop: l, h: h, fd: fd, flags: packetOpen | queued}
	if o.Borrowed {
		c.flags |= packetBorrowed
	}
	if o.Shared {
		c.flags |= packetShared
	}
	if errno := c.enter(); errno != 0 {
		c.flags = queued
		return errno
	}
	if !o.Borrowed {
		l.conns++
	}
	return 0
}

// tellLocal has the local address of each datagram told. An IPv6 socket that
// takes IPv4 as well tells both by the one option.
func tellLocal(fd int32) unix.Errno {
	if errno := sys.SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); errno == 0 {
		return 0
	}
	return sys.SetInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
}

// enter takes a place in the loop's table and has the kernel report events.
func (c *PacketConn) enter() unix.Errno {
	l := c.loop
	c.slot, c.gen = l.table.takePacket(c)
	if l.ring != nil {
		l.ring.pollPacket(c)
		return 0
	}
	errno := sys.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, c.fd, packetEvents, eventData(c.slot, c.gen))
	if errno != 0 {
		l.table.release(c.slot)
	}
	return errno
}

// DialPacket opens a UDP socket that is connected to t.Addr, so that it takes
// datagrams from there only; Source and Prepare are as for Connect. On failure
// c stays closed and op names the call that failed.
func (l *Loop) DialPacket(c *PacketConn, t *Target, h PacketHandler) (op string, errno unix.Errno) {
	fd, errno := sys.DatagramSocket(familyOf(t.Addr.Addr()))
	if errno != 0 {
		return "socket", errno
	}
	if op, errno = l.prepare(fd, t); errno == 0 {
		op, errno = "connect", sys.Connect(fd, &l.sa)
	}
	if errno != 0 {
		sys.Close(fd)
		return op, errno
	}
	if errno = l.OpenPacket(c, fd, PacketOptions{}, h); errno != 0 {
		return "epoll_ctl", errno
	}
	return "", 0
}

// ListenPacket opens a UDP socket bound to local, whose port may be 0; prepare,
// which may be nil, is called before bind(2) to set socket options. On failure c
// stays closed and op names the call that failed.
func (l *Loop) ListenPacket(c *PacketConn, local netip.AddrPort, prepare func(fd int32) unix.Errno, h PacketHandler) (op string, errno unix.Errno) {
	fd, errno := sys.DatagramSocket(familyOf(local.Addr()))
	if errno != 0 {
		return "socket", errno
	}
	if prepare != nil {
		op, errno = "setsockopt", prepare(fd)
	}
	if errno == 0 {
		l.sa.Set(local)
		op, errno = "bind", sys.Bind(fd, &l.sa)
	}
	if errno != 0 {
		sys.Close(fd)
		return op, errno
	}
	if errno = l.OpenPacket(c, fd, PacketOptions{Local: local.Addr().IsUnspecified()}, h); errno != 0 {
		return "epoll_ctl", errno
	}
	return "", 0
}

// LocalAddr returns the address the socket is bound to, getsockname(2); that of
// a closed one is the zero AddrPort.
func (c *PacketConn) LocalAddr() netip.AddrPort {
	if !c.IsOpen() {
		return netip.AddrPort{}
	}
	return c.loop.localAddr(c.fd)
}

// Pause has no more datagrams delivered; they wait in the socket, whose other
// holders may take them. Output goes on.
func (c *PacketConn) Pause() {
	if c.flags&(packetOpen|packetPaused) != packetOpen {
		return
	}
	c.flags |= packetPaused
	if c.loop.ring != nil {
		c.loop.ring.cancelPacket(c)
		return
	}
	c.changeEvents(packetEvents &^ unix.EPOLLIN)
}

// Resume ends Pause.
func (c *PacketConn) Resume() {
	if c.flags&(packetOpen|packetPaused) != packetOpen|packetPaused {
		return
	}
	c.flags = c.flags&^packetPaused | packetReadable
	if c.loop.ring == nil {
		c.changeEvents(packetEvents)
	}
	c.enqueue()
}

func (c *PacketConn) changeEvents(events uint32) {
	sys.EpollCtl(c.loop.epfd, unix.EPOLL_CTL_MOD, c.fd, events, eventData(c.slot, c.gen))
}

// Close sends what is due, drops what the socket has no room for, and closes
// the socket. Closing a closed one does nothing.
func (c *PacketConn) Close() {
	if !c.IsOpen() {
		return
	}
	fd, borrowed := c.fd, c.flags&packetBorrowed != 0
	if c.loop.ring == nil && c.flags&(packetBorrowed|packetShared) == 0 {
		// Closing the last descriptor takes it out of the epoll set.
		c.leave()
		sys.Close(fd)
		return
	}
	c.Detach()
	if !borrowed {
		sys.Close(fd)
	}
}

// Detach takes the socket out of the loop and leaves it open. It returns the
// descriptor, which is the caller's unless it was borrowed.
func (c *PacketConn) Detach() (fd int32) {
	l := c.loop
	fd = c.fd
	if l.ring != nil {
		l.ring.cancelPacket(c)
	} else {
		sys.EpollCtl(l.epfd, unix.EPOLL_CTL_DEL, fd, 0, 0)
	}
	c.leave()
	return fd
}

// leave makes c a closed socket; its descriptor is seen to elsewhere.
func (c *PacketConn) leave() {
	l := c.loop
	c.sendQueued()
	c.dropHeld()
	if c.flags&packetBorrowed == 0 {
		l.conns--
	}
	l.table.release(c.slot)
	c.fd, c.gen, c.h, c.errno = -1, 0, nil, 0
	c.flags &= packetQueued
}

// Drain delivers what waits in the socket, up to about limit datagrams. It is
// for a socket that is about to be given up, and must not be called from
// OnPackets.
func (c *PacketConn) Drain(limit int) {
	c.flags |= packetReadable
	for limit > 0 && c.IsOpen() && c.flags&packetReadable != 0 {
		c.receive()
		limit -= packetBatch
	}
}

// event takes the readiness that epoll or a poll request of the ring reports.
func (c *PacketConn) event(ev uint32) {
	if ev&unix.EPOLLOUT != 0 {
		c.flags &^= packetBlocked
	}
	if ev&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		c.flags |= packetReadable
	}
	if ev&unix.EPOLLHUP != 0 {
		// Another holder has shut the socket down, which then always has an
		// empty datagram to read.
		c.Pause()
		c.note(unix.ESHUTDOWN)
	}
	c.process()
}

// note keeps an errno that is reported from the run list, not from within the
// handler's own call.
func (c *PacketConn) note(errno unix.Errno) {
	if c.errno == 0 {
		c.errno = shortErrno(errno)
		c.enqueue()
	}
}

// process does what readiness and wishes allow now.
func (c *PacketConn) process() {
	gen := c.gen
	if c.flags&packetBlocked == 0 {
		c.sendHeld()
	}
	if errno := unix.Errno(c.errno); errno != 0 {
		c.errno = 0
		c.h.OnPacketError(c, errno)
		if c.gen != gen {
			return
		}
	}
	if c.flags&(packetReadable|packetPaused) == packetReadable {
		c.receive()
		if c.gen != gen {
			return
		}
	}
	if c.loop.ring != nil {
		c.loop.ring.pollPacket(c)
	}
}

// receive takes one batch of datagrams. A batch that is not full has emptied
// the socket: what arrives later is a new event.
func (c *PacketConn) receive() {
	l := c.loop
	q := &l.packets
	n, errno := q.in.Recv(c.fd)
	switch {
	case errno == unix.EAGAIN:
		c.flags &^= packetReadable
		return
	case errno != 0:
		// The error is taken; there may be datagrams behind it.
		c.enqueue()
		c.h.OnPacketError(c, errno)
		return
	case n < q.in.Len():
		c.flags &^= packetReadable
	default:
		c.enqueue()
	}
	for i := range n {
		p := &q.received[i]
		p.Peer, p.Scope = q.in.Source(i)
		p.Local = q.in.Local(i)
		p.Truncated = q.in.Truncated(i)
		p.Data = q.in.Take(i)
	}
	l.stats.PacketsIn += uint64(n)
	c.h.OnPackets(c, q.received[:n])
}
