package acl

import "slices"

// spanTable finds the rules whose spans hold a key. It is a segment tree over
// the elementary intervals between all ends of spans: n spans take
// O(n log n) memory however they overlap, and a key meets the lists of at most
// log n nodes, each in order of the rules.
type spanTable struct {
	// starts are the first keys of the elementary intervals, in order.
	starts []key
	// up gives for each node the nearest node towards the root, itself
	// included, that has a list; 0 is none.
	up []int32
	// The list of node i is ids[offset[i]:offset[i+1]].
	offset []int32
	ids    []int32
}

// ruleSpans is what one rule brings into a spanTable.
type ruleSpans struct {
	rule  int32
	spans spanSet
}

// newSpanTable builds the table; entries are in order of the rules.
func newSpanTable(entries []ruleSpans) spanTable {
	var t spanTable
	for _, e := range entries {
		for _, s := range e.spans {
			t.starts = append(t.starts, s.from)
			if after, ok := s.to.next(); ok {
				t.starts = append(t.starts, after)
			}
		}
	}
	if len(t.starts) == 0 {
		return t
	}
	t.starts = append(t.starts, key{})
	slices.SortFunc(t.starts, key.compare)
	t.starts = slices.Clip(slices.Compact(t.starts))

	nodes := make([][]int32, 2*len(t.starts))
	for _, e := range entries {
		for _, s := range e.spans {
			t.insert(nodes, e.rule, s)
		}
	}
	t.flatten(nodes)
	return t
}

// insert adds the rule to the nodes that together cover the span.
func (t *spanTable) insert(nodes [][]int32, rule int32, s span) {
	leaves := len(t.starts)
	l := t.interval(s.from) + leaves
	r := t.interval(s.to) + 1 + leaves
	for ; l < r; l, r = l>>1, r>>1 {
		if l&1 == 1 {
			nodes[l] = append(nodes[l], rule)
			l++
		}
		if r&1 == 1 {
			r--
			nodes[r] = append(nodes[r], rule)
		}
	}
}

func (t *spanTable) flatten(nodes [][]int32) {
	t.up = make([]int32, len(nodes))
	t.offset = make([]int32, len(nodes)+1)
	for i, list := range nodes {
		t.ids = append(t.ids, list...)
		t.offset[i+1] = int32(len(t.ids))
		t.up[i] = t.up[i>>1]
		if len(list) > 0 {
			t.up[i] = int32(i)
		}
	}
	t.ids = slices.Clip(t.ids)
}

// interval is the index of the elementary interval that holds k.
func (t *spanTable) interval(k key) int {
	lo, hi := 0, len(t.starts)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if k.less(t.starts[mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

// first returns the first node with rules for k, 0 when there is none; the
// next one after node n is t.up[n>>1].
func (t *spanTable) first(k key) int32 {
	if len(t.starts) == 0 {
		return 0
	}
	return t.up[t.interval(k)+len(t.starts)]
}

func (t *spanTable) list(node int32) []int32 {
	return t.ids[t.offset[node]:t.offset[node+1]]
}

// count is the number of rules whose spans hold k.
func (t *spanTable) count(k key) int {
	n := 0
	for node := t.first(k); node != 0; node = t.up[node>>1] {
		n += len(t.list(node))
	}
	return n
}

// crowd is the number of rules met at the ends of the spans, at worst.
func (t *spanTable) crowd(set spanSet) int {
	n := 0
	for _, s := range set {
		n = max(n, t.count(s.from), t.count(s.to))
	}
	return n
}
