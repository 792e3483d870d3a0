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
	flagEarly                         // the peer has sent something before the first write
	// Of io_uring:
	flagEnded  // OnEOF or the end of a flow has been reported
	flagBulk   // reads are larger than the ring's buffers
	flagPolled // a poll has told of input, which no splice has brought yet
	flagFirst  // the first write has not been made: what is received before is early
)

// Conn is a stream socket of a Loop. It is made part of what owns it (a
// session) and reused with it; the zero value is closed.
type Conn struct {
	loop *Loop
	h    Handler
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
	*c = Conn{loop: l, h: h, fd: fd, slot: slot, gen: gen, flags: flags | queued, opened: true}
	c.uring.armed = listed
	l.touch(c)
	l.conns++
	return 0
}

// LocalAddr returns the local address of the connection, getsockname(2); that
// of a closed one is the zero AddrPort.
func (c *Conn) LocalAddr() netip.AddrPort {
	if !c.opened {
		return netip.AddrPort{}
	}
	return c.loop.localAddr(c.fd)
}

// localAddr returns the local address of a socket, the zero AddrPort when there
// is none.
func (l *Loop) localAddr(fd int32) netip.AddrPort {
	if sys.Getsockname(fd, &l.sa) != 0 {
		return netip.AddrPort{}
	}
	return l.sa.AddrPort()
}

// Close closes the connection at once and drops its pending output. Its flows
// end without OnFlow. Closing a closed connection does nothing.
func (c *Conn) Close() {
	if !c.opened {
		return
	}
	c.writeLast()
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
		c.writePutOff()
		sys.SetLinger(c.fd, 0)
		c.Close()
	}
}

// HangupSeen reports whether the peer has closed or reset its side, as far as
// events have told.
func (c *Conn) HangupSeen() bool { return c.flags&(flagRDHUP|flagHangup|flagFailed) != 0 }

// fail remembers a failure; OnError is called from the run list, not from
// within the handler's own call.
func (c *Conn) fail(errno unix.Errno) {
	if c.flags&flagFailed != 0 {
		return
	}
	c.flags |= flagFailed
	c.errno = shortErrno(errno)
	c.enqueue()
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
