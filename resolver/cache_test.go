package resolver

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

func found(s string, ttl time.Duration) Answer {
	return Answer{Addrs: []netip.Addr{netip.MustParseAddr(s)}, TTL: ttl}
}

func TestCache(t *testing.T) {
	c := NewCache(3)
	check := func(name string, now int64, want State) {
		t.Helper()
		addrs, state := c.Get(name, now)
		if state != want || (len(addrs) > 0) != (want == Fresh) {
			t.Errorf("%s at %d: %v %v, want %v", name, now, addrs, state, want)
		}
	}
	check("a", 0, Miss)
	c.Put("a", found("192.0.2.1", time.Second), 0)
	c.Put("b", Answer{Err: ErrNotFound, TTL: 2 * time.Second}, 0)
	c.Put("c", found("192.0.2.3", time.Hour), 0)
	check("a", 999, Fresh)
	check("b", 1999, Negative)
	check("a", 1000, Miss)
	check("b", 2000, Miss)
	if len(c.index) != 1 {
		t.Errorf("%d names", len(c.index))
	}

	c.Put("d", found("192.0.2.4", time.Hour), 0)
	c.Put("e", found("192.0.2.5", time.Hour), 0)
	check("c", 1, Fresh)
	c.Put("f", found("192.0.2.6", time.Hour), 0) // d goes
	check("d", 1, Miss)
	check("c", 1, Fresh)
	check("e", 1, Fresh)
	check("f", 1, Fresh)

	c.Put("c", Answer{Err: ErrTemporary, TTL: time.Second}, 0)
	check("c", 1, Negative)
	c.Put("c", Answer{Err: ErrTemporary}, 0)
	check("c", 1, Miss)
	c.Put("g", Answer{Err: ErrTemporary}, 0)
	check("g", 1, Miss)

	none := NewCache(0)
	none.Put("a", found("192.0.2.1", time.Hour), 0)
	if _, state := none.Get("a", 0); state != Miss {
		t.Error("a cache for no names keeps one")
	}
}

// TestCacheModel compares with a list in order of use.
func TestCacheModel(t *testing.T) {
	const max = 7
	rng := rand.New(rand.NewPCG(3, 4))
	c := NewCache(max)
	type item struct {
		name    string
		expires int64
	}
	var order []item // newest last
	take := func(name string) (it item, ok bool) {
		for i := range order {
			if order[i].name == name {
				it = order[i]
				order = append(order[:i], order[i+1:]...)
				return it, true
			}
		}
		return it, false
	}
	for now := range int64(20000) {
		name := fmt.Sprint(rng.IntN(15))
		if rng.IntN(2) == 0 {
			ttl := int64(rng.IntN(30))
			c.Put(name, found("192.0.2.1", time.Duration(ttl)*time.Millisecond), now)
			if _, known := take(name); !known && ttl > 0 && len(order) == max {
				order = order[1:]
			}
			if ttl > 0 {
				order = append(order, item{name, now + ttl})
			}
			continue
		}
		_, state := c.Get(name, now)
		it, known := take(name)
		fresh := known && now < it.expires
		if fresh {
			order = append(order, it)
		}
		if (state == Fresh) != fresh {
			t.Fatalf("step %d: %s is %v, want fresh %v", now, name, state, fresh)
		}
		if len(c.index) != len(order) || len(c.entries) > max {
			t.Fatalf("step %d: %d names in %d entries, want %d", now, len(c.index), len(c.entries), len(order))
		}
	}
}

func TestCacheAllocates(t *testing.T) {
	c := NewCache(100)
	for i := range 100 {
		c.Put(fmt.Sprint("host", i), found("192.0.2.1", time.Hour), 0)
	}
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		c.Get("host7", 1)
		c.Get("host8", 1)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCacheHit(b *testing.B) {
	c := NewCache(65536)
	names := make([]string, 65536)
	for i := range names {
		names[i] = fmt.Sprintf("host%d.example.com", i)
		c.Put(names[i], found("192.0.2.1", time.Hour), 0)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Get(names[i&0xffff], 1)
		i += 7919
	}
}
