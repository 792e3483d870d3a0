package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// Handler is told what happens to a Conn.
type Handler interface {
	// OnConnect is called once after Connect; errno is 0 on success.
	OnConnect(c *Conn, errno unix.Errno)
	// OnData brings bytes while the Conn is reading, and once after a Flow of
	// known length if the last read brought more than the Flow took. p is
	// valid during the call.
	OnData(c *Conn, p []byte)
	// OnEOF is called once while the Conn is reading, when the peer has
	// finished writing.
	OnEOF(c *Conn)
	// OnSent is called when output that had to wait is gone, unless a Flow
	// into the Conn goes on with it.
	OnSent(c *Conn)
	// OnError is called when the connection is broken: a read or write failed,
	// or the peer reset it. The Conn is still open and must be closed.
	OnError(c *Conn, errno unix.Errno)
	// OnFlow is called when a Flow has ended: by its length, or by the end of
	// its source's stream (f.EOF() reports which).
	OnFlow(f *Flow)
}

const (
	flagReadable   uint32 = 1 << iota // a read may bring something
	flagWritable                      // a write may be taken
	flagHangup                        // EPOLLHUP or EPOLLERR was seen
	flagRDHUP                         // the peer's FIN has arrived
	flagDrained                       // all before the FIN has been read
	flagUrgent                        // urgent data: a short read proves nothing
	flagReading                       // the handler wants OnData
	flagConnecting                    // connect is under way
	flagQueued                        // in the run list
	flagShutdown                      // FIN wanted once the output is gone
	flagFailed                        // failure kept for OnError
	flagWaiting                       // output had to wait: OnSent is due
	flagReported                      // the failure has been reported
	flagDistrust                      // a short read proves nothing here
	flagUnsent                        // nothing has been written, TCP_NODELAY not set
	flagNagle                         // one write has been made without TCP_NODELAY
	// Of io_uring:
	flagEnded  // OnEOF or the end of a flow has been reported
	flagBulk   // reads are larger than the ring's buffers
	flagPolled // a poll has told of input, which no splice has brought yet
)

// readsPerTurn bounds the reads of one connection in one turn.
const readsPerTurn = 4

// Conn is a stream socket of a Loop. It is made part of what owns it (a
// session) and reused with it; the zero value is closed.
type Conn struct {
	loop *Loop
	h    Handler
	next *Conn // run list
	in   *Flow // the flow that reads from this connection
	out  *Flow // the flow that writes to it
	pend queue // output that could not be written yet

	flushed int64 // when waiting output last moved, in the loop's time
	fd      int32
	slot    uint32
	gen     uint32
	// readSize bounds one read in bytes; 0 means the loop's.
	readSize int32
	flags    uint32
	errno    shortErrno
	opened   bool
	// later is 1 + the index of what has been put off in the loop's list.
	later uint8
	uring uringConn
}

// shortErrno is a unix.Errno in the two bytes that are enough for one.
type shortErrno uint16

// IsOpen reports whether the connection has a descriptor.
func (c *Conn) IsOpen() bool { return c.opened }

// FD returns the descriptor, which stays the connection's.
func (c *Conn) FD() int32 { return c.fd }

// SetReadSize bounds one read in bytes, at most MaxBufferSize; 0 means
// Options.BufferSize.
func (c *Conn) SetReadSize(n int) { c.readSize = int32(min(max(n, 0), MaxBufferSize)) }

// DistrustShortReads has every read repeated until the socket says that it is
// empty. It is for Unix sockets, where a read also ends in front of descriptors
// that the peer passes (unix(7)).
func (c *Conn) DistrustShortReads() { c.flags |= flagDistrust }

// SetHandler gives the connection to another handler.
func (c *Conn) SetHandler(h Handler) { c.h = h }

// Open makes c the owner of an accepted, non-blocking socket and registers it.
// On failure the descriptor is closed and the errno returned.
func (l *Loop) Open(c *Conn, fd int32, h Handler) unix.Errno {
	return l.register(c, fd, h, flagWritable)
}

func (l *Loop) register(c *Conn, fd int32, h Handler, flags uint32) unix.Errno {
	errno := l.adopt(c, fd, h, flags)
	if errno != 0 {
		sys.Close(fd)
	}
	return errno
}

// adopt is register without closing the descriptor on failure.
func (l *Loop) adopt(c *Conn, fd int32, h Handler, flags uint32) unix.Errno {
	slot, gen := l.table.take(sourceConn, c)
	if l.ring == nil {
		if errno := sys.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, fd, connEvents, eventData(slot, gen)); errno != 0 {
			l.table.release(slot)
			return errno
		}
	}
	queued, listed := c.flags&flagQueued, c.uring.armed&uringTouched
	next := c.next
	*c = Conn{loop: l, h: h, fd: fd, slot: slot, gen: gen, flags: flags | queued, next: next, opened: true}
	c.uring.armed = listed
	l.touch(c)
	l.conns++
	return 0
}

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
		family = unix.AF_INET
		if ip := t.Addr.Addr(); !ip.Is4() && !ip.Is4In6() {
			family = unix.AF_INET6
		}
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
		l.run.push(c)
	case l.ring != nil:
		l.ring.connect(c, &l.sa)
	}
	return "", 0
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

// LocalAddr returns the local address of the connection, getsockname(2); that
// of a closed one is the zero AddrPort.
func (c *Conn) LocalAddr() netip.AddrPort {
	if !c.opened {
		return netip.AddrPort{}
	}
	sa := &c.loop.sa
	if sys.Getsockname(c.fd, sa) != 0 {
		return netip.AddrPort{}
	}
	return sa.AddrPort()
}

// Close closes the connection at once and drops its pending output. Its flows
// end without OnFlow. Closing a closed connection does nothing.
func (c *Conn) Close() {
	if !c.opened {
		return
	}
	c.writePutOff()
	l := c.loop
	if c.in != nil {
		c.in.detach()
	}
	if c.out != nil {
		c.out.detach()
	}
	if l.ring != nil {
		l.ring.closeConn(c)
	} else {
		sys.Close(c.fd)
	}
	l.table.release(c.slot)
	c.forget()
}

// forget makes c a closed connection; its descriptor and its place in the table
// have been seen to.
func (c *Conn) forget() {
	c.pend.release(&c.loop.chunks)
	c.loop.conns--
	c.opened, c.fd, c.gen, c.h = false, -1, 0, nil
	c.flags &= flagQueued
	c.uring = uringConn{armed: c.uring.armed & uringTouched}
}

// Reset closes the connection with a RST instead of a FIN, SO_LINGER of
// socket(7).
func (c *Conn) Reset() {
	if c.opened {
		sys.SetLinger(c.fd, 0)
		c.Close()
	}
}

// StartRead asks for OnData and OnEOF.
func (c *Conn) StartRead() {
	c.flags |= flagReading
	if c.flags&(flagReadable|flagDrained) != 0 {
		c.loop.run.push(c)
	}
	if c.opened {
		c.loop.touch(c)
	}
}

// StopRead asks for no more OnData and OnEOF; what comes waits in the socket.
func (c *Conn) StopRead() { c.flags &^= flagReading }

// Pending returns how many bytes of output wait.
func (c *Conn) Pending() int {
	c.writePutOff()
	return c.pend.length
}

// Backlog returns how many bytes of output the socket had no room for. Unlike
// Pending it does not count, nor write at once, what goes out at the end of the
// turn.
func (c *Conn) Backlog() int { return c.pend.length }

// Flushed returns the loop's time, in milliseconds, when output that had to
// wait last moved.
func (c *Conn) Flushed() int64 { return c.flushed }

// Unsent returns how many bytes of output the peer has not acknowledged: those
// pending here, and those in the socket's send buffer.
func (c *Conn) Unsent() int {
	if !c.opened {
		return 0
	}
	c.writePutOff()
	return c.pend.length + sys.Unsent(c.fd)
}

// Blocked reports whether output waits for the peer to read, be it pending or
// in the pipe of a flow.
func (c *Conn) Blocked() bool {
	c.writePutOff()
	return c.blocked()
}

// blocked is Blocked without making the write that has been put off.
func (c *Conn) blocked() bool { return c.pend.length > 0 || c.out != nil && c.out.inPipe > 0 }

// HangupSeen reports whether the peer has closed or reset its side, as far as
// events have told.
func (c *Conn) HangupSeen() bool { return c.flags&(flagRDHUP|flagHangup|flagFailed) != 0 }

// Write writes p, keeping a copy of what the socket does not take. A small p is
// copied and written at the end of the turn.
func (c *Conn) Write(p []byte) {
	if len(p) <= laterMax && c.canSend() {
		c.putOff(p, nil)
		return
	}
	c.writePutOff()
	c.writeNow(p)
}

func (c *Conn) writeNow(p []byte) {
	if !c.canSend() {
		c.hold(p)
		return
	}
	c.endNagle()
	n, errno := sys.Send(c.fd, p, 0)
	if errno != 0 && !c.sendFailed(errno) {
		return
	}
	if n == len(p) {
		return
	}
	if errno == 0 {
		c.flags &^= flagWritable
	}
	c.hold(p[n:])
}

// Write2 writes a and then b.
func (c *Conn) Write2(a, b []byte) {
	if len(a)+len(b) <= laterMax && c.canSend() {
		c.putOff(a, b)
		return
	}
	c.writePutOff()
	if !c.canSend() {
		c.hold(a)
		c.hold(b)
		return
	}
	c.endNagle()
	n, errno := sys.Send2(c.fd, a, b)
	if errno != 0 && !c.sendFailed(errno) {
		return
	}
	if n == len(a)+len(b) {
		return
	}
	if errno == 0 {
		c.flags &^= flagWritable
	}
	if n < len(a) {
		c.hold(a[n:])
		n = len(a)
	}
	c.hold(b[n-len(a):])
}

// endNagle is called before each write. It sets TCP_NODELAY when the socket is
// still without it and something small may be in flight.
func (c *Conn) endNagle() {
	switch {
	case c.flags&flagUnsent != 0:
		c.flags = c.flags&^flagUnsent | flagNagle
	case c.flags&flagNagle != 0:
		c.flags &^= flagNagle
		sys.SetInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
}

// canSend reports whether a write may be tried: nothing waits before it.
func (c *Conn) canSend() bool {
	return c.flags&(flagWritable|flagFailed) == flagWritable && c.pend.length == 0 && (c.out == nil || c.out.inPipe == 0)
}

// sendFailed handles the errno of a send; true means that it may be tried
// again: when the socket has room, or in the next turn.
func (c *Conn) sendFailed(errno unix.Errno) bool {
	switch errno {
	case unix.EAGAIN:
		c.flags &^= flagWritable
		c.loop.touch(c)
	case unix.EINTR:
		c.loop.run.push(c)
	default:
		c.fail(errno)
		return false
	}
	return true
}

// hold keeps p until the socket takes it. A broken or closed connection keeps
// nothing.
func (c *Conn) hold(p []byte) {
	if len(p) == 0 || c.flags&flagFailed != 0 || !c.opened {
		return
	}
	c.flags |= flagWaiting
	c.pend.append(&c.loop.chunks, p)
	c.loop.touch(c)
}

// fail remembers a failure; OnError is called from the run list, not from
// within the handler's own call.
func (c *Conn) fail(errno unix.Errno) {
	if c.flags&flagFailed != 0 {
		return
	}
	c.flags |= flagFailed
	c.errno = shortErrno(errno)
	c.loop.run.push(c)
}

// NotifySent has OnSent called by the loop when no output waits, which may be
// at once.
func (c *Conn) NotifySent() {
	c.flags |= flagWaiting
	c.loop.run.push(c)
}

// Shutdown sends a FIN after all output that waits. A Flow into the connection
// must have ended.
func (c *Conn) Shutdown() {
	c.writePutOff()
	if c.pend.length > 0 {
		c.flags |= flagShutdown
		return
	}
	c.flags &^= flagShutdown
	sys.ShutdownWrite(c.fd)
}

// event takes the readiness that epoll or a poll request of the ring reports.
func (c *Conn) event(ev uint32) {
	if ev&unix.EPOLLPRI != 0 {
		c.flags |= flagUrgent
	}
	if ev&unix.EPOLLIN != 0 {
		c.flags |= flagReadable
	}
	if ev&unix.EPOLLRDHUP != 0 {
		c.flags |= flagReadable | flagRDHUP
	}
	if ev&unix.EPOLLOUT != 0 {
		c.flags |= flagWritable
	}
	if ev&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.flags |= flagReadable | flagWritable | flagHangup
	}
	c.process()
}

// process does what readiness and wishes allow now.
func (c *Conn) process() {
	c.loop.touch(c)
	if c.flags&flagConnecting != 0 {
		if c.flags&flagWritable != 0 {
			c.connected()
		}
		return
	}
	c.writePutOff()
	if c.flags&flagFailed != 0 {
		c.report()
		return
	}
	gen := c.gen
	if c.flags&flagWritable != 0 && (c.flags&flagWaiting != 0 || c.out != nil && c.out.inPipe > 0) {
		c.flush()
		// A write that failed has taken the socket's error: a read would now
		// make an end of the stream of a reset.
		if c.gen != gen || c.flags&flagFailed != 0 {
			return
		}
	}
	switch {
	case c.flags&(flagReadable|flagDrained) == 0:
	case c.in != nil && c.flags&flagHangup != 0 && c.in.blocked():
		// Nothing can be read that would tell; a reset need not wait for the
		// other side.
		c.hungUp()
	case c.in != nil:
		c.in.pump()
	case c.flags&flagReading != 0:
		c.read()
	case c.flags&flagHangup != 0:
		// Nobody reads, so nobody would notice that the peer is gone.
		c.hungUp()
	}
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
		c.loop.run.push(c)
	}
	c.h.OnConnect(c, errno)
}

// report calls OnError for the remembered failure, once.
func (c *Conn) report() {
	if c.uring.armed&uringRecv != 0 {
		// What it brings comes before the failure.
		c.loop.ring.cancelRecv(c)
		return
	}
	if c.flags&flagReported == 0 {
		c.flags |= flagReported
		c.h.OnError(c, unix.Errno(c.errno))
	}
}

// hungUp looks into EPOLLHUP and EPOLLERR. EPOLLHUP alone also comes when both
// directions were closed in order, which is not an error.
func (c *Conn) hungUp() {
	errno := unix.Errno(c.uring.late)
	c.uring.late = 0
	if errno == 0 {
		errno = sys.SocketError(c.fd)
	}
	c.flags &^= flagHangup
	if errno != 0 {
		c.fail(errno)
	}
}

// read brings data to the handler.
func (c *Conn) read() {
	gen := c.gen
	for range readsPerTurn {
		if c.flags&flagDrained != 0 {
			c.eof()
			return
		}
		p, errno := c.recv()
		if errno != 0 {
			c.recvFailed(errno)
			return
		}
		if len(p) == 0 {
			c.eof()
			return
		}
		c.h.OnData(c, p)
		if c.gen != gen || c.flags&flagFailed != 0 || c.flags&(flagReadable|flagDrained) == 0 {
			return
		}
		if c.in != nil || c.flags&flagReading == 0 {
			break
		}
	}
	if c.in != nil || c.flags&flagReading != 0 {
		c.loop.run.push(c)
	}
}

func (c *Conn) eof() {
	c.flags &^= flagReading | flagReadable | flagDrained
	c.flags |= flagEnded
	c.h.OnEOF(c)
}

// readLimit returns the size in bytes of one read.
func (c *Conn) readLimit() int {
	if c.readSize != 0 {
		return int(c.readSize)
	}
	return c.loop.readSize
}

// recv reads once into the shared buffer. A read that does not fill it has
// emptied the socket: what comes later raises a new event. If the FIN had
// already arrived, it is next, and no further read is needed to see it.
func (c *Conn) recv() ([]byte, unix.Errno) {
	size := c.readLimit()
	if c.loop.ring != nil {
		return c.recvRing(size)
	}
	buf := c.loop.buf[:size]
	n, errno := sys.Recv(c.fd, buf)
	if errno != 0 {
		return nil, errno
	}
	if n < len(buf) && n > 0 && c.flags&(flagUrgent|flagDistrust|flagHangup) == 0 {
		c.flags &^= flagReadable
		if c.flags&flagRDHUP != 0 {
			c.flags |= flagDrained
		}
	}
	return buf[:n], 0
}

func (c *Conn) recvFailed(errno unix.Errno) {
	switch errno {
	case unix.EAGAIN:
		c.flags &^= flagReadable
	case unix.EINTR:
		c.loop.run.push(c)
	default:
		c.flags &^= flagReadable
		c.fail(errno)
	}
}

// flush writes what waits; when all is gone the source of the flow goes on, or
// the handler is told. A pipe is filled only while nothing is pending, so that
// what is pending beside it came later.
func (c *Conn) flush() {
	if c.out != nil && c.out.inPipe > 0 && !c.out.emptyPipe() {
		return
	}
	for c.pend.length > 0 {
		c.endNagle()
		k := c.pend.first()
		n, errno := sys.Send(c.fd, k.bytes(), 0)
		if errno != 0 {
			c.sendFailed(errno)
			return
		}
		c.flushed = c.loop.nowMS
		full := n == k.end-k.off
		c.pend.consume(&c.loop.chunks, n)
		if !full {
			c.flags &^= flagWritable
			return
		}
	}
	if c.flags&flagShutdown != 0 {
		c.Shutdown()
	}
	waiting := c.flags&flagWaiting != 0
	c.flags &^= flagWaiting
	if f := c.out; f != nil {
		f.resume()
	} else if waiting {
		c.h.OnSent(c)
	}
}
