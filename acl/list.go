package acl

import (
	"net/netip"

	"3proxyd/config"
	"3proxyd/internal/ipaddr"
)

// Request is what a list decides about.
type Request struct {
	// User is the name the rules compare with; "" is nobody, whom no rule
	// that names users matches.
	User string
	// Client is the source address; the zero Addr (a Unix socket) is in no
	// source list.
	Client netip.Addr
	// Host is the name the client asked for, "" when it gave an address. Case
	// and final dots do not matter, and an IP literal counts as an address.
	Host string
	// Addr is the address of the target, zero while it is not known.
	Addr netip.Addr
	// NoAddr says that the target has no address and never will (a Unix
	// socket, a name that a parent resolves): it is in no target range.
	NoAddr bool
	Port   uint16
	// AnyAddr and AnyPort ask whether some target may be allowed: Host and Addr,
	// or Port, are not known yet, and rules are compared without them.
	AnyAddr, AnyPort bool
	// Op is exactly one operation.
	Op config.Operations
	// Weekday counts from 0, Sunday; Second from local midnight.
	Weekday int
	Second  int
}

// Verdict is the answer of a list.
type Verdict uint8

// The verdicts.
const (
	// Allow and Deny are the verdicts of a rule.
	Allow Verdict = iota
	Deny
	// NoMatch means that no rule matched, which refuses the request.
	NoMatch
	// NeedAddr means that the verdict depends on the address of the target,
	// which is not known: resolve the name, set Request.Addr, ask again, and
	// connect to that very address.
	NeedAddr
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case NoMatch:
		return "no match"
	}
	return "address needed"
}

// List is a compiled access list. It is immutable.
type List struct {
	rules []rule
	main  *index
	// The rules with target addresses by verdict, to find out whether an
	// unknown address matters.
	allowByAddr, denyByAddr *index
	anonymous               bool
}

// Compile builds a list of the rules. The order of the rules decides: the first
// one that matches gives the verdict.
//
// A rule with target hosts matches only requests with a name, one with target
// ranges only the target's address, one with both when either does. Names that
// are longer than DNS allows match no rule.
func Compile(rules []config.Rule) *List {
	l := &List{rules: make([]rule, len(rules)), anonymous: len(rules) == 0}
	var all, allows, denies []int32
	for i := range rules {
		r := newRule(&rules[i])
		l.rules[i] = r
		all = append(all, int32(i))
		l.anonymous = l.anonymous || r.allow && len(r.users) == 0
		switch {
		case !r.hasTargets:
		case r.allow:
			allows = append(allows, int32(i))
		default:
			denies = append(denies, int32(i))
		}
	}
	l.main = newIndex(l.rules, all, true)
	l.allowByAddr = newIndex(l.rules, allows, false)
	l.denyByAddr = newIndex(l.rules, denies, false)
	return l
}

// check returns the verdict on a request of a user, whatever r.User is, and the
// number of the rule that gave it, counted from 0; -1 when no single rule did. A
// nil or empty list allows everything (3proxy.cfg(5), "allow").
//
// While the address is not known the verdict is NeedAddr only when an address
// can change it. The rule is then the one that decides for addresses in no
// range before it.
func (l *List) check(r *Request, user string) (Verdict, int) {
	if l == nil || len(l.rules) == 0 {
		return Allow, -1
	}
	host, addr, ok := targetOf(r)
	if !ok {
		return NoMatch, -1
	}
	var buf [maxName]byte
	q := query{
		user:    user,
		host:    buf[:len(host)],
		src:     toIP(r.Client),
		dst:     toIP(addr),
		port:    portKey(r.Port),
		op:      r.Op,
		weekday: uint8(r.Weekday) & 7,
		second:  r.Second,
	}
	for i := range len(host) {
		buf[i] = lower(host[i])
	}
	if r.AnyAddr || r.AnyPort {
		return l.checkSome(r, addr, &q)
	}
	none := int32(len(l.rules))
	first := l.main.first(&q, none)
	if v4, ok := ipaddr.Embedded(addr); ok {
		q.dst = toIP(v4)
		first = l.main.first(&q, first)
	}
	verdict, rule := NoMatch, -1
	if first < none {
		verdict, rule = verdictOf(l.rules[first].allow), int(first)
	}
	if q.dst.fam == famNone && !r.NoAddr && l.addrMatters(&q, first, verdict) {
		return NeedAddr, rule
	}
	return verdict, rule
}

// checkSome is check for a request of which the address or the port of the
// target is not known: Allow when a rule allows some target that no rule before
// it denies for certain. addr is that of the target, if it is known.
func (l *List) checkSome(r *Request, addr netip.Addr, q *query) (Verdict, int) {
	carried := *q
	if v4, ok := ipaddr.Embedded(addr); ok {
		carried.dst = toIP(v4)
	}
	for i := range l.rules {
		rule := &l.rules[i]
		if !rule.matchesRequester(q) || !r.AnyPort && !rule.matchPort(q) {
			continue
		}
		certain := rule.anyTarget || !r.AnyAddr && (rule.matchTarget(q) || rule.matchTarget(&carried))
		possible := certain || r.AnyAddr || rule.hasTargets && q.dst.fam == famNone && !r.NoAddr
		switch {
		case rule.allow && possible:
			return Allow, i
		case !rule.allow && certain && (rule.ports == nil || !r.AnyPort):
			return Deny, i
		}
	}
	return NoMatch, -1
}

// targetOf splits the target in name and address; ok is false for a name that
// is too long to be one.
func targetOf(r *Request) (host string, addr netip.Addr, ok bool) {
	host, addr = r.Host, r.Addr
	// With a final dot it is a name, whatever it looks like.
	if a, literal := parseLiteral(host); literal {
		return "", a, true
	}
	for len(host) > 0 && host[len(host)-1] == '.' {
		host = host[:len(host)-1]
	}
	return host, addr, len(host) <= maxName
}

func verdictOf(allow bool) Verdict {
	if allow {
		return Allow
	}
	return Deny
}

// addrMatters tells whether a rule before the first that surely matches would
// decide otherwise for some address.
func (l *List) addrMatters(q *query, first int32, verdict Verdict) bool {
	q.anyAddress = true
	if verdict != Allow && l.allowByAddr.first(q, first) < first {
		return true
	}
	return verdict != Deny && l.denyByAddr.first(q, first) < first
}

// Len is the number of rules.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.rules)
}

// allowsAnonymous tells whether the list can allow a request without a user.
func (l *List) allowsAnonymous() bool { return l == nil || l.anonymous }
