package relay

// keepReceived keeps what a receive has brought, which fits into one chunk.
func (c *Conn) keepReceived(p []byte) {
	k := c.loop.chunks.get(len(p))
	k.end = copy(k.data, p)
	c.uring.held = k
}

// takeHeld returns at most size bytes of what is held.
func (c *Conn) takeHeld(size int) []byte {
	k := c.uring.held
	n := copy(c.loop.buf[:size], k.bytes())
	if k.off += n; k.off == k.end {
		c.dropHeld()
		c.flags &^= flagReadable
	}
	return c.loop.buf[:n]
}

// dropHeld forgets what is held.
func (c *Conn) dropHeld() {
	if c.uring.held != nil {
		c.loop.chunks.put(c.uring.held)
		c.uring.held = nil
	}
}
