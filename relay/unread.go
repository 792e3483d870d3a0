package relay

import "3proxyd/internal/sys"

// MayRead reports whether the peer has sent something, or its FIN, that has not
// been read. Where events alone do not tell it asks the socket.
func (c *Conn) MayRead() bool {
	switch {
	case c.flags&(flagDrained|flagHangup) != 0 || c.hasReceived():
		return true
	case c.flags&flagReadable != 0:
		// So after a flow of known length, which ends before the socket says
		// that it is empty.
	case c.loop.ring == nil || !c.opened || c.uring.armed&(uringRecv|uringPoll) != 0:
		return false
	}
	if sys.MayRecv(c.fd) {
		return true
	}
	c.flags &^= flagReadable
	return false
}

// Rest returns what the peer sent before the connection broke and nobody has
// read, at most one read of it. It is for OnError: a write that fails says
// nothing about what has arrived, such as the answer of a server that did not
// want the rest of a request. The bytes are valid until the next callback.
func (c *Conn) Rest() []byte {
	if c.loop.ring != nil && c.hasReceived() {
		p, _ := c.recvRing(MaxBufferSize)
		return p
	}
	n, errno := sys.Recv(c.fd, c.loop.buf)
	if errno != 0 {
		return nil
	}
	return c.loop.buf[:n]
}
