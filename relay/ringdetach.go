package relay

import (
	"slices"

	"golang.org/x/sys/unix"
)

// detaching is a connection that has left the loop but for the requests that
// are being cancelled.
type detaching struct {
	d     *Detached
	done  func(*Detached)
	armed uint16
}

// detach cancels what is under way for c, whose place in the table it takes,
// and has done called when all of it has ended, which may be at once.
func (r *ring) detach(c *Conn, d *Detached, done func(*Detached)) {
	if k := c.uring.held; k != nil {
		d.Input = append(d.Input, k.bytes()...)
		c.dropHeld()
	}
	if r.receiver == c {
		d.Input = append(d.Input, r.received...)
		r.receiver, r.received = nil, nil
	}
	w := &detaching{d: d, done: done, armed: c.uring.armed & uringRequests}
	r.cancelAll(c)
	r.l.table.detach(c.slot, w)
	slot := c.slot
	r.untouch(c)
	c.forget()
	if w.armed == 0 {
		w.end(r.l, slot)
	}
}

// untouch takes c, which may be attached to another loop, off the list.
func (r *ring) untouch(c *Conn) {
	if c.uring.armed&uringTouched != 0 {
		r.touched = slices.DeleteFunc(r.touched, func(t *Conn) bool { return t == c })
		c.uring.armed &^= uringTouched
	}
}

// completed takes the completion of a request; p is what a receive has brought,
// more says that the request goes on.
func (w *detaching) completed(l *Loop, slot uint32, op ringOp, res int32, p []byte, more bool) {
	w.d.Input = append(w.d.Input, p...)
	if op == opRecv && res < 0 && unix.Errno(-res) == unix.ECONNRESET {
		w.d.Broken = true
	}
	if !more {
		w.armed &^= ringRequests[op]
	}
	if w.armed == 0 {
		w.end(l, slot)
	}
}

func (w *detaching) end(l *Loop, slot uint32) {
	l.table.release(slot)
	w.done(w.d)
}
