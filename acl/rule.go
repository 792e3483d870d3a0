package acl

import (
	"slices"

	"3proxyd/config"
)

// rule is a config.Rule compiled for matching.
type rule struct {
	allow    bool
	ops      config.Operations
	weekdays uint8
	times    []config.TimeRange
	ports    spanSet
	users    []string // sorted

	anySource, anyTarget bool
	sources              addrSet
	hasTargets           bool
	targets              addrSet
	hosts                []hostPattern
	// table replaces hosts when there are many.
	table *hostTable
}

// fewHosts is the number of patterns up to which comparing them one by one is
// as fast as the table.
const fewHosts = 8

func newRule(c *config.Rule) rule {
	r := rule{
		allow:      c.Allow,
		ops:        c.Operations,
		weekdays:   c.Weekdays,
		times:      c.Times,
		ports:      newPortSet(c.Ports),
		users:      slices.Clone(c.Users),
		anySource:  len(c.Sources) == 0,
		anyTarget:  len(c.Targets) == 0 && len(c.TargetHosts) == 0,
		sources:    newAddrSet(c.Sources),
		hasTargets: len(c.Targets) > 0,
		targets:    newTargetSet(c.Targets, c.Allow),
		hosts:      newHostPatterns(c.TargetHosts),
	}
	slices.Sort(r.users)
	if len(r.hosts) > fewHosts {
		r.table = newHostTable([]ruleHosts{{0, r.hosts}})
	}
	return r
}

func newPortSet(ports []config.PortRange) spanSet {
	var spans []span
	for _, p := range ports {
		if p.From <= p.To {
			spans = append(spans, span{portKey(p.From), portKey(p.To)})
		}
	}
	if len(spans) == 0 && len(ports) > 0 {
		return spanSet{}
	}
	return newSpanSet(spans)
}

func portKey(port uint16) key { return key{0, uint64(port)} }

// query is a Request in the form the tables compare. An empty user is nobody,
// an empty host means that the client gave an address.
type query struct {
	user     string
	host     []byte
	src, dst ip
	port     key
	op       config.Operations
	weekday  uint8
	second   int
	// anyAddress takes every list of target addresses for a match.
	anyAddress bool
}

func (r *rule) matches(q *query) bool {
	return r.matchPort(q) && r.matchesRequester(q) && r.matchTarget(q)
}

func (r *rule) matchPort(q *query) bool { return r.ports == nil || r.ports.contains(q.port) }

// matchesRequester compares all but the target and its port.
func (r *rule) matchesRequester(q *query) bool {
	if r.ops&q.op != q.op && r.ops != 0 {
		return false
	}
	if len(r.users) > 0 && !r.matchUser(q.user) {
		return false
	}
	if !r.anySource && !r.sources.contains(q.src) {
		return false
	}
	if r.weekdays != 0 && r.weekdays>>q.weekday&1 == 0 {
		return false
	}
	return len(r.times) == 0 || r.matchTime(q.second)
}

func (r *rule) matchUser(user string) bool {
	if user == "" {
		return false
	}
	_, found := slices.BinarySearch(r.users, user)
	return found
}

func (r *rule) matchTime(second int) bool {
	for _, t := range r.times {
		if second >= t.From && second < t.To {
			return true
		}
	}
	return false
}

func (r *rule) matchTarget(q *query) bool {
	if r.anyTarget {
		return true
	}
	if r.hasTargets && (q.anyAddress || r.targets.contains(q.dst)) {
		return true
	}
	return len(q.host) > 0 && r.matchHost(q.host)
}

func (r *rule) matchHost(host []byte) bool {
	if r.table != nil {
		return r.table.matches(host)
	}
	for i := range r.hosts {
		if r.hosts[i].match(host) {
			return true
		}
	}
	return false
}
