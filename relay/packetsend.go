package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

const (
	// packetBatch is the number of datagrams that one call takes or sends.
	packetBatch = 32
	// packetQueueSize and packetQueueBytes bound what is gathered in a turn
	// before all of it is sent.
	packetQueueSize  = 512
	packetQueueBytes = 1 << 20
	// heldMax and heldBytes bound what waits for one socket to have room,
	// heldTotal what waits for all sockets of a loop, in bytes.
	heldMax   = 256
	heldBytes = 256 << 10
	heldTotal = 8 << 20
)

// queuedPacket is a datagram that will be sent: n bytes at off of a buffer, and
// 1 + the index of the next one of the same socket.
type queuedPacket struct {
	Path
	off, n, next int32
}

// packets is what the datagram sockets of a loop share.
type packets struct {
	in       *sys.RecvBatch
	received []Packet

	out    *sys.SendBatch
	queued []queuedPacket
	buf    []byte
	// unsent are the sockets with something in queued.
	unsent []*PacketConn
	// held is how many bytes wait for sockets to have room.
	held int

	run runList[PacketConn]
}

// open allocates the buffers with the first socket.
func (q *packets) open() unix.Errno {
	if q.in != nil {
		return 0
	}
	in, err := sys.NewRecvBatch(packetBatch)
	if err != nil {
		return unix.ENOMEM
	}
	q.in, q.received = in, make([]Packet, packetBatch)
	q.out = sys.NewSendBatch(packetBatch)
	q.queued = make([]queuedPacket, 0, packetQueueSize)
	q.buf = make([]byte, 0, packetQueueBytes)
	return 0
}

func (q *packets) close() {
	if q.in != nil {
		q.in.Free()
		q.in = nil
	}
}

// Send sends a datagram of the bytes of a and then b at the end of the turn.
// One that the network refuses, or that finds no room, is dropped and counted
// (Stats.PacketsDropped). to is Path{} for the peer of a connected socket.
func (c *PacketConn) Send(to *Path, a, b []byte) {
	n := len(a) + len(b)
	q := &c.loop.packets
	switch {
	case !c.IsOpen():
		return
	case n > sys.MaxDatagram:
		c.loop.stats.PacketsDropped++
		return
	case c.held != nil:
		c.hold(to, a, b)
		return
	}
	if len(q.queued) == packetQueueSize || len(q.buf)+n > packetQueueBytes {
		c.loop.sendPackets()
		if c.held != nil {
			c.hold(to, a, b)
			return
		}
	}
	off := int32(len(q.buf))
	q.buf = append(append(q.buf, a...), b...)
	q.queued = append(q.queued, queuedPacket{Path: *to, off: off, n: int32(n)})
	index := int32(len(q.queued))
	if c.first == 0 {
		c.first = index
		q.unsent = append(q.unsent, c)
	} else {
		q.queued[c.last-1].next = index
	}
	c.last = index
}

// sendPackets sends what the sockets have gathered.
func (l *Loop) sendPackets() {
	q := &l.packets
	if len(q.unsent) == 0 {
		return
	}
	for _, c := range q.unsent {
		c.sendQueued()
	}
	clear(q.unsent)
	q.unsent = q.unsent[:0]
	q.queued = q.queued[:0]
	q.buf = q.buf[:0]
}

// sendQueued sends what c has gathered; what the socket has no room for is
// held.
func (c *PacketConn) sendQueued() {
	q := &c.loop.packets
	next := c.first
	c.first, c.last = 0, 0
	for next != 0 {
		batch := next
		for next != 0 && !q.out.Full() {
			p := &q.queued[next-1]
			q.out.Add(q.buf[p.off:p.off+p.n], p.Peer, p.Scope, p.Local)
			next = p.next
		}
		done := c.sendBatch()
		if c.flags&packetBlocked == 0 {
			continue
		}
		for next = batch; done > 0; done-- {
			next = q.queued[next-1].next
		}
		for ; next != 0; next = q.queued[next-1].next {
			p := &q.queued[next-1]
			c.hold(&p.Path, q.buf[p.off:p.off+p.n], nil)
		}
	}
}

// sendBatch sends the batch, until the socket has no room, and empties it. It
// returns how many of its datagrams were sent, or refused and dropped.
func (c *PacketConn) sendBatch() (done int) {
	l := c.loop
	out := l.packets.out
	defer out.Reset()
	// An error may be that of an earlier datagram (ICMP), and is then taken.
	for retried := false; out.Left() > 0; {
		n, errno := out.Send(c.fd)
		l.stats.PacketsOut += uint64(n)
		done += n
		switch {
		case errno == 0:
			retried = false
		case errno == unix.EAGAIN:
			c.flags |= packetBlocked
			return done
		case !retried:
			retried = true
			c.note(errno)
		default:
			retried = false
			out.Skip()
			done++
			l.stats.PacketsDropped++
		}
	}
	return done
}

// heldPackets is output that waits for the socket to have room: the payloads
// one after the other.
type heldPackets struct {
	packets []heldPacket
	buf     []byte
}

type heldPacket struct {
	Path
	n int
}

// hold keeps a datagram until the socket has room, or drops it.
func (c *PacketConn) hold(to *Path, a, b []byte) {
	l := c.loop
	n := len(a) + len(b)
	if c.held == nil {
		c.held = &heldPackets{}
		if l.ring != nil {
			c.enqueue()
		}
	}
	h := c.held
	if len(h.packets) == heldMax || len(h.buf)+n > heldBytes || l.packets.held+n > heldTotal {
		l.stats.PacketsDropped++
		return
	}
	h.packets = append(h.packets, heldPacket{*to, n})
	h.buf = append(append(h.buf, a...), b...)
	l.packets.held += n
}

// sendHeld sends what waits as far as the socket has room.
func (c *PacketConn) sendHeld() {
	h := c.held
	if h == nil {
		return
	}
	q := &c.loop.packets
	for len(h.packets) > 0 && c.flags&packetBlocked == 0 {
		for i, off := 0, 0; i < len(h.packets) && !q.out.Full(); i++ {
			p := &h.packets[i]
			q.out.Add(h.buf[off:off+p.n], p.Peer, p.Scope, p.Local)
			off += p.n
		}
		for done := c.sendBatch(); done > 0; done-- {
			n := h.packets[0].n
			h.packets, h.buf = h.packets[1:], h.buf[n:]
			q.held -= n
		}
	}
	if len(h.packets) == 0 {
		c.held = nil
	}
}

// dropHeld drops what waits.
func (c *PacketConn) dropHeld() {
	if h := c.held; h != nil {
		c.loop.packets.held -= len(h.buf)
		c.loop.stats.PacketsDropped += uint64(len(h.packets))
		c.held = nil
	}
}
