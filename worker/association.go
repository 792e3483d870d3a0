package worker

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/socks"
	"3proxyd/relay"
)

// association is a UDP ASSOCIATE (RFC 1928 section 7): a socket for the
// client's datagrams, and one for each address family of the servers, opened
// when it is first needed. It ends with the client's TCP connection. It is
// pooled.
type association struct {
	s                *session
	client           relay.PacketConn
	server4, server6 relay.PacketConn
	// path leads to the client once known is set, which its first datagram does;
	// port is what the client said it sends from, 0 when it did not.
	path  relay.Path
	known bool
	port  uint16
	// authorized says that a destination has been allowed.
	authorized bool
	// last is when a datagram last passed, in the loop's time; in and out count
	// them, from servers and from the client.
	last    int64
	in, out uint64
	// destinations are those in use, current the last one, line the one of the
	// log line that is being written.
	destinations  []*destination
	current, line *destination
	uses          uint64
	held          int // bytes of datagrams that wait for a name
	free          *association
}

func (w *Worker) newAssociation(s *session) *association {
	a := w.freeAssociations
	if a == nil {
		a = &association{}
	} else {
		w.freeAssociations = a.free
		a.free = nil
	}
	a.s = s
	return a
}

// dropAssociation closes the sockets of an association, if the session has one.
func (w *Worker) dropAssociation(st *socksState) {
	a := st.associate
	if a == nil {
		return
	}
	st.associate = nil
	a.client.Close()
	a.server4.Close()
	a.server6.Close()
	for i, d := range a.destinations {
		w.freeDestination(d)
		a.destinations[i] = nil
	}
	a.destinations, a.current, a.line = a.destinations[:0], nil, nil
	a.s, a.path, a.known, a.port, a.authorized = nil, relay.Path{}, false, 0, false
	a.last, a.in, a.out, a.uses, a.held = 0, 0, 0, 0, 0
	a.free = w.freeAssociations
	w.freeAssociations = a
}

// association returns the UDP association of the session, nil when it has none.
func (s *session) association() *association {
	if s.socks == nil {
		return nil
	}
	return s.socks.associate
}

// associate carries a UDP ASSOCIATE out.
func (h *socksClient) associate() {
	s := (*session)(h)
	r := s.associateRequest()
	decision := h.authorize(&r)
	local := s.cli.LocalAddr().Addr()
	switch {
	case decision.Code != acl.OK:
		h.reject(code(decision.Code), socks.ReplyNotAllowed)
		return
	case !local.IsValid() || !s.client.IsValid():
		// Nobody knows where datagrams of a client on a Unix socket come from.
		h.reject(codeUnsupported, socks.ReplyCommandUnsupported)
		return
	case !s.w.roomFor(s.svc, 2):
		h.reject(codeNoResources, socks.ReplyGeneralFailure)
		return
	}
	a := s.w.newAssociation(s)
	s.socks.associate = a
	if s.addr == s.client.Addr() || s.addr.IsUnspecified() {
		a.port = s.port
	}
	op, errno := s.w.loop.ListenPacket(&a.client, netip.AddrPortFrom(bindable(local), 0), s.svc.prepareClientPackets, (*associationClient)(a))
	if errno != 0 {
		c := connectCode(op, errno)
		h.reject(c, replyOf(c, errno))
		return
	}
	told := local
	if other := advertised(&s.svc.AdvertisedInternal, local); other.IsValid() {
		told = other
	}
	h.replyBound(netip.AddrPortFrom(told, a.client.LocalAddr().Port()))
	s.svc.cell.Add(ipc.Requests, 1)
	s.phase = phaseAssociate
	s.buf.Release(s.w.loop)
	s.cli.SetHandler((*associationControl)(s))
	s.cli.StartRead()
	a.last = s.w.loop.Now()
	s.arm(s.svc.idleMS)
}

// associateRequest is what the access list is asked before there is a
// destination: RFC 1928 has the client say where it sends from.
func (s *session) associateRequest() acl.Request {
	r := s.aclRequest(netip.Addr{}, false)
	r.Host, r.AnyAddr, r.AnyPort = "", true, true
	return r
}

// bindable returns the address to bind a socket to that serves local: a
// link-local address would need its interface as well.
func bindable(local netip.Addr) netip.Addr {
	if local.Is6() && local.IsLinkLocalUnicast() {
		return netip.IPv6Unspecified()
	}
	return local
}

// isClient reports whether a datagram comes from the association's client: from
// the address of its TCP connection, and from the port of its first datagram or
// the one it has named.
func (a *association) isClient(from *relay.Path) bool {
	if a.known {
		return from.Peer == a.path.Peer
	}
	return from.Peer.Addr() == a.s.client.Addr() && (a.port == 0 || a.port == from.Peer.Port())
}

// associationClient handles the socket for the client's datagrams.
type associationClient association

// OnPackets passes datagrams of the client on; others, malformed ones and
// fragments are dropped.
func (c *associationClient) OnPackets(_ *relay.PacketConn, packets []relay.Packet) {
	a := (*association)(c)
	cell := a.s.svc.cell
	before, dropped := a.s.out, uint64(0)
	for i := range packets {
		if !a.fromClient(&packets[i]) {
			dropped++
		}
	}
	cell.Add(ipc.DatagramsOut, uint64(len(packets)))
	cell.Add(ipc.BytesOut, a.s.out-before)
	if dropped > 0 {
		cell.Add(ipc.DatagramsDropped, dropped)
	}
}

// fromClient reports whether the datagram was passed on, or waits for a name.
func (a *association) fromClient(p *relay.Packet) bool {
	if p.Truncated || !a.isClient(&p.Path) {
		return false
	}
	m, why := socks.ParseDatagram(p.Data)
	if why != socks.FailNone {
		return false
	}
	a.path, a.known = p.Path, true
	a.last = a.s.w.loop.Now()
	return a.destination(&m).pass(m.Data)
}

// OnPacketError is of no interest: a datagram may get lost.
func (c *associationClient) OnPacketError(*relay.PacketConn, unix.Errno) {}

// associationServer handles the sockets towards the servers.
type associationServer association

// OnPackets passes datagrams of any host on to the client, with their real
// source.
func (v *associationServer) OnPackets(_ *relay.PacketConn, packets []relay.Packet) {
	a := (*association)(v)
	cell := a.s.svc.cell
	cell.Add(ipc.DatagramsIn, uint64(len(packets)))
	if !a.known {
		return
	}
	var head [socks.MaxDatagramHeader]byte
	bytes := uint64(0)
	for i := range packets {
		p := &packets[i]
		a.client.Send(&a.path, socks.AppendDatagramHeader(head[:0], p.Peer), p.Data)
		bytes += uint64(len(p.Data))
		if d := a.sender(p.Peer); d != nil {
			d.in += uint64(len(p.Data))
		}
	}
	a.in += uint64(len(packets))
	a.s.in += bytes
	cell.Add(ipc.BytesIn, bytes)
	a.last = a.s.w.loop.Now()
}

// OnPacketError is of no interest: a datagram may get lost.
func (v *associationServer) OnPacketError(*relay.PacketConn, unix.Errno) {}

// server returns the socket that sends to addr, opened if need be, or nil.
func (a *association) server(addr netip.Addr) *relay.PacketConn {
	c, any := &a.server6, netip.IPv6Unspecified()
	if addr.Is4() {
		c, any = &a.server4, netip.IPv4Unspecified()
	}
	if c.IsOpen() {
		return c
	}
	s := a.s
	if !s.w.roomFor(s.svc, 1) {
		return nil
	}
	source, _ := s.svc.source(addr)
	if !source.IsValid() {
		source = any
	}
	if _, errno := s.w.loop.ListenPacket(c, netip.AddrPortFrom(source, 0), s.svc.prepareServerPackets, (*associationServer)(a)); errno != 0 {
		s.w.warnResources(s.svc, errno)
		return nil
	}
	return c
}

// externalAddr is the address that datagrams to addr come from.
func (a *association) externalAddr(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return a.server4.LocalAddr().Addr()
	}
	return a.server6.LocalAddr().Addr()
}

// timedOut has destinations go on that have waited for their addresses, and ends an
// association in which nothing has passed for too long.
func (a *association) timedOut() {
	a.useEarly()
	if a.untilIdle() > 0 {
		a.arm()
		return
	}
	a.s.fail(codeTimeout)
}

// untilIdle is how long the association lasts without a datagram, in milliseconds.
func (a *association) untilIdle() int64 { return a.last + a.s.svc.idleMS - a.s.w.loop.Now() }

// arm sets the timer to what comes first.
func (a *association) arm() { a.s.arm(max(1, min(a.untilIdle(), a.untilEarly()))) }

// obey puts the association under the rules of a new generation: its
// destinations are asked for anew. One that is forgotten opens no way to others.
func (a *association) obey(now, before *acl.Policy) {
	s := a.s
	s.socks.verified = s.socks.verified && now.SameSecret(before, s.user)
	r := s.associateRequest()
	c := code(now.DecideAgain(&r, s.user, s.socks.verified).Code)
	first := false
	for _, d := range a.destinations {
		d.forgetVerdict()
		first = first || d.isFirst
		if d.isFirst && !a.authorizesAll() && c == codeOK && d.to.IsValid() {
			c = d.check(d.to)
		}
	}
	a.authorized = a.authorized && first
	if c != codeOK {
		s.endByRules(c)
	}
}

// authorizesAll reports whether the access list is asked about each
// destination, not only the first.
func (a *association) authorizesAll() bool {
	return a.s.svc.UDPDestinations&config.UDPAuthorize != 0
}

// associationControl handles the client's TCP connection.
type associationControl session

// OnConnect does not come for an accepted connection.
func (c *associationControl) OnConnect(*relay.Conn, unix.Errno) {}

// OnData drops what comes: the connection is only to be there.
func (c *associationControl) OnData(*relay.Conn, []byte) {}

// OnEOF ends the association.
func (c *associationControl) OnEOF(*relay.Conn) { (*session)(c).finish() }

// OnSent is of no interest: the reply is short.
func (c *associationControl) OnSent(*relay.Conn) {}

// OnFlow does not come: there is no flow.
func (c *associationControl) OnFlow(*relay.Flow) {}

// OnError ends the association.
func (c *associationControl) OnError(*relay.Conn, unix.Errno) { (*session)(c).fail(codeClientReset) }
