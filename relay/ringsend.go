package relay

import "golang.org/x/sys/unix"

// sentWrite is a write that has been submitted: res is what the kernel said if
// it did not take all of data at once.
type sentWrite struct {
	c      *Conn
	gen    uint32
	res    int32
	failed bool
	data   []byte
}

// lendMin is the size in bytes from which a write refers to the bytes where
// they were received, instead of being copied.
const lendMin = 512

// lend puts a write of p off without a copy and reports true, if p is what a
// receive has just brought and nothing waits before it.
func (c *Conn) lend(p []byte) bool {
	l := c.loop
	r := l.ring
	if r == nil || len(p) < lendMin || len(r.inHand) == 0 || &p[0] != &r.inHand[0] {
		return false
	}
	c.writePutOff()
	if !c.canSend() {
		return false
	}
	q := &l.later
	if len(q.writes) == laterWrites {
		l.writePutOff()
	}
	q.writes = append(q.writes, laterWrite{conn: c, data: p, lent: true})
	c.later = uint8(len(q.writes))
	r.lend = true
	return true
}

// prepareSends prepares the writes that were put off.
func (r *ring) prepareSends() {
	q := &r.l.later
	for i := range q.writes {
		w := &q.writes[i]
		c := w.conn
		if c == nil {
			continue
		}
		c.later, w.conn = 0, nil
		if !c.canSend() {
			c.hold(w.data)
			continue
		}
		c.endNagle()
		r.room(1)
		if index := uint32(len(r.sent)); c.flags&flagFirst == 0 {
			r.Send(c.fd, w.data, ringName(opSend, index, 0))
		} else {
			r.SendTold(c.fd, w.data, ringName(opFirstSend, index, c.slot))
		}
		r.sent = append(r.sent, sentWrite{c: c, gen: c.gen, data: w.data})
	}
	q.writes = q.writes[:0]
}

// finishSends takes the outcome of the submitted writes, before any other
// completion. A write is done within the submission: those that have no
// completion, which first ones always have, have been taken whole.
func (r *ring) finishSends() {
	r.l.later.used = 0
	if len(r.sent) == 0 {
		r.recycleLent()
		return
	}
	for i := range r.cqes {
		e := &r.cqes[i]
		switch ringOp(e.UserData >> nameSlotBits & 15) {
		case opSend, opFirstSend:
			s := &r.sent[e.UserData&nameSlotMask]
			s.res, s.failed = e.Res, int(e.Res) != len(s.data)
		}
	}
	for i := range r.sent {
		if s := &r.sent[i]; s.failed && s.c.gen == s.gen {
			s.keep()
		}
	}
	clear(r.sent)
	r.sent = r.sent[:0]
	r.recycleLent()
}

func (r *ring) recycleLent() {
	for _, id := range r.lent {
		r.buffers.Recycle(id)
	}
	r.lent = r.lent[:0]
}

// keep keeps what the socket has not taken.
func (s *sentWrite) keep() {
	c, n := s.c, max(s.res, 0)
	if s.res >= 0 {
		c.flags &^= flagWritable
	} else if !c.sendFailed(unix.Errno(-s.res)) {
		return
	}
	c.hold(s.data[n:])
}
