package relay

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// poison overwrites all free chunks, so that bytes read from memory that has
// been given back are seen to be wrong.
func poison(p *chunkPool) {
	for _, c := range p.free {
		for ; c != nil; c = c.next {
			for i := range c.data {
				c.data[i] = 0xdb
			}
		}
	}
}

func freeChunks(p *chunkPool) (n, size int) {
	for _, c := range p.free {
		for ; c != nil; c = c.next {
			n++
			size += len(c.data)
		}
	}
	return n, size
}

func TestClassOf(t *testing.T) {
	for _, c := range []struct{ n, size int }{
		{0, 128}, {128, 128}, {129, 1 << 10}, {1024, 1 << 10}, {1025, 4 << 10}, {4096, 4 << 10},
		{16385, 64 << 10}, {65536, 64 << 10}, {65537, 64 << 10}, {1 << 30, 64 << 10},
	} {
		if got := chunkSizes[classOf(c.n)]; got != c.size {
			t.Errorf("classOf(%d): %d bytes, %d wanted", c.n, got, c.size)
		}
	}
}

func TestQueueAgainstSlice(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 2))
		var pool chunkPool
		var q queue
		var want []byte
		for range 300 {
			switch r.IntN(3) {
			case 0:
				p := make([]byte, r.IntN(1<<r.IntN(18)))
				pattern(p, byte(seed), r.IntN(1000))
				q.append(&pool, p)
				want = append(want, p...)
			case 1:
				n := r.IntN(len(want) + 1)
				q.consume(&pool, n)
				want = want[n:]
			case 2:
				poison(&pool)
			}
			if q.length != len(want) || !bytes.Equal(q.bytes(), want) {
				t.Fatalf("seed %d: queue differs, %d bytes of %d", seed, q.length, len(want))
			}
			if (q.last == nil) != (len(want) == 0) {
				t.Fatalf("seed %d: an empty queue holds memory", seed)
			}
		}
		q.release(&pool)
		n, size := freeChunks(&pool)
		if q.last != nil || q.length != 0 || size%arenaSize != 0 || n == 0 {
			t.Fatalf("seed %d: released queue holds chunks: %d free, %d bytes", seed, n, size)
		}
	}
}

func TestBufferAgainstSlice(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := &Loop{}
		var b Buffer
		var want []byte
		for range 300 {
			switch r.IntN(3) {
			case 0:
				p := make([]byte, r.IntN(1<<r.IntN(18)))
				pattern(p, byte(seed), r.IntN(1000))
				ok := b.Append(l, p)
				if ok != (len(want)+len(p) <= MaxBuffer) {
					t.Fatalf("seed %d: Append of %d to %d: %v", seed, len(p), len(want), ok)
				}
				if ok {
					want = append(want, p...)
				}
			case 1:
				n := r.IntN(len(want) + 1)
				b.Consume(l, n)
				want = want[n:]
			case 2:
				poison(&l.chunks)
			}
			if b.Len() != len(want) || !bytes.Equal(b.Bytes(), want) {
				t.Fatalf("seed %d: buffer differs", seed)
			}
		}
		b.Release(l)
		b.Release(l)
		if _, size := freeChunks(&l.chunks); size%arenaSize != 0 || b.Len() != 0 {
			t.Fatalf("seed %d: released buffer holds a chunk", seed)
		}
	}
}

func TestBufferGivesMemoryBack(t *testing.T) {
	l := &Loop{}
	var b Buffer
	b.Append(l, make([]byte, 100))
	b.Consume(l, 100)
	if b.c != nil {
		t.Error("an emptied buffer holds memory")
	}
	b.Consume(l, 10)
	if b.Len() != 0 || b.Bytes() != nil {
		t.Error("Consume of an empty buffer")
	}
}
