package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// What of a connection the ring has under way, and in which of its lists it is.
const (
	uringRecv      uint16 = 1 << iota // a receive
	uringPoll                         // a poll for input
	uringWatch                        // a poll for a hang-up
	uringRoom                         // a poll for room to write
	uringConnect                      // the connect
	uringCancelled                    // the receive is being cancelled
	uringWatched                      // EPOLLHUP has been seen, which does not go away
	uringUnwatched                    // in ring.unwatched
	uringTouched                      // in ring.touched

	uringRequests = uringRecv | uringPoll | uringWatch | uringRoom | uringConnect
)

// ringRequests has the bit of each request that a connection may have under
// way.
var ringRequests = [opSend]uint16{
	opRecv: uringRecv, opPoll: uringPoll, opWatch: uringWatch, opRoom: uringRoom, opConnect: uringConnect,
}

// uringConn is the part of a Conn that only the ring uses.
type uringConn struct {
	// held is what a receive has brought and nobody has wanted since.
	held *chunk
	// late is a failure that comes after the bytes received.
	late  shortErrno
	armed uint16
	// small counts the small reads in a row, up to smallStreak.
	small uint8
}

// touch has the ring look at what c wants before the next wait.
func (l *Loop) touch(c *Conn) {
	if l.ring != nil && c.uring.armed&uringTouched == 0 {
		c.uring.armed |= uringTouched
		l.ring.touched = append(l.ring.touched, c)
	}
}

// prepareTouched prepares what the touched connections want from the kernel.
func (r *ring) prepareTouched() {
	for _, c := range r.touched {
		c.uring.armed &^= uringTouched
		if c.opened {
			r.arm(c)
		}
	}
	clear(r.touched)
	r.touched = r.touched[:0]
}

// arm asks for what c waits for: input, room for output, or nothing but the
// news that its peer is gone. Every poll reports hang-ups as well, that of the
// peer's side included, which last; so those that may outlast one are
// edge-triggered.
func (r *ring) arm(c *Conn) {
	a := &c.uring.armed
	if c.flags&(flagConnecting|flagFailed) != 0 {
		return
	}
	if c.waitsForRoom() && *a&uringRoom == 0 {
		*a |= uringRoom
		r.room(1)
		r.PollMulti(c.fd, unix.EPOLLOUT, ringName(opRoom, c.slot, c.gen))
	}
	switch {
	case *a&(uringRecv|uringPoll) != 0:
	case !c.wantsInput():
		r.watchLater(c)
	case c.pollsInput():
		*a |= uringPoll
		r.room(1)
		r.Poll(c.fd, unix.EPOLLIN, ringName(opPoll, c.slot, c.gen))
	default:
		*a |= uringRecv
		r.room(1)
		r.recv(c)
	}
}

func (r *ring) recv(c *Conn) {
	n, name := min(c.readLimit(), ringBufferSize), ringName(opRecv, c.slot, c.gen)
	if c.flags&flagFirst != 0 {
		r.RecvNow(c.fd, n, r.buffers, name)
		return
	}
	r.Recv(c.fd, n, r.buffers, name)
}

// pollsInput reports whether input is polled for, to be spliced or read by a
// call, instead of received.
func (c *Conn) pollsInput() bool {
	return c.flags&flagUrgent == 0 && (c.flags&flagBulk != 0 || c.in != nil && c.in.splicing)
}

// waitsForRoom reports whether the socket has to take something before c goes
// on.
func (c *Conn) waitsForRoom() bool {
	return c.flags&flagWritable == 0 && c.blocked()
}

// wantsInput reports whether the next bytes are wanted, and are not here.
func (c *Conn) wantsInput() bool {
	if c.flags&(flagReadable|flagDrained|flagEnded) != 0 {
		return false
	}
	if c.in != nil {
		return !c.in.resting() && !c.in.blocked() && c.in.dst.flags&flagFailed == 0
	}
	return c.flags&flagReading != 0
}

// watchMS is how long a connection may be without a receive before the ring
// watches it for a hang-up, in milliseconds: most are read again before.
const watchMS = 2 * nearTickMS

func (r *ring) watchLater(c *Conn) {
	if c.uring.armed&(uringWatch|uringWatched|uringUnwatched) != 0 {
		return
	}
	c.uring.armed |= uringUnwatched
	r.unwatched = append(r.unwatched, connRef{c, c.gen})
	if !r.watchTimer.Set() {
		r.l.SetTimer(&r.watchTimer, watchMS, r)
	}
}

// OnTimer watches the connections that are still without a receive.
func (r *ring) OnTimer(*Timer) {
	for _, u := range r.unwatched {
		c := u.c
		// Another loop may have given the same generation.
		if c.gen != u.gen || c.loop != r.l {
			continue
		}
		c.uring.armed &^= uringUnwatched
		if c.uring.armed&(uringRecv|uringPoll|uringWatch|uringWatched) != 0 {
			continue
		}
		c.uring.armed |= uringWatch
		r.room(1)
		r.PollMulti(c.fd, unix.EPOLLRDHUP, ringName(opWatch, c.slot, c.gen))
	}
	clear(r.unwatched)
	r.unwatched = r.unwatched[:0]
}

// connect starts the connection of c to sa.
func (r *ring) connect(c *Conn, sa *sys.Sockaddr) {
	c.uring.armed |= uringConnect
	r.room(1)
	r.Connect(c.fd, sa, ringName(opConnect, c.slot, c.gen))
}

// completed takes the outcome of a request that brought no bytes; more says
// that the request goes on.
func (c *Conn) completed(op ringOp, res int32, more bool) {
	if !more {
		c.uring.armed &^= ringRequests[op]
	}
	switch op {
	case opRecv:
		c.uring.armed &^= uringCancelled
		c.receivedNothing(res)
		c.process()
	case opConnect:
		c.flags |= flagWritable
		if res < 0 {
			c.uring.late = shortErrno(-res)
		}
		c.process()
	default:
		c.polled(res)
	}
}

// receivedNothing takes the outcome of a request without bytes.
func (c *Conn) receivedNothing(res int32) {
	switch errno := unix.Errno(-res); {
	case res == 0:
		c.flags |= flagDrained | flagRDHUP
	case errno == unix.ENOBUFS, errno == unix.EINTR, errno == unix.ECANCELED:
		// To be armed again, if it is still wanted.
	default:
		c.fail(errno)
	}
}

// failLate keeps a failure that comes after bytes that have been received.
func (c *Conn) failLate(errno unix.Errno) {
	c.uring.late = shortErrno(errno)
	c.flags |= flagReadable | flagHangup
}

// polled takes the events of a poll request. While a receive is under way it
// has what there is to read.
func (c *Conn) polled(res int32) {
	if res < 0 {
		c.receivedNothing(res)
		c.process()
		return
	}
	if res&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.uring.armed |= uringWatched
	}
	if c.uring.armed&uringRecv == 0 {
		if res&unix.EPOLLIN != 0 {
			c.flags |= flagPolled
		}
		c.event(uint32(res))
		return
	}
	if res&unix.EPOLLRDHUP != 0 {
		c.flags |= flagRDHUP
	}
	if res&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.flags |= flagWritable
	}
	if res&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.flags |= flagHangup
	}
	c.process()
}

// receive takes the bytes of a receive to whoever wants them; nonEmpty says that
// more, or the FIN, has come after them. What nobody wants now is kept, and no
// more is received meanwhile.
func (r *ring) receive(c *Conn, p []byte, nonEmpty bool) {
	c.uring.armed &^= uringRecv | uringCancelled
	c.noteEarly()
	c.flags |= flagReadable
	c.observeSize(len(p))
	gen := c.gen
	r.receiver, r.received, r.followed = c, p, nonEmpty || len(p) == min(c.readLimit(), ringBufferSize)
	c.process()
	if c.gen == gen && r.received != nil {
		c.keepReceived(r.received)
	}
	r.receiver, r.received, r.inHand = nil, nil, nil
}

// hasReceived reports whether a receive has brought something that the handler
// or the flow has not got.
func (c *Conn) hasReceived() bool {
	if c.loop.ring == nil {
		return false
	}
	return c.uring.held != nil || c.uring.late != 0 || c.loop.ring.receiver == c && c.loop.ring.received != nil
}

// recvRing is recv with the ring: what has been received, or what the socket
// has if a poll has told of it.
func (c *Conn) recvRing(size int) ([]byte, unix.Errno) {
	r := c.loop.ring
	r.inHand = nil
	switch {
	case c.uring.held != nil:
		return c.takeHeld(size), 0
	case r.receiver == c && r.received != nil:
		return r.takeReceived(c, size)
	case c.uring.late != 0:
		errno := unix.Errno(c.uring.late)
		c.uring.late = 0
		return nil, errno
	case c.uring.armed&uringRecv != 0:
		return nil, unix.EAGAIN
	}
	buf := c.loop.buf[:size]
	n, errno := sys.Recv(c.fd, buf)
	if errno != 0 {
		return nil, errno
	}
	// The next request looks at the socket again, so that a short read may be
	// taken for the last.
	if n < size && n > 0 {
		c.flags &^= flagReadable
	}
	c.observeSize(n)
	return buf[:n], 0
}

// observeSize watches the sizes of reads for the way of reading that suits the
// connection.
func (c *Conn) observeSize(n int) {
	switch {
	case n >= ringBufferSize:
		c.flags |= flagBulk
		c.uring.small = 0
	case n >= smallRead:
		c.uring.small = 0
	case c.uring.small < smallStreak:
		c.uring.small++
	default:
		c.flags &^= flagBulk
	}
}

// takeReceived returns what the present completion has brought, joined with
// what has come after it, so that a large message is passed on as a whole and
// an end that is there already is seen before the bytes are written.
func (r *ring) takeReceived(c *Conn, size int) ([]byte, unix.Errno) {
	p := r.received
	if len(p) > size {
		r.received, r.inHand = p[size:], p[:size]
		return p[:size], 0
	}
	r.received = nil
	if !r.followed || len(p) == size {
		c.flags &^= flagReadable
		r.inHand = p
		return p, 0
	}
	buf := r.l.buf[:size]
	n := copy(buf, p)
	m, errno := sys.Recv(c.fd, buf[n:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		c.flags &^= flagReadable
	case errno != 0:
		c.failLate(errno)
	case m == 0:
		c.flags = c.flags&^flagReadable | flagDrained | flagRDHUP
	case m < len(buf)-n:
		c.flags &^= flagReadable
	}
	m = max(m, 0)
	c.observeSize(n + m)
	return buf[:n+m], 0
}

// cancelRecv ends the receive that is under way.
func (r *ring) cancelRecv(c *Conn) {
	if c.uring.armed&uringCancelled != 0 {
		return
	}
	c.uring.armed |= uringCancelled
	r.cancel(opRecv, c.slot, c.gen)
}

// cancelAll cancels all requests of c.
func (r *ring) cancelAll(c *Conn) {
	if c.uring.armed&uringRequests == 0 {
		return
	}
	for op, bit := range ringRequests {
		if c.uring.armed&bit != 0 {
			r.cancel(ringOp(op), c.slot, c.gen)
		}
	}
}

// closeConn cancels what is under way and closes the descriptor.
func (r *ring) closeConn(c *Conn) {
	r.cancelAll(c)
	r.room(1)
	r.CloseFD(c.fd, uint64(opIgnored))
	if r.receiver == c {
		r.receiver, r.received = nil, nil
	}
	c.dropHeld()
}
