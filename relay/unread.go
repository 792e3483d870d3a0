package relay

import "3proxyd/internal/sys"

// MayRead reports whether the peer may have sent something, or its FIN, that
// has not been read.
func (c *Conn) MayRead() bool {
	if c.flags&(flagReadable|flagDrained) != 0 {
		return true
	}
	// Without a request for input the ring would not have told.
	return c.loop.ring != nil && c.opened && c.uring.armed&(uringRecv|uringPoll) == 0 && sys.MayRecv(c.fd)
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
