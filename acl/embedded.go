package acl

import "3proxyd/internal/ipaddr"

// A target address that carries an IPv4 address (ipaddr.Embedded) is compared in
// both forms, and matches when either does: a rule about the IPv4 address holds
// for every spelling of it. A range of IPv6 addresses that is wider than such a
// prefix allows none of its addresses, only denies them; otherwise an "allow" for
// all of IPv6 would come before a "deny" for the IPv4 address.

// allowedSpans are the spans of an allow rule, without the addresses that carry
// an IPv4 address in those that are wider than their prefix.
func allowedSpans(v6 []span) []span {
	var out []span
	for _, s := range v6 {
		out = append(out, withoutEmbedded(s)...)
	}
	return out
}

func withoutEmbedded(s span) []span {
	left := []span{s}
	for _, p := range embeddingSpans {
		if p.contains(s.from) && p.contains(s.to) {
			return []span{s}
		}
		if p.from == (key{}) {
			p.from.lo = 2 // :: and ::1 carry none
		}
		left = subtract(left, p)
	}
	return left
}

// embeddingSpans are the prefixes of ipaddr as spans.
var embeddingSpans = func() []span {
	var spans []span
	for _, p := range ipaddr.Prefixes() {
		from := toIP(p.Addr()).key
		to := from
		hostBits := 128 - p.Bits()
		if hostBits > 64 {
			to.hi |= 1<<(hostBits-64) - 1
		}
		to.lo |= 1<<min(hostBits, 64) - 1
		spans = append(spans, span{from, to})
	}
	return spans
}()

// subtract returns what is left of the spans without those of cut.
func subtract(spans []span, cut span) []span {
	var out []span
	for _, s := range spans {
		if s.to.less(cut.from) || cut.to.less(s.from) {
			out = append(out, s)
			continue
		}
		if s.from.less(cut.from) {
			out = append(out, span{s.from, cut.from.previous()})
		}
		if after, ok := cut.to.next(); ok && !s.to.less(after) {
			out = append(out, span{after, s.to})
		}
	}
	return out
}

// previous is k-1; k is not 0.
func (k key) previous() key {
	if k.lo == 0 {
		k.hi--
	}
	return key{k.hi, k.lo - 1}
}
