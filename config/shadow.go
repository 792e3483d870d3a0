package config

import (
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// shadowBudget bounds the work of looking for rules that can never match, in
// comparisons of list items over all lists. What is beyond it is not checked.
const shadowBudget = 4_000_000

// warnShadowed warns of every rule all of whose requests an earlier rule of
// the list matches first.
func (l *loader) warnShadowed(list []Rule) {
	if l.shadowBudget <= 0 {
		return
	}
	ix := newShadowIndex(list, &l.shadowBudget)
	for i := range list {
		j := ix.coveredBy(i)
		if j < 0 {
			continue
		}
		r := &list[i]
		l.warnAt(l.seqOf[r.Pos], r.Pos, "%s: this rule can never match: the %s at %s matches all of its requests first",
			verb(*r), verb(list[j]), list[j].Pos)
	}
}

// shadowIndex finds the rules that may cover another. A rule that names users
// covers only rules whose first user it names; the same goes for sources and
// targets. So it is enough to file each rule under one of its fields, the one
// whose first item the fewest other rules share.
type shadowIndex struct {
	rules   []wideRule
	budget  *int
	byUser  map[string][]int
	sources intervals
	targets intervals
	hosts   hostIndex
	general []int
}

func newShadowIndex(list []Rule, budget *int) *shadowIndex {
	ix := &shadowIndex{budget: budget, byUser: map[string][]int{}, hosts: newHostIndex()}
	ix.rules = make([]wideRule, len(list))
	shared := map[any]int{}
	for i := range list {
		ix.rules[i] = widen(&list[i])
		for _, key := range ix.rules[i].keys() {
			shared[key]++
		}
	}
	for i := range list {
		ix.file(i, shared)
	}
	ix.sources.build()
	ix.targets.build()
	return ix
}

// The keys of a wideRule: the first item of each field that has any.
type (
	userKey   string
	sourceKey IPRange
	targetKey IPRange
	hostKey   HostPattern
)

func (r *wideRule) keys() []any {
	var keys []any
	if r.users != nil {
		keys = append(keys, userKey(r.firstUser))
	}
	if r.sources != nil {
		keys = append(keys, sourceKey(r.sources[0]))
	}
	switch {
	case len(r.hosts) > 0:
		keys = append(keys, hostKey(r.hosts[0]))
	case r.targets != nil:
		keys = append(keys, targetKey(r.targets[0]))
	}
	return keys
}

func (ix *shadowIndex) file(i int, shared map[any]int) {
	r := &ix.rules[i]
	var best any
	for _, key := range r.keys() {
		if best == nil || shared[key] < shared[best] {
			best = key
		}
	}
	switch best.(type) {
	case userKey:
		for name := range r.users {
			ix.byUser[name] = append(ix.byUser[name], i)
		}
	case sourceKey:
		ix.sources.add(r.sources, i)
	case hostKey, targetKey:
		ix.targets.add(r.targets, i)
		for _, h := range r.hosts {
			ix.hosts.add(h, i)
		}
	default:
		ix.general = append(ix.general, i)
	}
}

// coveredBy returns a rule before i that covers rule i, or -1.
func (ix *shadowIndex) coveredBy(i int) int {
	r := &ix.rules[i]
	found := -1
	// try ends the search when it returns true.
	try := func(j int) bool {
		if *ix.budget--; *ix.budget <= 0 {
			return true
		}
		cost := r.weight + len(r.hosts)*len(ix.rules[j].hosts)
		if j >= i || cost > *ix.budget {
			return false
		}
		if !ix.rules[j].coversScalars(r) {
			return false
		}
		*ix.budget -= cost
		if ix.rules[j].covers(r) {
			found = j
		}
		return found >= 0
	}
	ix.candidates(r, try)
	return found
}

// candidates calls try for every rule that may cover r until it returns true.
func (ix *shadowIndex) candidates(r *wideRule, try func(int) bool) {
	if slices.ContainsFunc(ix.general, try) {
		return
	}
	if r.users != nil && slices.ContainsFunc(ix.byUser[r.firstUser], try) {
		return
	}
	if r.sources != nil && ix.sources.stab(r.sources[0].From, try) {
		return
	}
	switch {
	case len(r.hosts) > 0:
		ix.hosts.match(r.hosts[0], try)
	case r.targets != nil:
		ix.targets.stab(r.targets[0].From, try)
	}
}

// wideRule is a rule made easy to compare: ranges are sorted and merged, and
// a field that matches everything is nil or has every bit.
type wideRule struct {
	users     map[string]bool
	firstUser string
	sources   []IPRange
	targets   []IPRange
	hosts     []HostPattern
	ports     []span
	times     []span
	ops       Operations
	days      uint8
	weight    int // number of items of all lists
}

// span is an inclusive range of numbers.
type span struct{ from, to int }

const everyDay = 1<<7 - 1

func widen(r *Rule) wideRule {
	w := wideRule{
		sources: mergeRanges(r.Sources), targets: mergeRanges(r.Targets),
		hosts: r.TargetHosts, ops: r.Operations, days: r.Weekdays,
		weight: len(r.Users) + len(r.Sources) + len(r.Targets) + len(r.TargetHosts) + len(r.Ports) + len(r.Times),
	}
	if len(r.Users) > 0 {
		w.firstUser = r.Users[0]
		w.users = make(map[string]bool, len(r.Users))
		for _, name := range r.Users {
			w.users[name] = true
		}
	}
	for _, p := range r.Ports {
		w.ports = append(w.ports, span{int(p.From), int(p.To)})
	}
	for _, t := range r.Times {
		w.times = append(w.times, span{t.From, t.To - 1})
	}
	w.ports = mergeSpans(w.ports, 1, 65535)
	w.times = mergeSpans(w.times, 0, daySeconds-1)
	if w.ops == 0 {
		w.ops = ^Operations(0)
	}
	if w.days == 0 {
		w.days = everyDay
	}
	return w
}

func (r *wideRule) hasTargets() bool { return r.targets != nil || len(r.hosts) > 0 }

// coversScalars is the part of covers that takes no time.
func (r *wideRule) coversScalars(b *wideRule) bool {
	return b.ops&^r.ops == 0 && b.days&^r.days == 0
}

// covers tells whether every request that b matches is one that r matches.
func (r *wideRule) covers(b *wideRule) bool {
	return r.coversScalars(b) &&
		coversUsers(r.users, b.users) &&
		coversRanges(r.sources, b.sources) &&
		coversSpans(r.ports, b.ports) &&
		coversSpans(r.times, b.times) &&
		r.coversTargets(b)
}

func coversUsers(a, b map[string]bool) bool {
	if a == nil {
		return true
	}
	if b == nil {
		return false
	}
	for name := range b {
		if !a[name] {
			return false
		}
	}
	return true
}

func (r *wideRule) coversTargets(b *wideRule) bool {
	if !r.hasTargets() {
		return true
	}
	if !b.hasTargets() {
		return false
	}
	if len(b.targets) > 0 && (len(r.targets) == 0 || !coversRanges(r.targets, b.targets)) {
		return false
	}
	for _, h := range b.hosts {
		if !slices.ContainsFunc(r.hosts, func(p HostPattern) bool { return coversHost(p, h) }) {
			return false
		}
	}
	return true
}

// coversHost tells whether p matches every name that h matches.
func coversHost(p, h HostPattern) bool {
	switch {
	case p.AnyPrefix && p.AnySuffix:
		return strings.Contains(h.Name, p.Name)
	case p.AnyPrefix:
		return !h.AnySuffix && strings.HasSuffix(h.Name, p.Name)
	case p.AnySuffix:
		return !h.AnyPrefix && strings.HasPrefix(h.Name, p.Name)
	}
	return h == p
}

// coversRanges tells whether merged ranges a, nil for everything, contain b.
func coversRanges(a, b []IPRange) bool {
	if a == nil {
		return true
	}
	if b == nil {
		return false
	}
	for _, r := range b {
		i := sort.Search(len(a), func(i int) bool { return !a[i].To.Less(r.To) })
		if i == len(a) || r.From.Less(a[i].From) || a[i].From.BitLen() != r.From.BitLen() {
			return false
		}
	}
	return true
}

// mergeRanges sorts ranges and joins those that overlap or touch.
func mergeRanges(list []IPRange) []IPRange {
	if len(list) == 0 {
		return nil
	}
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b IPRange) int { return a.From.Compare(b.From) })
	out := sorted[:1]
	for _, r := range sorted[1:] {
		last := &out[len(out)-1]
		// Next of the last address of a family is the zero Addr, which is
		// less than every other; nothing of that family can follow it.
		next := last.To.Next()
		joins := r.From.BitLen() == last.To.BitLen() && (!next.IsValid() || !next.Less(r.From))
		switch {
		case !joins:
			out = append(out, r)
		case last.To.Less(r.To):
			last.To = r.To
		}
	}
	return out
}

// coversSpans is coversRanges for numbers.
func coversSpans(a, b []span) bool {
	if a == nil {
		return true
	}
	if b == nil {
		return false
	}
	for _, r := range b {
		i := sort.Search(len(a), func(i int) bool { return a[i].to >= r.to })
		if i == len(a) || r.from < a[i].from {
			return false
		}
	}
	return true
}

// mergeSpans sorts and joins spans; spans that fill lo to hi become nil.
func mergeSpans(list []span, lo, hi int) []span {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b span) int { return a.from - b.from })
	out := list[:1]
	for _, r := range list[1:] {
		last := &out[len(out)-1]
		if r.from > last.to+1 {
			out = append(out, r)
			continue
		}
		last.to = max(last.to, r.to)
	}
	if len(out) == 1 && out[0].from <= lo && out[0].to >= hi {
		return nil
	}
	return out
}

// intervals finds the ranges that contain an address. It is a balanced binary
// tree laid out in a sorted slice, each node with the largest end below it.
type intervals struct{ nodes []interval }

type interval struct {
	IPRange
	rule int
	last netip.Addr // largest To in the subtree
}

func (v *intervals) add(ranges []IPRange, rule int) {
	for _, r := range ranges {
		v.nodes = append(v.nodes, interval{IPRange: r, rule: rule})
	}
}

func (v *intervals) build() {
	slices.SortFunc(v.nodes, func(a, b interval) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return a.rule - b.rule
	})
	fillLast(v.nodes)
}

func fillLast(nodes []interval) netip.Addr {
	if len(nodes) == 0 {
		return netip.Addr{}
	}
	mid := len(nodes) / 2
	n := &nodes[mid]
	n.last = n.To
	for _, below := range []netip.Addr{fillLast(nodes[:mid]), fillLast(nodes[mid+1:])} {
		if n.last.Less(below) {
			n.last = below
		}
	}
	return n.last
}

// stab calls found for the rule of every range that contains a, until found
// returns true.
func (v *intervals) stab(a netip.Addr, found func(int) bool) bool {
	return stab(v.nodes, a, found)
}

func stab(nodes []interval, a netip.Addr, found func(int) bool) bool {
	if len(nodes) == 0 {
		return false
	}
	mid := len(nodes) / 2
	n := &nodes[mid]
	if n.last.Less(a) {
		return false
	}
	if stab(nodes[:mid], a, found) {
		return true
	}
	if a.Less(n.From) {
		return false
	}
	if !n.To.Less(a) && found(n.rule) {
		return true
	}
	return stab(nodes[mid+1:], a, found)
}

// hostIndex finds the patterns that may cover another.
type hostIndex struct {
	exact    map[HostPattern][]int
	suffix   map[string][]int // "*name"
	prefix   map[string][]int // "name*"
	contains []int            // "*name*"
}

func newHostIndex() hostIndex {
	return hostIndex{exact: map[HostPattern][]int{}, suffix: map[string][]int{}, prefix: map[string][]int{}}
}

func (x *hostIndex) add(p HostPattern, rule int) {
	switch {
	case p.AnyPrefix && p.AnySuffix:
		x.contains = append(x.contains, rule)
	case p.AnyPrefix:
		x.suffix[p.Name] = append(x.suffix[p.Name], rule)
	case p.AnySuffix:
		x.prefix[p.Name] = append(x.prefix[p.Name], rule)
	default:
		x.exact[p] = append(x.exact[p], rule)
	}
}

// match calls found for every rule with a pattern that covers h, until found
// returns true.
func (x *hostIndex) match(h HostPattern, found func(int) bool) bool {
	if slices.ContainsFunc(x.exact[h], found) || slices.ContainsFunc(x.contains, found) {
		return true
	}
	for i := range len(h.Name) {
		if slices.ContainsFunc(x.suffix[h.Name[i:]], found) || slices.ContainsFunc(x.prefix[h.Name[:i+1]], found) {
			return true
		}
	}
	return false
}
