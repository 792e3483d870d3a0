package worker

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/relay"
)

// maxAttempts bounds the addresses of one name that are tried.
const maxAttempts = 4

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
	// next are the addresses not tried yet. The slice is the cache's and must
	// not be written to.
	next     []netip.Addr
	one      [1]netip.Addr // backs next when the target is an address
	attempts int
	// recheck says that a reload has changed the rules meanwhile.
	recheck *acl.Policy
	code    code
	errno   unix.Errno
	wait    *nameWait
	free    *dialState
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
		d.next = d.one[:]
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
	addrs, state := s.w.names.cached(s.host)
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
	s.dial.next = addrs
	s.connectNext()
}

// connectNext tries the next address that the policy and the source addresses
// allow.
func (s *session) connectNext() {
	d := s.dial
	for len(d.next) > 0 && d.attempts < maxAttempts {
		addr := d.next[0]
		d.next = d.next[1:]
		if !s.allowedAddr(addr) {
			continue
		}
		source, ok := s.svc.source(addr)
		if !ok {
			d.note(codeBind, unix.EAFNOSUPPORT)
			continue
		}
		d.attempts++
		if s.connect(&relay.Target{
			Addr:    netip.AddrPortFrom(addr, s.port),
			Source:  source,
			NoDelay: s.svc.noDelay,
			Prepare: s.svc.prepareServer,
		}) {
			return
		}
	}
	c := d.code
	if c == codeOK {
		c = codeNoHost
	}
	s.refuse(c, d.errno)
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
// failed connection says more than a refused address.
func (d *dialState) note(c code, errno unix.Errno) {
	if d.code == codeOK || c >= codeSocket {
		d.code, d.errno = c, errno
	}
}

// connect starts one attempt and reports whether it is under way.
func (s *session) connect(t *relay.Target) bool {
	u := s.w.newUpstream(s)
	u.addr, u.host, u.user = t.Addr, s.host, s.user
	op, errno := s.w.loop.Connect(&u.Conn, t, (*dialing)(s))
	if errno != 0 {
		s.w.freeUpstream(u)
		s.dial.note(connectCode(op, errno), errno)
		return false
	}
	if s.svc.readSize > 0 {
		u.SetReadSize(s.svc.readSize)
	}
	s.srv = u
	s.phase = phaseConnect
	s.arm(s.svc.connectMS)
	return true
}

func (s *session) connectTimedOut() {
	s.dial.note(codeConnect, unix.ETIMEDOUT)
	s.dropUpstream()
	s.connectNext()
}

// refuse ends the dialling without a connection.
func (s *session) refuse(c code, errno unix.Errno) {
	o := s.dial.opener
	s.w.dropDial(s)
	s.w.loop.StopTimer(&s.timer)
	s.code = c
	if c == codeNoResources {
		s.w.warnResources(s.svc, errno)
	}
	o.refused(s, c, errno)
}

// dialing handles the server connection until it is established.
type dialing session

// OnConnect takes the outcome of connect(2).
func (d *dialing) OnConnect(c *relay.Conn, errno unix.Errno) {
	s := (*session)(d)
	if errno != 0 {
		s.dial.note(connectCode("connect", errno), errno)
		s.dropUpstream()
		s.connectNext()
		return
	}
	o := s.dial.opener
	s.w.dropDial(s)
	s.w.loop.StopTimer(&s.timer)
	o.opened(s)
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

// dropDial forgets the state of a dial, its credentials included.
func (w *Worker) dropDial(s *session) {
	d := s.dial
	if d == nil {
		return
	}
	if d.wait != nil {
		d.wait.leave(s)
	}
	*d = dialState{free: w.freeDials}
	w.freeDials = d
	s.dial = nil
}
