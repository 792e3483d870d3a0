package relay

// runList is what has work left for the next turn, in the order in which it was
// put off. Whatever is in it is marked by a flag of its own, so that it is there
// once.
type runList[T any] struct {
	due   []*T
	spare []*T // memory for the turn after
}

func (r *runList[T]) empty() bool { return len(r.due) == 0 }

func (r *runList[T]) push(x *T) { r.due = append(r.due, x) }

// take empties the list and returns what was in it, valid until the next call.
// The caller clears it.
func (r *runList[T]) take() []*T {
	due := r.due
	r.due, r.spare = r.spare[:0], due
	return due
}

// enqueue has the connection processed in the next turn.
func (c *Conn) enqueue() {
	if c.flags&flagQueued != 0 {
		return
	}
	c.flags |= flagQueued
	c.loop.run.push(c)
}

// runQueued processes each connection of the run list once; those that still
// have work are in the list again for the next turn.
func (l *Loop) runQueued() {
	due := l.run.take()
	for _, c := range due {
		c.flags &^= flagQueued
		if c.opened {
			c.process()
		}
	}
	clear(due)
}

// enqueue has the socket processed in the next turn.
func (c *PacketConn) enqueue() {
	if c.flags&packetQueued != 0 {
		return
	}
	c.flags |= packetQueued
	c.loop.packets.run.push(c)
}

// runPackets processes each socket of the run list once.
func (l *Loop) runPackets() {
	due := l.packets.run.take()
	for _, c := range due {
		c.flags &^= packetQueued
		if c.IsOpen() {
			c.process()
		}
	}
	clear(due)
}
