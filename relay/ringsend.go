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
		r.Send(c.fd, w.data, ringName(opSend, uint32(len(r.sent)), 0))
		r.sent = append(r.sent, sentWrite{c: c, gen: c.gen, data: w.data})
	}
	q.writes = q.writes[:0]
}

// finishSends takes the outcome of the submitted writes, before any other
// completion. A write is done within the submission: those that have no
// completion have been taken whole.
func (r *ring) finishSends() {
	r.l.later.used = 0
	if len(r.sent) == 0 {
		return
	}
	for i := range r.cqes {
		e := &r.cqes[i]
		if ringOp(e.UserData>>nameSlotBits&15) == opSend {
			s := &r.sent[e.UserData&nameSlotMask]
			s.res, s.failed = e.Res, true
		}
	}
	for i := range r.sent {
		if s := &r.sent[i]; s.failed && s.c.gen == s.gen {
			s.keep()
		}
	}
	clear(r.sent)
	r.sent = r.sent[:0]
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
