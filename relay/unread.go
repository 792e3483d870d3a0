package relay

import "3proxyd/internal/sys"

// MayRead reports whether the peer may have sent something, or its FIN, that
// has not been read.
func (c *Conn) MayRead() bool { return c.flags&(flagReadable|flagDrained) != 0 }

// Rest returns what the peer sent before the connection broke and nobody has
// read, at most one read of it. It is for OnError: a write that fails says
// nothing about what has arrived, such as the answer of a server that did not
// want the rest of a request. The bytes are valid until the next callback.
func (c *Conn) Rest() []byte {
	n, errno := sys.Recv(c.fd, c.loop.buf)
	if errno != 0 {
		return nil
	}
	return c.loop.buf[:n]
}
