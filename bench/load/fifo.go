package load

// fifo is a queue of connections with a fixed capacity.
type fifo struct {
	ring  []*conn
	head  int
	count int
}

func newFifo(n int) fifo { return fifo{ring: make([]*conn, n)} }

func (q *fifo) len() int { return q.count }

// push appends k. The capacity is the number of connections and each is queued
// at most once, so there is always room.
func (q *fifo) push(k *conn) {
	q.ring[(q.head+q.count)%len(q.ring)] = k
	q.count++
}

func (q *fifo) pop() *conn {
	k := q.ring[q.head]
	q.head = (q.head + 1) % len(q.ring)
	q.count--
	return k
}

func (q *fifo) peek() *conn {
	if q.count == 0 {
		return nil
	}
	return q.ring[q.head]
}
