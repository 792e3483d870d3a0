package worker

import (
	"math"
	"net/netip"
	"slices"
)

// namedEarly takes the addresses of one family while those of the other are being
// asked for: at once when they are preferred, or in use.
func (d *destination) namedEarly(addrs []netip.Addr) {
	a := d.a
	d.early, d.earlyAt = addrs, a.s.w.loop.Now()+resolutionDelayMS
	var list targets
	list.set(addrs, a.s.svc.prefer6)
	if list.preferred() || slices.Contains(addrs, d.to) {
		d.useEarly()
		return
	}
	a.arm()
}

// useEarly goes on with the addresses of one family; the lookup is waited for when
// none of them is allowed.
func (d *destination) useEarly() {
	addr, c := d.pick(d.early)
	d.early = nil
	if c != codeOK {
		return
	}
	d.to = addr
	d.wait.leave(d)
	d.wait = nil
	d.settle(codeOK)
	d.release()
}

// useEarly has the destinations that have waited long enough for the other family
// go on.
func (a *association) useEarly() {
	now := a.s.w.loop.Now()
	for _, d := range a.destinations {
		if d.early != nil && d.earlyAt <= now {
			d.useEarly()
		}
	}
}

// untilEarly is when the next destination will have waited long enough, in
// milliseconds from now.
func (a *association) untilEarly() int64 {
	due := int64(math.MaxInt64)
	for _, d := range a.destinations {
		if d.early != nil {
			due = min(due, d.earlyAt)
		}
	}
	return due - a.s.w.loop.Now()
}
