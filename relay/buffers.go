package relay

import "golang.org/x/sys/unix"

// Pending output lies in chunks of a few sizes, taken from anonymous memory
// outside the Go heap and kept for reuse. An idle connection holds none, but for
// the smallest, with what the log will say of it.
var chunkSizes = [...]int{128, 1 << 10, 4 << 10, 16 << 10, 64 << 10}

// arenaSize is the size in bytes of one piece of memory cut into chunks.
const arenaSize = 256 << 10

// chunk is a piece of pending output: data[off:end] is still to be written.
type chunk struct {
	next     *chunk
	data     []byte
	off, end int
	class    int
}

// bytes returns what is still to be written.
func (c *chunk) bytes() []byte { return c.data[c.off:c.end] }

type chunkPool struct {
	free [len(chunkSizes)]*chunk
}

func classOf(n int) int {
	for i, size := range chunkSizes {
		if n <= size {
			return i
		}
	}
	return len(chunkSizes) - 1
}

// get returns an empty chunk for n bytes, or for as many of them as the
// largest chunk holds.
func (p *chunkPool) get(n int) *chunk {
	class := classOf(n)
	if p.free[class] == nil {
		p.grow(class)
	}
	c := p.free[class]
	p.free[class] = c.next
	c.next, c.off, c.end = nil, 0, 0
	return c
}

func (p *chunkPool) put(c *chunk) {
	c.next = p.free[c.class]
	p.free[c.class] = c
}

func (p *chunkPool) grow(class int) {
	size := chunkSizes[class]
	mem, err := unix.Mmap(-1, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		mem = make([]byte, arenaSize)
	}
	chunks := make([]chunk, arenaSize/size)
	for i := range chunks {
		off := i * size
		chunks[i] = chunk{data: mem[off : off+size : off+size], class: class}
		p.put(&chunks[i])
	}
}

// queue is a ring of chunks with the number of bytes in it; the first follows
// the last.
type queue struct {
	last   *chunk
	length int
}

// first returns the chunk in front; the queue must not be empty.
func (q *queue) first() *chunk { return q.last.next }

// append copies p to the end of the queue.
func (q *queue) append(pool *chunkPool, p []byte) {
	q.length += len(p)
	if t := q.last; t != nil {
		n := copy(t.data[t.end:], p)
		t.end += n
		p = p[n:]
	}
	for len(p) > 0 {
		c := pool.get(len(p))
		c.end = copy(c.data, p)
		p = p[c.end:]
		if q.last == nil {
			c.next = c
		} else {
			c.next = q.last.next
			q.last.next = c
		}
		q.last = c
	}
}

// consume drops n bytes from the front.
func (q *queue) consume(pool *chunkPool, n int) {
	q.length -= n
	for n > 0 {
		c := q.first()
		if left := c.end - c.off; n < left {
			c.off += n
			return
		} else {
			n -= left
		}
		q.dropFirst(pool)
	}
}

func (q *queue) dropFirst(pool *chunkPool) {
	c := q.first()
	if c == q.last {
		q.last = nil
	} else {
		q.last.next = c.next
	}
	pool.put(c)
}

// bytes returns a copy of what is in the queue, nil when it is empty.
func (q *queue) bytes() []byte {
	if q.length == 0 {
		return nil
	}
	b := make([]byte, 0, q.length)
	for c := q.first(); ; c = c.next {
		b = append(b, c.data[c.off:c.end]...)
		if c == q.last {
			return b
		}
	}
}

func (q *queue) release(pool *chunkPool) {
	for q.last != nil {
		q.dropFirst(pool)
	}
	q.length = 0
}

// Buffer is bytes kept between two calls of OnData: the beginning of a head
// that has not come whole, or a request that came early. The zero value is
// empty. Release must be called to give the memory back.
type Buffer struct {
	c *chunk
}

// Len returns the number of bytes held.
func (b *Buffer) Len() int {
	if b.c == nil {
		return 0
	}
	return b.c.end - b.c.off
}

// Bytes returns the bytes held; they are valid until the next call.
func (b *Buffer) Bytes() []byte {
	if b.c == nil {
		return nil
	}
	return b.c.data[b.c.off:b.c.end]
}

// MaxBuffer is the number of bytes a Buffer can hold.
const MaxBuffer = 64 << 10

// Append adds p and reports whether there was room for it; without room
// nothing is added.
func (b *Buffer) Append(l *Loop, p []byte) bool {
	total := b.Len() + len(p)
	if total > MaxBuffer {
		return false
	}
	if b.c == nil || b.c.off > 0 || total > len(b.c.data) {
		c := l.chunks.get(total)
		c.end = copy(c.data, b.Bytes())
		b.Release(l)
		b.c = c
	}
	b.c.end += copy(b.c.data[b.c.end:], p)
	return true
}

// Consume drops n bytes from the front; with the last the memory goes back.
func (b *Buffer) Consume(l *Loop, n int) {
	if b.c == nil {
		return
	}
	b.c.off += n
	if b.c.off >= b.c.end {
		b.Release(l)
	}
}

// Release drops everything.
func (b *Buffer) Release(l *Loop) {
	if b.c != nil {
		l.chunks.put(b.c)
		b.c = nil
	}
}
