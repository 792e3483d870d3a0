package worker

import "net/netip"

// targets are the addresses of a target that have not been tried. Those of
// both families are tried by turns (RFC 8305 section 4).
type targets struct {
	// The slices are the name cache's and must not be written to.
	v4, v6 []netip.Addr
	// turn6 says that an IPv6 address is next.
	turn6 bool
}

// set takes the addresses of a target, those of IPv4 before those of IPv6, as
// the resolver sorts them.
func (t *targets) set(addrs []netip.Addr, prefer6 bool) {
	n := 0
	for n < len(addrs) && addrs[n].Is4() {
		n++
	}
	t.v4, t.v6, t.turn6 = addrs[:n], addrs[n:], prefer6
}

// add sets the addresses of one family among those of a target, and has them tried
// next.
func (t *targets) add(addrs []netip.Addr, v6 bool) {
	var all targets
	all.set(addrs, v6)
	if v6 {
		t.v6 = all.v6
	} else {
		t.v4 = all.v4
	}
	t.turn6 = v6
}

// preferred reports whether there is an address of the family whose turn it is.
func (t *targets) preferred() bool {
	if t.turn6 {
		return len(t.v6) > 0
	}
	return len(t.v4) > 0
}

func (t *targets) empty() bool { return len(t.v4) == 0 && len(t.v6) == 0 }

// next takes the address to try next; there must be one.
func (t *targets) next() netip.Addr {
	list := &t.v4
	if len(t.v4) == 0 || t.turn6 && len(t.v6) > 0 {
		list = &t.v6
	}
	t.turn6 = !t.turn6
	addr := (*list)[0]
	*list = (*list)[1:]
	return addr
}
