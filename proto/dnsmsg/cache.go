package dnsmsg

import (
	"container/list"
	"strings"
	"time"
)

// Flags are those that a question is forwarded with.
type Flags uint8

// The flags: DO of RFC 3225, AD as RFC 6840 section 5.7 has it in a question,
// and CD of RFC 4035 section 3.2.2.
const (
	DNSSEC Flags = 1 << iota
	Authenticated
	CheckingDisabled
)

// Key is what a cached content answers.
type Key struct {
	Name  string // in lower case, with final dot
	Type  uint16
	Flags Flags
}

// Key returns the key of the question.
func (q *Query) Key() Key {
	k := Key{Name: strings.ToLower(q.Name), Type: q.Type, Flags: Authenticated}
	if q.DNSSEC {
		k.Flags |= DNSSEC
	}
	if q.CheckingDisabled {
		k.Flags |= CheckingDisabled
	}
	return k
}

// Cache keeps contents until their TTL is over; when it is full the least
// recently used goes. It belongs to one goroutine.
type Cache struct {
	entries map[Key]*list.Element
	used    *list.List // of *entry, the last used first
	max     int
	// bytes is the size of what is kept, maxBytes its bound, in bytes of
	// messages.
	bytes, maxBytes int
}

type entry struct {
	key     Key
	content *Content
	since   int64
}

// NewCache returns a cache of at most max contents with together at most
// maxBytes bytes.
func NewCache(max, maxBytes int) *Cache {
	return &Cache{entries: map[Key]*list.Element{}, used: list.New(), max: max, maxBytes: maxBytes}
}

// Get returns what is kept for a key at the time nowMS, in milliseconds of any
// clock that the calls share, and how old it is; nil when there is nothing.
func (c *Cache) Get(k Key, nowMS int64) (content *Content, age time.Duration) {
	el := c.entries[k]
	if el == nil {
		return nil, 0
	}
	e := el.Value.(*entry)
	age = time.Duration(nowMS-e.since) * time.Millisecond
	if age >= e.content.TTL {
		c.remove(el)
		return nil, 0
	}
	c.used.MoveToFront(el)
	return e.content, age
}

// Put keeps a content that came at the time nowMS, unless it is not to be kept.
func (c *Cache) Put(k Key, content *Content, nowMS int64) {
	if el := c.entries[k]; el != nil {
		c.remove(el)
	}
	size := content.cost(k)
	if content.TTL <= 0 || size > c.maxBytes/16 || c.max <= 0 {
		return
	}
	for len(c.entries) >= c.max || c.bytes+size > c.maxBytes {
		c.remove(c.used.Back())
	}
	c.bytes += size
	c.entries[k] = c.used.PushFront(&entry{k, content, nowMS})
}

// entryCost is what an entry takes beside its message, about, in bytes.
const entryCost = 256

func (c *Content) cost(k Key) int { return c.size + len(k.Name) + entryCost }

func (c *Cache) remove(el *list.Element) {
	e := c.used.Remove(el).(*entry)
	delete(c.entries, e.key)
	c.bytes -= e.content.cost(e.key)
}
