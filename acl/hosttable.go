package acl

import "math/bits"

// hostTable finds the patterns that match a name without looking at all of
// them. Whole names, beginnings and ends are found by a hash that grows with
// every byte; the rest by their first three bytes.
type hostTable struct {
	patterns []tablePattern
	slots    []hostSlot
	mask     uint64
	// lengths tells for exact, suffix and prefix which lengths occur.
	lengths [3][4]uint64
	// byGram lists the patterns with a given beginning, kind contains.
	byGram map[uint32][]int32
	// short lists the patterns of kind contains under three bytes.
	short []int32
}

// tablePattern is a pattern and the rules that have it, in order.
type tablePattern struct {
	hostPattern
	rules []int32
}

// hostSlot is a place of the open-addressing hash table; pattern is one more
// than the index, 0 being free.
type hostSlot struct {
	hash    uint64
	pattern int32
}

// ruleHosts is what one rule brings into a hostTable.
type ruleHosts struct {
	rule     int32
	patterns []hostPattern
}

// newHostTable builds the table; entries are in order of the rules.
func newHostTable(entries []ruleHosts) *hostTable {
	t := &hostTable{}
	index := map[hostPattern]int32{}
	for _, e := range entries {
		for _, p := range e.patterns {
			i, ok := index[p]
			if !ok {
				i = int32(len(t.patterns))
				index[p] = i
				t.patterns = append(t.patterns, tablePattern{hostPattern: p})
			}
			list := &t.patterns[i].rules
			if n := len(*list); n == 0 || (*list)[n-1] != e.rule {
				*list = append(*list, e.rule)
			}
		}
	}
	if len(t.patterns) == 0 {
		return nil
	}
	t.slots = make([]hostSlot, 1<<bits.Len(uint(2*len(t.patterns))))
	t.mask = uint64(len(t.slots) - 1)
	for i := range t.patterns {
		t.insert(int32(i))
	}
	return t
}

func (t *hostTable) insert(i int32) {
	p := &t.patterns[i]
	switch {
	case p.kind != contains:
		n := len(p.name)
		t.lengths[p.kind][n>>6] |= 1 << (n & 63)
		hash := finish(p.hash(), p.kind)
		at := hash & t.mask
		for t.slots[at].pattern != 0 {
			at = (at + 1) & t.mask
		}
		t.slots[at] = hostSlot{hash, i + 1}
	case len(p.name) < 3:
		t.short = append(t.short, i)
	default:
		if t.byGram == nil {
			t.byGram = map[uint32][]int32{}
		}
		g := gramOf(p.name)
		t.byGram[g] = append(t.byGram[g], i)
	}
}

func gramOf(s string) uint32 { return uint32(s[0])<<16 | uint32(s[1])<<8 | uint32(s[2]) }

// grow is one step of the hash, finish its end.
func grow(h uint64, c byte) uint64 { return (h + uint64(c) + 1) * 0x9E3779B97F4A7C15 }

func finish(h uint64, kind patternKind) uint64 {
	h ^= h >> 29
	return (h + uint64(kind)) * 0xBF58476D1CE4E5B9 >> 7
}

// hash is computed in the order in which a lookup meets the bytes, and still
// to be finished.
func (p *hostPattern) hash() uint64 {
	var h uint64
	for i := range len(p.name) {
		if p.kind == suffix {
			h = grow(h, p.name[len(p.name)-1-i])
		} else {
			h = grow(h, p.name[i])
		}
	}
	return h
}

// has tells whether a pattern of that kind and length exists.
func (t *hostTable) has(kind patternKind, n int) bool {
	return t.lengths[kind][n>>6]>>(n&63)&1 == 1
}

// probe returns the pattern of that kind with that text, or nil.
func (t *hostTable) probe(kind patternKind, h uint64, text []byte) *tablePattern {
	hash := finish(h, kind)
	for at := hash & t.mask; t.slots[at].pattern != 0; at = (at + 1) & t.mask {
		if t.slots[at].hash != hash {
			continue
		}
		p := &t.patterns[t.slots[at].pattern-1]
		if p.kind == kind && p.name == string(text) {
			return p
		}
	}
	return nil
}

// visit calls fn for every pattern that matches the name, some of them more
// than once, until fn returns false. The name is not empty and at most
// maxName bytes long.
func (t *hostTable) visit(host []byte, fn func(*tablePattern) bool) {
	if t == nil {
		return
	}
	if t.lengths[exact] != [4]uint64{} || t.lengths[prefix] != [4]uint64{} {
		if !t.visitForward(host, fn) {
			return
		}
	}
	if t.lengths[suffix] != [4]uint64{} && !t.visitBackward(host, fn) {
		return
	}
	for _, i := range t.short {
		if t.patterns[i].match(host) && !fn(&t.patterns[i]) {
			return
		}
	}
	if t.byGram != nil {
		t.visitGrams(host, fn)
	}
}

func (t *hostTable) visitForward(host []byte, fn func(*tablePattern) bool) bool {
	var h uint64
	for i, c := range host {
		h = grow(h, c)
		if !t.has(prefix, i+1) {
			continue
		}
		if p := t.probe(prefix, h, host[:i+1]); p != nil && !fn(p) {
			return false
		}
	}
	if !t.has(exact, len(host)) {
		return true
	}
	p := t.probe(exact, h, host)
	return p == nil || fn(p)
}

func (t *hostTable) visitBackward(host []byte, fn func(*tablePattern) bool) bool {
	var h uint64
	for i := len(host) - 1; i >= 0; i-- {
		h = grow(h, host[i])
		if !t.has(suffix, len(host)-i) {
			continue
		}
		if p := t.probe(suffix, h, host[i:]); p != nil && !fn(p) {
			return false
		}
	}
	return true
}

func (t *hostTable) visitGrams(host []byte, fn func(*tablePattern) bool) {
	for i := 0; i+3 <= len(host); i++ {
		g := uint32(host[i])<<16 | uint32(host[i+1])<<8 | uint32(host[i+2])
		for _, j := range t.byGram[g] {
			p := &t.patterns[j]
			if len(p.name) <= len(host)-i && string(host[i:i+len(p.name)]) == p.name && !fn(p) {
				return
			}
		}
	}
}

// matches tells whether any pattern matches.
func (t *hostTable) matches(host []byte) bool {
	found := false
	t.visit(host, func(*tablePattern) bool {
		found = true
		return false
	})
	return found
}

// crowd is about the number of rules that a name met by one of the patterns
// meets, at worst.
func (t *hostTable) crowd(patterns []hostPattern) int {
	n := 0
	for _, p := range patterns {
		switch {
		case p.kind != contains:
			n = max(n, len(t.probe(p.kind, p.hash(), []byte(p.name)).rules))
		case len(p.name) < 3:
			n = max(n, len(t.short))
		default:
			n = max(n, len(t.byGram[gramOf(p.name)]))
		}
	}
	return n
}
