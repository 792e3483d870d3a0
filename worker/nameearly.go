package worker

import "net/netip"

// resolutionDelayMS is how long the addresses of the preferred family are waited for
// when the others have come first, in milliseconds (RFC 8305 section 3). Without
// preferred ones, connecting begins with those there are; what comes later is tried
// in its turn; datagrams go to one address, for good.
const resolutionDelayMS = 50

// namedEarly takes the addresses of one family while those of the other are being
// asked for.
func (d *dialName) namedEarly(addrs []netip.Addr) {
	s := (*session)(d)
	st := s.dial
	st.targets.set(addrs, s.svc.prefer6)
	if st.targets.preferred() {
		s.race()
		return
	}
	s.arm(resolutionDelayMS)
}

// race connects to the addresses of one family before the other is known.
func (s *session) race() {
	d := s.dial
	d.racing, d.first6 = true, len(d.targets.v6) > 0
	s.connectNext()
}

// moreResolved adds the addresses of the other family to those that are being tried.
func (s *session) moreResolved(addrs []netip.Addr) {
	d := s.dial
	d.targets.add(addrs, !d.first6)
	if d.count > 0 {
		s.armDial()
		return
	}
	s.connectNext()
}

// awaitMore waits for the addresses of the other family after the others have
// failed.
func (s *session) awaitMore() {
	s.phase = phaseResolve
	s.arm(s.w.names.patience(s.svc))
}

// stopAwaiting goes on with what is known of the name.
func (s *session) stopAwaiting() {
	s.dial.wait.leave((*dialName)(s))
	s.dial.wait = nil
	s.connectNext()
}
