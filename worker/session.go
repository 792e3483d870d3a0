package worker

import (
	"net/netip"
	"time"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

type phase uint8

const (
	phaseHandshake phase = iota
	phaseResolve
	phaseConnect
	phaseRelay
	phaseExchange
	phaseIdle
	phaseClosing
	phaseAborting
	phaseMoving
	phaseSkip
	phaseBind
	phaseAssociate
	phaseDatagrams
)

var phaseNames = [...]string{"handshake", "resolve", "connect", "relay", "exchange", "idle", "closing", "aborting", "moving", "skip", "bind", "associate", "relay"}

// session is one client connection and what it leads to. Sessions are reused;
// id tells the present use from an earlier one.
type session struct {
	w   *Worker
	svc *service
	// next and prev link the live sessions, next alone the free ones.
	next, prev *session

	cli   relay.Conn
	srv   *upstream // nil while there is no server connection
	up    relay.Flow
	down  relay.Flow
	timer relay.Timer
	// buf holds what the client sent and no one has taken: part of a
	// handshake, or what follows it.
	buf relay.Buffer

	// text is the request line for the log.
	text relay.Buffer

	id     uint64
	start  int64 // of the session, in the loop's time
	client netip.AddrPort
	http   *httpState // proxy service only, until it becomes a tunnel
	dial   *dialState // while a target is being reached
	socks  *socksState
	front  *frontState // what comes before a request, or outlives it
	udp    *udpMap     // udppm service only

	// The request: the name asked for ("" when it was an address), the
	// address, the port, who asks, and for what.
	user string
	host string
	addr netip.Addr
	port uint16
	code code
	op   config.Operations

	// began is when the request began; in and out count its bytes that did
	// not pass through the flows.
	began   int64
	in, out uint64
	// drained is when what the peers had not acknowledged (unsent) last became
	// less.
	drained int64
	// lastMoved is when a direction that has ended last moved bytes, as far as
	// the flow does not know.
	lastMoved int64
	// unsent is what the peers had not acknowledged when a timer last looked,
	// in bytes.
	unsent   int32
	phase    phase
	protocol protocol // that of the client
	// halfClosed says that one direction of a tunnel has ended.
	halfClosed bool
	// logged says that the request has been logged and counted.
	logged bool
}

// upstream is a connection to a server. It belongs to one session, or lies in
// the pool of idle ones.
type upstream struct {
	relay.Conn
	s    *session
	addr netip.AddrPort
	// host and user are the name it was opened for, "" for an address, and
	// who asked; a pooled connection serves nobody else.
	host string
	user string
	next *upstream
	// pool is set while the connection is in the pool.
	pool *poolLinks
}

// serves reports whether the connection is one to the present target of s,
// opened for the same user.
func (u *upstream) serves(s *session) bool {
	return u.host == s.host && u.user == s.user && u.addr.Port() == s.port &&
		(s.host != "" || u.addr.Addr() == s.addr)
}

// sessionList is the list of live sessions.
type sessionList struct {
	head  *session
	count int
	last  uint64
}

func (l *sessionList) add(s *session) {
	l.last++
	s.id = l.last
	l.restore(s)
}

// restore puts a session back that has been removed.
func (l *sessionList) restore(s *session) {
	s.prev, s.next = nil, l.head
	if l.head != nil {
		l.head.prev = s
	}
	l.head = s
	l.count++
}

func (l *sessionList) remove(s *session) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	l.count--
}

// newSession makes a session of an accepted descriptor and starts its service.
// The connection has been admitted.
func (w *Worker) newSession(v *service, fd int32, peer netip.AddrPort) {
	s := w.takeSession()
	s.svc = v
	s.client = peer
	s.start, s.began = w.loop.Now(), w.loop.Now()
	s.phase = phaseHandshake
	w.sessions.add(s)
	v.cell.Add(ipc.Accepted, 1)
	if len(v.clientOptions) > 0 {
		applyOptions(fd, v.clientOptions)
	}
	if errno := w.loop.Open(&s.cli, fd, nil); errno != 0 {
		s.code = codeSocket
		s.finish()
		return
	}
	s.cli.SetReadSize(v.headRead())
	if v.Listen.Unix != "" {
		s.cli.DistrustShortReads()
	}
	if v.ProxyHeader != nil {
		s.startHeader()
		return
	}
	s.begin(v.protocol, nil)
}

// takeSession returns an unused session.
func (w *Worker) takeSession() *session {
	s := w.freeSessions
	if s == nil {
		s = &session{}
	} else {
		w.freeSessions = s.next
	}
	s.w = w
	return s
}

// finish logs the request unless it has been, closes what is open and frees
// the session.
func (s *session) finish() {
	s.log()
	s.release()
}

// cut ends a session in the middle: both connections are reset, because an end in
// order would make what the peers have got look complete.
func (s *session) cut() {
	s.log()
	s.cli.Reset()
	if s.srv != nil {
		s.srv.Reset()
	}
	s.release()
}

// release closes what is open and frees the session.
func (s *session) release() {
	w, column := s.w, s.svc.column
	w.sessions.remove(s)
	s.recycle()
	w.shm.Release(w.row, column)
	w.released(column)
	w.sessionEnded()
}

// recycle closes what is open and makes the session, which is in no list,
// ready for another client.
func (s *session) recycle() {
	w := s.w
	w.loop.StopTimer(&s.timer)
	w.dropDial(s)
	s.dropUpstream()
	s.cli.Close()
	s.buf.Release(w.loop)
	s.text.Release(w.loop)
	w.dropHTTP(s)
	w.dropSocks(s)
	w.dropFront(s)
	w.dropUDPMap(s)
	w.dropDNS(s)
	// Nothing of one client may be left for the next; cli and timer have been
	// closed, cli may still be linked in the loop's run list.
	s.up, s.down = relay.Flow{}, relay.Flow{}
	s.user, s.host = "", ""
	s.addr, s.client = netip.Addr{}, netip.AddrPort{}
	s.port, s.op = 0, 0
	s.in, s.out, s.code, s.id = 0, 0, codeOK, 0
	s.unsent, s.drained, s.lastMoved = 0, 0, 0
	s.halfClosed, s.logged, s.svc = false, false, nil
	s.next = w.freeSessions
	w.freeSessions = s
}

// fail ends the session with a code.
func (s *session) fail(c code) {
	s.code = c
	s.finish()
}

// arm has the session's OnTimer called in ms milliseconds.
func (s *session) arm(ms int64) { s.w.loop.SetTimer(&s.timer, ms, s) }

// OnTimer is the one timer of a session; what it means depends on the phase.
func (s *session) OnTimer(*relay.Timer) {
	switch s.phase {
	case phaseRelay:
		(*tunnel)(s).checkIdle()
	case phaseConnect:
		s.dialTimer()
	case phaseResolve:
		s.resolveTimedOut()
	case phaseExchange:
		(*httpExchange)(s).checkIdle()
	case phaseAborting:
		(*aborting)(s).check()
	case phaseClosing:
		(*closing)(s).timedOut()
	case phaseBind:
		s.bindTimedOut()
	case phaseDatagrams:
		s.udp.checkIdle()
	case phaseAssociate:
		s.association().timedOut()
	default:
		s.handshakeTimedOut()
	}
}

// handshakeTimedOut ends a client that did not ask in time. One that never
// sent a byte, or lies idle between requests, has done nothing wrong.
func (s *session) handshakeTimedOut() {
	switch {
	case s.http != nil:
		(*httpClient)(s).timedOut()
		return
	case s.protocol == protoDNS:
		(*dnsClient)(s).timedOut()
		return
	}
	s.fail(codeTimeout)
}

// newUpstream returns a closed upstream for s.
func (w *Worker) newUpstream(s *session) *upstream {
	u := w.freeUpstreams
	if u == nil {
		u = &upstream{}
	} else {
		w.freeUpstreams = u.next
		u.next = nil
	}
	u.s = s
	return u
}

func (w *Worker) freeUpstream(u *upstream) {
	u.Close()
	u.s = nil
	u.addr, u.host, u.user = netip.AddrPort{}, "", ""
	u.next = w.freeUpstreams
	w.freeUpstreams = u
}

// dropUpstream closes the server connection, if any.
func (s *session) dropUpstream() {
	if u := s.srv; u != nil {
		s.srv = nil
		s.w.freeUpstream(u)
	}
}

// decide asks the service's policy about the present request to addr, which is
// the zero Addr while the name has not been resolved.
func (s *session) decide(addr netip.Addr, noAddr bool, creds *acl.Creds) acl.Decision {
	r := s.aclRequest(addr, noAddr)
	return s.svc.policy.Decide(&r, creds)
}

func (s *session) aclRequest(addr netip.Addr, noAddr bool) acl.Request {
	r := acl.Request{
		Client: s.client.Addr(),
		Host:   s.host,
		Addr:   addr,
		NoAddr: noAddr,
		Port:   s.aclPort(),
		Op:     s.op,
	}
	if s.svc.timed {
		r.Weekday, r.Second = s.w.clock.local(s.w.loop.Now())
	}
	return r
}

// aclPort is the port that the access list sees: that of the peer when a BIND
// has not named one.
func (s *session) aclPort() uint16 {
	if s.port == 0 && s.srv != nil {
		return s.srv.addr.Port()
	}
	return s.port
}

// setHost stores the requested name, lower case; the string is made anew only
// when it differs from the last.
func (s *session) setHost(name []byte) {
	if s.host != string(name) {
		s.host = string(name)
	}
}

func (s *session) setUser(name string) {
	if s.user != name {
		s.user = name
	}
}

// bytesIn and bytesOut are the bytes of the request from the server and from
// the client.
func (s *session) bytesIn() uint64  { return s.in + s.down.Moved() }
func (s *session) bytesOut() uint64 { return s.out + s.up.Moved() }

// wallClock gives the local weekday and second for the access lists; it asks
// the system once a second.
type wallClock struct {
	at      int64
	weekday int
	second  int
}

func (c *wallClock) local(nowMS int64) (weekday, second int) {
	if sec := nowMS/1000 + 1; sec != c.at {
		c.at = sec
		t := time.Now()
		c.weekday = int(t.Weekday())
		h, m, s := t.Clock()
		c.second = h*3600 + m*60 + s
	}
	return c.weekday, c.second
}

// brokenCode is the code of the log for a tunnel that broke at the side of c.
func (s *session) brokenCode(c *relay.Conn) code {
	if c == &s.cli {
		return codeClientReset
	}
	return codeServerReset
}

// boundRead keeps the next reads of c within the room of b, so that what
// follows a head does not make the head too long for the buffer.
func (s *session) boundRead(c *relay.Conn, b *relay.Buffer) {
	c.SetReadSize(min(relay.MaxBuffer-b.Len(), s.svc.headRead()))
}
