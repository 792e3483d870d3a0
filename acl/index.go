package acl

// index finds the first of a set of rules that matches a query. Every rule is
// filed under one of its fields, the one that the fewest other rules share a
// value of; only rules that restrict no such field are looked at in turn.
type index struct {
	rules []rule

	users            map[string][]int32
	hosts            *hostTable
	source4, source6 spanTable
	target4, target6 spanTable
	ports            spanTable
	rest             []int32
}

// field is a field rules can be filed under.
type field int

const (
	byUser field = iota
	byTarget
	bySource
	byPort
	numFields
	byNothing
)

// filing collects the rules to be filed, in order.
type filing struct {
	users            map[string][]int32
	hosts            []ruleHosts
	source4, source6 []ruleSpans
	target4, target6 []ruleSpans
	ports            []ruleSpans
	rest             []int32
}

// newIndex files the rules with the given numbers, which are in order.
// withTargets is false for an index of rules whose targets are not looked at.
func newIndex(rules []rule, ids []int32, withTargets bool) *index {
	var all filing
	for _, id := range ids {
		for f := range numFields {
			if f != byTarget || withTargets {
				all.add(f, id, &rules[id])
			}
		}
	}
	whole := all.index(rules)

	var chosen filing
	for _, id := range ids {
		chosen.add(whole.best(&rules[id], withTargets), id, &rules[id])
	}
	return chosen.index(rules)
}

// best is the field under which the rule has the least company.
func (ix *index) best(r *rule, withTargets bool) field {
	best, crowd := byNothing, int(^uint(0)>>1)
	for f := range numFields {
		if !r.restricts(f) || f == byTarget && !withTargets {
			continue
		}
		if n := ix.crowd(f, r); n < crowd {
			best, crowd = f, n
		}
	}
	return best
}

func (r *rule) restricts(f field) bool {
	switch f {
	case byUser:
		return len(r.users) > 0
	case byTarget:
		return !r.anyTarget
	case bySource:
		return !r.anySource
	case byPort:
		return r.ports != nil
	}
	return false
}

func (ix *index) crowd(f field, r *rule) int {
	switch f {
	case byUser:
		n := 0
		for _, u := range r.users {
			n = max(n, len(ix.users[u]))
		}
		return n
	case byTarget:
		return max(ix.hosts.crowd(r.hosts), ix.target4.crowd(r.targets.v4), ix.target6.crowd(r.targets.v6))
	case bySource:
		return max(ix.source4.crowd(r.sources.v4), ix.source6.crowd(r.sources.v6))
	}
	return ix.ports.crowd(r.ports)
}

// add files the rule under the field, if it restricts it.
func (fl *filing) add(f field, id int32, r *rule) {
	switch f {
	case byUser:
		fl.addUsers(id, r.users)
	case byTarget:
		if len(r.hosts) > 0 {
			fl.hosts = append(fl.hosts, ruleHosts{id, r.hosts})
		}
		addSpans(&fl.target4, id, r.targets.v4)
		addSpans(&fl.target6, id, r.targets.v6)
	case bySource:
		addSpans(&fl.source4, id, r.sources.v4)
		addSpans(&fl.source6, id, r.sources.v6)
	case byPort:
		addSpans(&fl.ports, id, r.ports)
	case byNothing:
		fl.rest = append(fl.rest, id)
	}
}

func (fl *filing) addUsers(id int32, users []string) {
	if fl.users == nil {
		fl.users = map[string][]int32{}
	}
	for _, u := range users {
		list := fl.users[u]
		if len(list) == 0 || list[len(list)-1] != id {
			fl.users[u] = append(list, id)
		}
	}
}

func addSpans(list *[]ruleSpans, id int32, spans spanSet) {
	if len(spans) > 0 {
		*list = append(*list, ruleSpans{id, spans})
	}
}

func (fl *filing) index(rules []rule) *index {
	return &index{
		rules:   rules,
		users:   fl.users,
		hosts:   newHostTable(fl.hosts),
		source4: newSpanTable(fl.source4),
		source6: newSpanTable(fl.source6),
		target4: newSpanTable(fl.target4),
		target6: newSpanTable(fl.target6),
		ports:   newSpanTable(fl.ports),
		rest:    fl.rest,
	}
}

// first returns the number of the first rule below limit that matches, or
// limit.
func (ix *index) first(q *query, limit int32) int32 {
	if len(ix.users) > 0 && q.user != "" {
		limit = ix.try(q, ix.users[q.user], limit)
	}
	limit = ix.tryAddr(q, &ix.source4, &ix.source6, q.src, limit)
	limit = ix.tryAddr(q, &ix.target4, &ix.target6, q.dst, limit)
	limit = ix.trySpans(q, &ix.ports, q.port, limit)
	if len(q.host) > 0 {
		ix.hosts.visit(q.host, func(p *tablePattern) bool {
			limit = ix.try(q, p.rules, limit)
			return true
		})
	}
	return ix.try(q, ix.rest, limit)
}

func (ix *index) tryAddr(q *query, t4, t6 *spanTable, a ip, limit int32) int32 {
	switch a.fam {
	case fam4:
		return ix.trySpans(q, t4, a.key, limit)
	case fam6:
		return ix.trySpans(q, t6, a.key, limit)
	}
	return limit
}

func (ix *index) trySpans(q *query, t *spanTable, k key, limit int32) int32 {
	for node := t.first(k); node != 0; node = t.up[node>>1] {
		limit = ix.try(q, t.list(node), limit)
	}
	return limit
}

// try returns the first rule of an ordered list that is below limit and
// matches, or limit.
func (ix *index) try(q *query, ids []int32, limit int32) int32 {
	for _, id := range ids {
		if id >= limit {
			return limit
		}
		if ix.rules[id].matches(q) {
			return id
		}
	}
	return limit
}
