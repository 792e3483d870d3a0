package worker

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/relay"
)

const (
	// maxAttempts bounds the addresses of one name that are tried, maxRunning
	// those that are tried at the same time.
	maxAttempts = 8
	maxRunning  = 4
	// attemptDelayMS is how long an attempt is waited for before the next
	// address is tried as well, in milliseconds (RFC 8305 section 8).
	attemptDelayMS = 250
)

// opener is the part of a protocol that waits for a server connection.
type opener interface {
	// opened is called when the session's server connection is established.
	opened(s *session)
	// refused is called when there will be none. errno says what connect(2)
	// said when c is a connect failure. The session is still open.
	refused(s *session, c code, errno unix.Errno)
}

// dialState is what reaching a target needs until it is reached; it is dropped
// then.
type dialState struct {
	opener opener
	// creds are kept while a name is being resolved for the access list; they
	// are forgotten with the dialState.
	creds *acl.Creds
	// targets are the addresses not tried yet.
	targets  targets
	one      [1]netip.Addr // backs targets when the target is an address
	attempts int
	// running are the attempts under way, count of them, in the order of their
	// start. The newest is the session's server connection.
	running [maxRunning]attempt
	count   int
	// recheck says that a reload has changed the rules meanwhile.
	recheck *acl.Policy
	code    code
	errno   unix.Errno
	wait    *nameWait
	// racing says that the addresses of one family, IPv6 with first6, are being
	// tried before those of the other are known.
	racing, first6 bool
	free           *dialState
}

// attempt is one connection that is being established.
type attempt struct {
	u     *upstream
	start int64 // in the loop's time
}

// open checks the request in s (op, host, addr, port) against the policy and
// connects to its target; o is told the outcome, perhaps before open returns.
// creds are only used during the call.
func (s *session) open(creds *acl.Creds, o opener) {
	d := s.w.newDial(s)
	d.opener = o
	switch {
	case s.host == "" && s.addr.IsUnspecified():
		// The kernel takes 0.0.0.0 and :: for this host, which access lists
		// that forbid loopback do not mean to allow.
		s.refuse(codeNoHost, 0)
	case s.host == "":
		d.one[0] = s.addr
		d.targets.set(d.one[:], s.svc.prefer6)
		s.authorize(creds)
	case s.svc.policy.Trivial():
		if creds != nil && creds.HasUser {
			s.setUser(creds.User)
		}
		s.resolve()
	default:
		s.authorize(creds)
	}
}

// authorize decides about the request before its name is resolved, if there is
// one, so that a refused request costs no lookup and tells nobody the name.
func (s *session) authorize(creds *acl.Creds) {
	decision := s.decide(s.addr, false, creds)
	s.setUser(decision.User)
	switch {
	case decision.NeedAddr:
		s.dial.creds = cloneCreds(creds)
		s.resolve()
	case decision.Code != acl.OK:
		s.refuse(code(decision.Code), 0)
	case s.host != "":
		s.resolve()
	default:
		s.connectNext()
	}
}

func cloneCreds(c *acl.Creds) *acl.Creds {
	if c == nil {
		return &acl.Creds{}
	}
	k := *c
	k.Pass = slices.Clone(c.Pass)
	return &k
}

// resolve looks the name up; known names are answered at once.
func (s *session) resolve() {
	addrs, state := s.w.names.cached(s.host, s.svc.family)
	switch state {
	case nameKnown:
		s.resolved(addrs)
	case nameUnknown:
		s.refuse(codeNoHost, 0)
	default:
		s.phase = phaseResolve
		s.w.names.ask(s)
	}
}

func (s *session) resolved(addrs []netip.Addr) {
	s.dial.targets.set(addrs, s.svc.prefer6)
	s.connectNext()
}

// connectNext starts an attempt with the next address that the policy and the
// source addresses allow; when there is none, no other attempt is under way, and no
// more addresses may come, the dialling has failed.
func (s *session) connectNext() {
	d := s.dial
	started, datagrams := false, s.udp != nil
	for !started && d.mayStart() {
		started = s.tryAddr(d.targets.next())
	}
	if started && datagrams {
		return // and the dialling is over
	}
	if d.count > 0 {
		s.armDial()
		return
	}
	if d.wait != nil {
		s.awaitMore()
		return
	}
	c := d.code
	if c == codeOK {
		c = codeNoHost
	}
	s.refuse(c, d.errno)
}

// mayStart reports whether there is an address for another attempt.
func (d *dialState) mayStart() bool {
	return d.count < maxRunning && d.attempts < maxAttempts && !d.targets.empty()
}

// tryAddr starts an attempt with one address and reports whether it is under
// way.
func (s *session) tryAddr(addr netip.Addr) bool {
	if !s.allowedAddr(addr) {
		return false
	}
	if s.isOwn(addr) {
		s.dial.note(codeLoop, 0)
		return false
	}
	source, ok := s.svc.source(addr)
	if !ok {
		s.dial.note(codeBind, unix.EAFNOSUPPORT)
		return false
	}
	s.dial.attempts++
	return s.connect(&relay.Target{
		Addr:    netip.AddrPortFrom(addr, s.port),
		Source:  source,
		NoDelay: s.svc.noDelay,
		Prepare: s.svc.prepareServer,
	})
}

// armDial sets the timer to the end of the oldest attempt, or to the start of
// the next one if that comes first.
func (s *session) armDial() {
	d := s.dial
	due := d.running[0].start + s.svc.connectMS
	if d.mayStart() {
		due = min(due, d.running[d.count-1].start+attemptDelayMS)
	}
	s.arm(max(1, due-s.w.loop.Now()))
}

// allowedAddr decides about one resolved address. Every address is checked, so
// that a name which resolves into a forbidden network is refused like its
// address (the connection is made to the address that was checked).
func (s *session) allowedAddr(addr netip.Addr) bool {
	if addr.IsUnspecified() {
		return false
	}
	d := s.dial
	var decision acl.Decision
	switch {
	case d.recheck != nil:
		decision = s.recheck(addr, s.svc.policy, d.recheck)
	case d.creds == nil:
		return true
	default:
		decision = s.decide(addr, false, d.creds)
	}
	if decision.Code == acl.OK {
		s.setUser(decision.User)
		return true
	}
	d.note(code(decision.Code), 0)
	return false
}

// note keeps the reason of a failed attempt; the last one is reported, but a
// failed connection says more than a refused address, and that an address is the
// daemon's own more than either.
func (d *dialState) note(c code, errno unix.Errno) {
	if d.code == codeOK || c >= codeSocket && d.code != codeLoop {
		d.code, d.errno = c, errno
	}
}

// connect starts one attempt and reports whether it is under way. The caller
// sets the timer.
func (s *session) connect(t *relay.Target) bool {
	if s.udp != nil {
		return s.connectPacket(t)
	}
	d := s.dial
	u := s.w.newUpstream(s)
	u.addr, u.host, u.user = t.Addr, s.host, s.user
	op, errno := s.w.loop.Connect(&u.Conn, t, (*dialing)(s))
	if errno != 0 {
		s.w.freeUpstream(u)
		d.note(connectCode(op, errno), errno)
		return false
	}
	if s.svc.readSize > 0 {
		u.SetReadSize(s.svc.readSize)
	}
	d.running[d.count] = attempt{u, s.w.loop.Now()}
	d.count++
	s.srv = u
	s.phase = phaseConnect
	return true
}

// dialTimer ends attempts whose time is over, or starts the next one.
func (s *session) dialTimer() {
	d, now := s.dial, s.w.loop.Now()
	for d.count > 0 && now >= d.running[0].start+s.svc.connectMS {
		d.note(codeConnect, unix.ETIMEDOUT)
		s.dropAttempt(0)
	}
	if d.count > 0 && now < d.running[d.count-1].start+attemptDelayMS {
		s.armDial()
		return
	}
	s.connectNext()
}

// dropAttempt closes one of the attempts under way.
func (s *session) dropAttempt(i int) {
	d := s.dial
	s.w.freeUpstream(d.running[i].u)
	copy(d.running[i:], d.running[i+1:d.count])
	d.count--
	d.running[d.count] = attempt{}
	s.srv = nil
	if d.count > 0 {
		s.srv = d.running[d.count-1].u
	}
}

// refuse ends the dialling without a connection.
func (s *session) refuse(c code, errno unix.Errno) {
	for s.dial.count > 0 {
		s.dropAttempt(0)
	}
	o := s.dial.opener
	s.w.dropDial(s)
	s.w.loop.StopTimer(&s.timer)
	s.code = c
	if c == codeNoResources {
		s.w.warnResources(s.svc, errno)
	}
	o.refused(s, c, errno)
}

// dialing handles the attempts until one is established.
type dialing session

// OnConnect takes the outcome of connect(2). The first connection is the one;
// the other attempts are closed.
func (d *dialing) OnConnect(c *relay.Conn, errno unix.Errno) {
	s := (*session)(d)
	st := s.dial
	i := st.attemptOf(c)
	u := st.running[i].u
	if errno != 0 {
		st.note(connectCode("connect", errno), errno)
	}
	// After a reload the rules have been asked about the newest attempt only.
	if errno != 0 || st.recheck != nil && !s.allowedAddr(u.addr.Addr()) {
		s.dropAttempt(i)
		s.connectNext()
		return
	}
	s.srv = u
	s.setUser(u.user)
	o := st.opener
	s.w.dropDial(s)
	s.w.loop.StopTimer(&s.timer)
	o.opened(s)
}

// attemptOf is the number of the attempt that c belongs to.
func (d *dialState) attemptOf(c *relay.Conn) int {
	for i := range d.count - 1 {
		if &d.running[i].u.Conn == c {
			return i
		}
	}
	return d.count - 1
}

// OnData does not come before the connection is read.
func (d *dialing) OnData(*relay.Conn, []byte) {}

// OnEOF does not come before the connection is read.
func (d *dialing) OnEOF(*relay.Conn) {}

// OnSent does not come before something is written.
func (d *dialing) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (d *dialing) OnFlow(*relay.Flow) {}

// OnError does not come before OnConnect.
func (d *dialing) OnError(*relay.Conn, unix.Errno) {}

func (w *Worker) newDial(s *session) *dialState {
	w.dropDial(s)
	d := w.freeDials
	if d == nil {
		d = &dialState{}
	} else {
		w.freeDials = d.free
	}
	*d = dialState{}
	s.dial = d
	return d
}

// dropDial forgets the state of a dial, its credentials included, and closes
// the attempts that are not the session's server connection.
func (w *Worker) dropDial(s *session) {
	d := s.dial
	if d == nil {
		return
	}
	for _, a := range d.running[:d.count] {
		if a.u != s.srv {
			w.freeUpstream(a.u)
		}
	}
	if d.wait != nil {
		d.wait.leave((*dialName)(s))
	}
	*d = dialState{free: w.freeDials}
	w.freeDials = d
	s.dial = nil
}
