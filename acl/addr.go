package acl

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"3proxyd/config"
)

// key is a number of up to 128 bits: an address or a port.
type key struct{ hi, lo uint64 }

func (k key) less(o key) bool {
	if k.hi != o.hi {
		return k.hi < o.hi
	}
	return k.lo < o.lo
}

func (k key) compare(o key) int {
	switch {
	case k.less(o):
		return -1
	case o.less(k):
		return 1
	}
	return 0
}

// next is k+1; ok is false when that does not fit.
func (k key) next() (n key, ok bool) {
	n = key{k.hi, k.lo + 1}
	if n.lo == 0 {
		n.hi++
	}
	return n, n != key{}
}

// family tells the two address spaces apart. An IPv4 address is never inside
// an IPv6 range, however wide.
type family uint8

const (
	famNone family = iota
	fam4
	fam6
)

// ip is an address in the form the tables compare.
type ip struct {
	key
	fam family
}

// toIP converts an address. IPv4-mapped IPv6 addresses count as IPv4, and the
// zone is dropped.
func toIP(a netip.Addr) ip {
	if !a.IsValid() {
		return ip{}
	}
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return ip{key{0, uint64(binary.BigEndian.Uint32(b[:]))}, fam4}
	}
	b := a.As16()
	return ip{key{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, fam6}
}

// span is an inclusive range of keys.
type span struct{ from, to key }

func (s span) contains(k key) bool { return !k.less(s.from) && !s.to.less(k) }

// spanSet is a set of keys as sorted spans that neither overlap nor touch.
type spanSet []span

func newSpanSet(spans []span) spanSet {
	if len(spans) == 0 {
		return nil
	}
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b span) int { return a.from.compare(b.from) })
	set := sorted[:1]
	for _, s := range sorted[1:] {
		last := &set[len(set)-1]
		after, ok := last.to.next()
		if ok && after.less(s.from) {
			set = append(set, s)
			continue
		}
		if last.to.less(s.to) {
			last.to = s.to
		}
	}
	return slices.Clip(set)
}

func (s spanSet) contains(k key) bool {
	lo, hi := 0, len(s)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s[mid].to.less(k) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(s) && s[lo].contains(k)
}

// addrSet is a set of addresses of both families.
type addrSet struct{ v4, v6 spanSet }

// newAddrSet builds a set of the ranges. A range whose ends are of different
// families or in the wrong order holds no address.
func newAddrSet(ranges []config.IPRange) addrSet {
	v4, v6 := newSpans(ranges)
	return addrSet{newSpanSet(v4), newSpanSet(v6)}
}

// newTargetSet builds the set of the target addresses of a rule.
func newTargetSet(ranges []config.IPRange, allow bool) addrSet {
	v4, v6 := newSpans(ranges)
	if allow {
		v6 = allowedSpans(v6)
	}
	return addrSet{newSpanSet(v4), newSpanSet(v6)}
}

func newSpans(ranges []config.IPRange) (v4, v6 []span) {
	for _, r := range ranges {
		from, to := toIP(r.From), toIP(r.To)
		if from.fam != to.fam || to.less(from.key) {
			continue
		}
		switch from.fam {
		case fam4:
			v4 = append(v4, span{from.key, to.key})
		case fam6:
			v6 = append(v6, span{from.key, to.key})
		}
	}
	return v4, v6
}

func (s *addrSet) contains(a ip) bool {
	switch a.fam {
	case fam4:
		return s.v4.contains(a.key)
	case fam6:
		return s.v6.contains(a.key)
	}
	return false
}
