package relay

import "golang.org/x/sys/unix"

// The ring polls for datagrams; the calls that take and send them are batched
// by themselves.

// pollPacket asks for what c waits for: datagrams, and room for those that are
// held. A poll looks at the socket when it is submitted, so that nothing is
// missed between two.
func (r *ring) pollPacket(c *PacketConn) {
	if c.flags&(packetReadable|packetPaused|packetPolled) == 0 {
		c.flags |= packetPolled
		r.room(1)
		r.Poll(c.fd, unix.EPOLLIN, ringName(opPacket, c.slot, c.gen))
	}
	if c.held != nil && c.flags&packetRoomPolled == 0 {
		c.flags |= packetRoomPolled
		r.room(1)
		r.Poll(c.fd, unix.EPOLLOUT, ringName(opPacketRoom, c.slot, c.gen))
	}
}

// polled takes the outcome of a poll.
func (c *PacketConn) polled(op ringOp, res int32) {
	if op == opPacketRoom {
		c.flags &^= packetRoomPolled
	} else {
		c.flags &^= packetPolled
	}
	if res < 0 {
		c.enqueue()
		return
	}
	c.event(uint32(res))
}

// cancelPacket cancels what is under way for c.
func (r *ring) cancelPacket(c *PacketConn) {
	if c.flags&packetPolled != 0 {
		r.cancel(opPacket, c.slot, c.gen)
	}
	if c.flags&packetRoomPolled != 0 {
		r.cancel(opPacketRoom, c.slot, c.gen)
	}
}
