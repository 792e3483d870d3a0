package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// readsPerTurn bounds the reads of one connection in one turn.
const readsPerTurn = 4

// SetReadSize bounds one read in bytes, at most MaxBufferSize; 0 means
// Options.BufferSize.
func (c *Conn) SetReadSize(n int) { c.readSize = int32(min(max(n, 0), MaxBufferSize)) }

// DistrustShortReads has every read repeated until the socket says that it is
// empty. It is for Unix sockets, where a read also ends in front of descriptors
// that the peer passes (unix(7)).
func (c *Conn) DistrustShortReads() { c.flags |= flagDistrust }

// StartRead asks for OnData and OnEOF.
func (c *Conn) StartRead() {
	c.flags |= flagReading
	if c.flags&(flagReadable|flagDrained) != 0 {
		c.enqueue()
	}
	if c.opened {
		c.loop.touch(c)
	}
}

// StopRead asks for no more OnData and OnEOF; what comes waits in the socket.
func (c *Conn) StopRead() { c.flags &^= flagReading }

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
		c.enqueue()
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
		c.enqueue()
	default:
		c.flags &^= flagReadable
		c.fail(errno)
	}
}
