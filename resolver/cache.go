package resolver

import (
	"net/netip"
	"strings"
	"time"
)

// State is what a Cache knows about a name.
type State uint8

// The states.
const (
	Miss     State = iota // nothing
	Fresh                 // its addresses
	Negative              // that it has none, or could not be resolved just now
)

// Cache keeps answers, for names of one family, until their TTL is over; when
// it is full the least recently used name goes. It belongs to one goroutine, and
// a hit allocates nothing.
type Cache struct {
	index   map[string]int32
	entries []entry
	max     int
	// newest and oldest are the ends of the list in order of use, free the
	// first entry not in use; -1 is none.
	newest, oldest, free int32
}

// entry is one name; expires is in milliseconds. Free entries are linked by
// older.
type entry struct {
	name         string
	addrs        []netip.Addr
	expires      int64
	newer, older int32
}

// NewCache returns a cache for max names.
func NewCache(max int) *Cache {
	return &Cache{index: map[string]int32{}, max: max, newest: -1, oldest: -1, free: -1}
}

// Get returns what is known about a name at the time nowMS, in milliseconds of
// any clock that the calls share. The addresses must not be changed.
func (c *Cache) Get(name string, nowMS int64) (addrs []netip.Addr, state State) {
	i, ok := c.index[name]
	if !ok {
		return nil, Miss
	}
	e := &c.entries[i]
	if nowMS >= e.expires {
		c.remove(i)
		return nil, Miss
	}
	if c.newest != i {
		c.unlink(i)
		c.link(i)
	}
	if len(e.addrs) == 0 {
		return nil, Negative
	}
	return e.addrs, Fresh
}

// Put keeps an answer that came at the time nowMS; one without TTL is not kept.
func (c *Cache) Put(name string, a Answer, nowMS int64) {
	if c.max <= 0 || len(name) > maxName+1 {
		return
	}
	i, known := c.index[name]
	if a.TTL <= 0 {
		if known {
			c.remove(i)
		}
		return
	}
	if !known {
		i = c.place()
		// The name may be part of a larger string, which is not to be kept.
		c.entries[i].name = strings.Clone(name)
		c.index[c.entries[i].name] = i
	} else {
		c.unlink(i)
	}
	c.link(i)
	e := &c.entries[i]
	e.addrs = a.Addrs
	if a.Err != nil {
		e.addrs = nil
	}
	e.expires = nowMS + max(1, int64(a.TTL/time.Millisecond))
}

// place returns an entry that is in no list, at the cost of the oldest when
// there is no room.
func (c *Cache) place() int32 {
	if c.free < 0 && len(c.entries) < c.max {
		c.entries = append(c.entries, entry{})
		return int32(len(c.entries) - 1)
	}
	if c.free < 0 {
		c.remove(c.oldest)
	}
	i := c.free
	c.free = c.entries[i].older
	return i
}

func (c *Cache) remove(i int32) {
	c.unlink(i)
	delete(c.index, c.entries[i].name)
	c.entries[i] = entry{older: c.free}
	c.free = i
}

// link makes an entry the newest.
func (c *Cache) link(i int32) {
	e := &c.entries[i]
	e.newer, e.older = -1, c.newest
	if c.newest >= 0 {
		c.entries[c.newest].newer = i
	}
	c.newest = i
	if c.oldest < 0 {
		c.oldest = i
	}
}

func (c *Cache) unlink(i int32) {
	e := &c.entries[i]
	if e.newer >= 0 {
		c.entries[e.newer].older = e.older
	} else {
		c.newest = e.older
	}
	if e.older >= 0 {
		c.entries[e.older].newer = e.newer
	} else {
		c.oldest = e.newer
	}
}
