package relay

import "3proxyd/internal/sys"

// TellEarly has what the peer sends before the first write told apart, on a
// connection that has just been established: HasEarly reports it. What has come
// when the request is written, and not been seen yet, is told apart by the ring
// only.
func (c *Conn) TellEarly() {
	switch {
	case c.flags&(flagReadable|flagDrained) != 0:
		c.flags |= flagEarly
	case c.loop.ring != nil:
		c.flags |= flagFirst
	}
}

// HasEarly reports whether the peer has sent something before the first write.
func (c *Conn) HasEarly() bool { return c.flags&flagEarly != 0 }

// noteEarly takes what a receive brings before the first write for early. Both
// are submitted together, the receive in front.
func (c *Conn) noteEarly() {
	if c.flags&flagFirst != 0 {
		c.flags = c.flags&^flagFirst | flagEarly
	}
}

// lookForEarly is called before a first write that does not go through the ring:
// a large one, or one of more than a turn puts off.
func (c *Conn) lookForEarly() {
	c.flags &^= flagFirst
	if sys.MayRecv(c.fd) {
		c.flags |= flagEarly
	}
}

// firstSent takes the completion of the first write of the connection in a slot:
// what is received from now on may be an answer.
func (r *ring) firstSent(slot uint32) {
	if s := r.l.table.at(slot); s.kind == sourceConn {
		s.conn.flags &^= flagFirst
	}
}
