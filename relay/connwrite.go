package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

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

// Write writes p, keeping a copy of what the socket does not take. A small p is
// copied and written at the end of the turn.
func (c *Conn) Write(p []byte) {
	if len(p) <= laterMax && c.canSend() {
		c.putOff(p, nil)
		return
	}
	c.writePutOff()
	c.writeNow(p, 0)
}

// writeNow writes p with flags of send(2) and keeps a copy of the rest.
func (c *Conn) writeNow(p []byte, flags int) {
	if !c.canSend() {
		c.hold(p)
		return
	}
	c.writesDirectly()
	n, errno := sys.Send(c.fd, p, flags)
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
	c.writesDirectly()
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

// writesDirectly is called before a write by a call of its own.
func (c *Conn) writesDirectly() {
	c.endNagle()
	if c.flags&flagFirst != 0 {
		c.lookForEarly()
	}
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
		c.enqueue()
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

// NotifySent has OnSent called by the loop when no output waits, which may be
// at once.
func (c *Conn) NotifySent() {
	c.flags |= flagWaiting
	c.enqueue()
}

// SendLast makes the write that has been put off and reports whether no output
// waits any more. The caller calls Close or Shutdown next, whose FIN then goes
// in the packet of the last bytes: without it they stay for up to 200 ms
// (MSG_MORE of send(2)).
func (c *Conn) SendLast() bool {
	c.writeLast()
	return c.pend.length == 0
}

// Shutdown sends a FIN after all output that waits. A Flow into the connection
// must have ended.
func (c *Conn) Shutdown() {
	c.writeLast()
	if c.pend.length > 0 {
		c.flags |= flagShutdown
		return
	}
	c.flags &^= flagShutdown
	sys.ShutdownWrite(c.fd)
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
