package worker

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/internal/sys"
	"3proxyd/ipc"
	"3proxyd/proto/socks"
	"3proxyd/relay"
)

// bindBacklog is the length of the queue of a BIND: strangers that are refused
// must not keep the peer out.
const bindBacklog = 16

// peerWait is a BIND that waits for its peer (RFC 1928 section 4). It accepts
// one connection, which makes the session a tunnel.
type peerWait struct {
	listener relay.Listener
	s        *session
	// peers are the addresses that may connect; nil is any that the access list
	// allows. The slice is the name cache's or one.
	peers []netip.Addr
	one   [1]netip.Addr
	// name is the lookup of the peer's name while it is under way.
	name *nameWait
	free *peerWait
}

func (w *Worker) newPeerWait(s *session) *peerWait {
	p := w.freePeerWaits
	if p == nil {
		p = &peerWait{}
	} else {
		w.freePeerWaits = p.free
		p.free = nil
	}
	p.s = s
	return p
}

// dropPeerWait stops listening, if the session does.
func (w *Worker) dropPeerWait(st *socksState) {
	p := st.bind
	if p == nil {
		return
	}
	st.bind = nil
	p.listener.Close()
	if p.name != nil {
		p.name.leave(p)
	}
	p.s, p.peers, p.name = nil, nil, nil
	p.free = w.freePeerWaits
	w.freePeerWaits = p
}

// bind carries a BIND out: it finds out whom to expect.
func (h *socksClient) bind() {
	s := (*session)(h)
	s.phase = phaseBind
	r := s.bindRequest(s.addr)
	decision := h.authorize(&r)
	if !decision.NeedAddr && decision.Code != acl.OK {
		h.reject(code(decision.Code), socks.ReplyNotAllowed)
		return
	}
	p := s.w.newPeerWait(s)
	s.socks.bind = p
	switch {
	case s.host != "":
		p.resolve()
	case s.addr.IsUnspecified():
		p.listen()
	default:
		p.one[0] = s.addr
		p.peers = p.one[:]
		p.listen()
	}
}

// authorize decides about a request that ends in no connection to its
// destination, and forgets the credentials.
func (h *socksClient) authorize(r *acl.Request) acl.Decision {
	s := (*session)(h)
	st := s.socks
	st.verified = s.svc.policy.Verified(&st.creds)
	decision := s.svc.policy.Decide(r, &st.creds)
	s.setUser(decision.User)
	st.creds = acl.Creds{}
	return decision
}

// bindRequest is what the access list is asked while there is no peer: whether
// one at addr may connect. Who leaves address or port open may wait if there is
// somebody to wait for.
func (s *session) bindRequest(addr netip.Addr) acl.Request {
	r := s.aclRequest(addr, false)
	r.AnyAddr = s.host == "" && addr.IsUnspecified()
	r.AnyPort = s.port == 0
	return r
}

// ask asks the access list about the peers: whether one of them may connect.
func (p *peerWait) ask(policy *acl.Policy) code {
	s := p.s
	c := codeNoHost
	for _, addr := range p.peers {
		r := s.bindRequest(addr)
		if c = code(policy.DecideAgain(&r, s.user, s.socks.verified).Code); c == codeOK {
			break
		}
	}
	return c
}

func (p *peerWait) resolve() {
	s := p.s
	addrs, state := s.w.names.cached(s.host, s.svc.family)
	switch state {
	case nameKnown:
		p.named(addrs)
	case nameUnknown:
		p.named(nil)
	default:
		p.name = s.w.names.wait(nameKey{s.host, s.svc.family}, s.client.Addr(), p)
		s.arm(s.w.names.patience(s.svc))
	}
}

// named takes the addresses of the peer's name.
func (p *peerWait) named(addrs []netip.Addr) {
	p.name = nil
	if len(addrs) == 0 {
		(*socksClient)(p.s).reject(codeNoHost, socks.ReplyHostUnreachable)
		return
	}
	p.peers = addrs
	if c := p.ask(p.s.svc.policy); c != codeOK {
		(*socksClient)(p.s).reject(c, socks.ReplyNotAllowed)
		return
	}
	p.listen()
}

// listen opens the listening socket and tells the client where it is.
func (p *peerWait) listen() {
	s := p.s
	h := (*socksClient)(s)
	peer, source, ok := p.family()
	if !ok {
		h.reject(codeBind, socks.ReplyNetworkUnreachable)
		return
	}
	told, ok := s.externalAddr(peer, source)
	if !ok {
		h.reject(codeBind, socks.ReplyNetworkUnreachable)
		return
	}
	if !s.w.roomFor(s.svc, 1) {
		h.reject(codeNoResources, socks.ReplyGeneralFailure)
		return
	}
	op, errno := s.w.loop.ListenTCP(&p.listener, netip.AddrPortFrom(source, 0), bindBacklog, s.svc.prepareAccepted, p)
	if errno != 0 {
		c := connectCode(op, errno)
		h.reject(c, replyOf(c, errno))
		return
	}
	h.replyBound(netip.AddrPortFrom(told, p.listener.LocalAddr().Port()))
	s.cli.SetHandler((*bindClient)(s))
	(*bindClient)(s).readOn()
	s.arm(s.svc.idleMS)
}

// family returns an address to expect a connection from, which is unspecified
// when there are many, and the address to listen on in its family: an external
// address, or the unspecified one.
func (p *peerWait) family() (peer, source netip.Addr, ok bool) {
	s := p.s
	if p.peers == nil {
		source, ok = s.bindSource(s.addr)
		return s.addr, source, ok
	}
	var list targets
	for list.set(p.peers, s.svc.prefer6); !list.empty(); {
		peer = list.next()
		if source, ok = s.bindSource(peer); ok {
			return peer, source, true
		}
	}
	return peer, source, false
}

// bindSource returns the address to listen on for peer; false says that nobody
// can connect from there.
func (s *session) bindSource(peer netip.Addr) (netip.Addr, bool) {
	if s.socks.shake.Version == socks.Version4 && !peer.Is4() || peer.IsMulticast() || peer == broadcast {
		return netip.Addr{}, false
	}
	source, ok := s.svc.source(peer)
	if !source.IsValid() {
		source = netip.IPv6Unspecified()
		if peer.Is4() {
			source = netip.IPv4Unspecified()
		}
	}
	return source, ok
}

// externalAddr returns the address under which peers reach what listens on
// source, never the unspecified one.
func (s *session) externalAddr(peer, source netip.Addr) (netip.Addr, bool) {
	if told := advertised(&s.svc.AdvertisedExternal, source); told.IsValid() {
		return told, true
	}
	if !source.IsUnspecified() {
		return source, true
	}
	if peer.IsUnspecified() {
		// Whoever connects comes from the side of the servers, or from where
		// the client is: its way to us is the one that is known.
		if own := s.cli.LocalAddr().Addr(); own.IsValid() && own.Is4() == peer.Is4() {
			return own, true
		}
		peer = anywhere(peer)
	}
	return sourceTo(peer)
}

// replyBound sends the reply that tells an address.
func (h *socksClient) replyBound(addr netip.AddrPort) {
	s := (*session)(h)
	s.cli.Write(socks.AppendReply(s.w.scratch[:0], s.socks.shake.Version, socks.ReplySucceeded, addr))
}

// Admit takes any connection: it is looked at when it is there.
func (p *peerWait) Admit(*relay.Listener) bool { return true }

// OnNoAccept is of no interest: nothing was reserved.
func (p *peerWait) OnNoAccept(*relay.Listener) {}

// OnExhausted says that the peer waits for a descriptor.
func (p *peerWait) OnExhausted(_ *relay.Listener, errno unix.Errno) {
	p.s.w.warnFDs(p.s.svc, "a BIND waits: no descriptors left", errno)
}

// OnAccept joins the expected peer to the client; others are turned away.
func (p *peerWait) OnAccept(_ *relay.Listener, fd int32, peer netip.AddrPort) {
	s := p.s
	if p.peers != nil && !slices.Contains(p.peers, peer.Addr()) {
		sys.Close(fd)
		return
	}
	r := s.aclRequest(peer.Addr(), false)
	if r.Port == 0 {
		r.Port = peer.Port()
	}
	if d := s.svc.policy.DecideAgain(&r, s.user, s.socks.verified); d.Code != acl.OK {
		s.svc.count(code(d.Code))
		sys.Close(fd)
		return
	}
	u := s.w.newUpstream(s)
	u.addr, u.host, u.user = peer, s.host, s.user
	if errno := s.w.loop.Open(&u.Conn, fd, (*tunnel)(s)); errno != 0 {
		s.w.freeUpstream(u)
		(*socksClient)(s).reject(codeNoResources, socks.ReplyGeneralFailure)
		return
	}
	if s.svc.readSize > 0 {
		u.SetReadSize(s.svc.readSize)
	}
	s.srv = u
	s.cli.StopRead()
	(*socksClient)(s).replyBound(peer)
	s.svc.cell.Add(ipc.Requests, 1)
	s.w.dropSocks(s)
	s.startTunnel()
}

// bindTimedOut ends a BIND whose peer, or its name, did not come.
func (s *session) bindTimedOut() {
	c := codeTimeout
	if s.socks.bind.name != nil {
		c = codeNoHost
	}
	(*socksClient)(s).reject(c, replyOf(c, unix.ETIMEDOUT))
}

// obeyBind asks the rules of a new generation about a BIND that waits.
func (s *session) obeyBind(now, before *acl.Policy) {
	st := s.socks
	st.verified = st.verified && now.SameSecret(before, s.user)
	if p := st.bind; p.peers != nil {
		if c := p.ask(now); c != codeOK {
			s.endByRules(c)
		}
		return
	}
	r := s.bindRequest(s.addr)
	if d := now.DecideAgain(&r, s.user, st.verified); !d.NeedAddr && d.Code != acl.OK {
		s.endByRules(code(d.Code))
	}
}

// bindClient is the client of a BIND that waits for its peer.
type bindClient session

// OnConnect does not come for an accepted connection.
func (c *bindClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData keeps what is meant for the peer.
func (c *bindClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(c)
	if !s.buf.Append(s.w.loop, p) {
		s.fail(codeSocksError)
		return
	}
	c.readOn()
}

// readOn reads while there is room: a client that goes away ends the wait.
func (c *bindClient) readOn() {
	s := (*session)(c)
	if s.buf.Len() == relay.MaxBuffer {
		s.cli.StopRead()
		return
	}
	s.boundRead(&s.cli, &s.buf)
	s.cli.StartRead()
}

// OnEOF ends the wait.
func (c *bindClient) OnEOF(*relay.Conn) { (*session)(c).fail(codeBindAbandoned) }

// OnSent is of no interest: replies are short.
func (c *bindClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (c *bindClient) OnFlow(*relay.Flow) {}

// OnError ends the wait.
func (c *bindClient) OnError(*relay.Conn, unix.Errno) { (*session)(c).fail(codeClientReset) }

// advertised returns the address that clients are told for sockets of the family
// of addr, or the zero Addr.
func advertised(a *config.Advertised, addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return a.V4
	}
	return a.V6
}
