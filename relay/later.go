package relay

import "golang.org/x/sys/unix"

// Small writes are put off to the end of the turn and then made one after the
// other. Sent in a row, packets reach a receiver on another CPU while it is
// still busy with those before them, so that fewer of them need an interrupt
// of their own there; and writes of one turn to one connection become one.
const (
	// laterMax is the size in bytes of the largest write that is put off:
	// greater ones fill packets by themselves and are not worth copying.
	laterMax = 4 << 10
	// laterWrites is how many connections may have something put off before
	// all of it is written. It bounds how long the first waits.
	laterWrites = 64
)

// laterWrite is a write that has been put off.
type laterWrite struct {
	conn *Conn // nil when it has been made
	data []byte
	lent bool // data lies in a buffer of the ring
}

// laterList is what will be written at the end of the turn. The data lies in
// buf, which is empty again after each turn.
type laterList struct {
	writes []laterWrite
	buf    []byte
	used   int
}

func (q *laterList) init() {
	q.writes = make([]laterWrite, 0, laterWrites)
	q.buf = make([]byte, laterWrites*laterMax)
}

// putOff takes a and then b to be written at the end of the turn. Nothing may
// wait before them.
func (c *Conn) putOff(a, b []byte) {
	q := &c.loop.later
	if c.later != 0 && !q.extendable(c, len(a)+len(b)) {
		c.writePutOff()
	}
	if c.later == 0 {
		if len(q.writes) == laterWrites || q.used+laterMax > len(q.buf) {
			c.loop.writePutOff()
		}
		q.writes = append(q.writes, laterWrite{conn: c, data: q.buf[q.used:q.used]})
		c.later = uint8(len(q.writes))
	}
	w := &q.writes[c.later-1]
	w.data = append(append(w.data, a...), b...)
	q.used += len(a) + len(b)
}

// extendable reports whether n bytes can be added to what c has put off: it is
// the last in the buffer.
func (q *laterList) extendable(c *Conn, n int) bool {
	return int(c.later) == len(q.writes) && !q.writes[c.later-1].lent && len(q.writes[c.later-1].data)+n <= laterMax
}

// writePutOff writes what c has put off.
func (c *Conn) writePutOff() { c.writePutOffWith(0) }

// writePutOffWith is writePutOff with flags of send(2).
func (c *Conn) writePutOffWith(flags int) {
	if c.later == 0 {
		return
	}
	w := &c.loop.later.writes[c.later-1]
	c.later, w.conn = 0, nil
	c.writeNow(w.data, flags)
}

// writeLast writes what has been put off and holds a packet back that it does
// not fill: the caller sends the FIN at once, which then goes in the same packet.
func (c *Conn) writeLast() { c.writePutOffWith(unix.MSG_MORE) }

// writePutOff makes all writes that were put off.
func (l *Loop) writePutOff() {
	for i := range l.later.writes {
		if c := l.later.writes[i].conn; c != nil {
			c.writePutOff()
		}
	}
	l.later.writes = l.later.writes[:0]
	l.later.used = 0
}
