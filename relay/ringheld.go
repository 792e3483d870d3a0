package relay

// keepReceived appends p to what is held of the connection's input.
func (c *Conn) keepReceived(p []byte) {
	at := &c.uring.held
	for *at != nil {
		k := *at
		if k.next == nil {
			n := copy(k.data[k.end:], p)
			k.end += n
			p = p[n:]
		}
		at = &k.next
	}
	for len(p) > 0 {
		k := c.loop.chunks.get(len(p))
		k.end = copy(k.data, p)
		p = p[k.end:]
		*at = k
		at = &k.next
	}
}

// takeHeld returns at most size bytes of what is held.
func (c *Conn) takeHeld(size int) []byte {
	n := 0
	for c.uring.held != nil && n < size {
		k := c.uring.held
		m := copy(c.loop.buf[n:size], k.bytes())
		n += m
		if k.off += m; k.off == k.end {
			c.uring.held = k.next
			c.loop.chunks.put(k)
		}
	}
	if c.uring.held != nil {
		return c.loop.buf[:n]
	}
	if c.uring.late == 0 {
		c.flags &^= flagReadable
	}
	if c.uring.armed&uringEnded != 0 {
		c.flags |= flagDrained
	}
	return c.loop.buf[:n]
}

// dropHeld forgets what is held.
func (c *Conn) dropHeld() {
	for c.uring.held != nil {
		k := c.uring.held
		c.uring.held = k.next
		c.loop.chunks.put(k)
	}
}
