package worker

import (
	"net/netip"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/proto/proxyproto"
	"3proxyd/relay"
)

// headerClient reads the PROXY protocol header that a client must begin with
// (-H), and then starts the service's protocol.
type headerClient session

// startHeader waits for a header. From a peer that may not send one nothing is
// read: it could claim any address.
func (s *session) startHeader() {
	s.protocol = s.svc.protocol
	if !believed(s.svc.ProxyHeader, s.client) {
		s.fail(codeDenied)
		return
	}
	s.cli.SetHandler((*headerClient)(s))
	s.cli.StartRead()
	s.arm(seconds(s.svc.Timeouts.ByteLong))
}

// believed reports whether a peer may say who its client is. One at a Unix
// socket has no address: who may connect there is up to the socket's file.
func believed(h *config.ProxyHeader, peer netip.AddrPort) bool {
	a := peer.Addr()
	if !a.IsValid() {
		return true
	}
	if len(h.From) == 0 {
		return a.IsLoopback()
	}
	i := sort.Search(len(h.From), func(i int) bool { return a.Less(h.From[i].From) })
	return i > 0 && !h.From[i-1].To.Less(a)
}

// OnConnect does not come for an accepted connection.
func (h *headerClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes the header.
func (h *headerClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	if s.buf.Len() > 0 {
		if !s.buf.Append(s.w.loop, p) {
			s.fail(codeBadHeader)
			return
		}
		p = s.buf.Bytes()
	}
	n, header, err := proxyproto.Parse(p)
	switch {
	case err != nil:
		s.fail(codeBadHeader)
	case n > 0:
		h.take(header, p[n:])
	case s.buf.Len() == 0:
		s.buf.Append(s.w.loop, p)
		fallthrough
	default:
		s.boundRead(&s.cli, &s.buf)
	}
}

// take makes the client of the header the session's and goes on with what
// follows it.
func (h *headerClient) take(header proxyproto.Header, rest []byte) {
	s := (*session)(h)
	if header.Known {
		s.client = header.Source
		if header.Destination.IsValid() {
			s.needFront().local = header.Destination
		}
	}
	if s.buf.Len() > 0 {
		rest = slices.Clone(rest)
		s.buf.Release(s.w.loop)
	}
	s.cli.SetReadSize(s.svc.headRead())
	s.begin(s.svc.protocol, rest)
}

// OnEOF ends a client that sends no header. One that sends nothing at all may
// be a health check.
func (h *headerClient) OnEOF(*relay.Conn) {
	s := (*session)(h)
	if s.buf.Len() > 0 {
		s.code = codeBadHeader
	}
	s.finish()
}

// OnSent does not come: nothing is written.
func (h *headerClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (h *headerClient) OnFlow(*relay.Flow) {}

// OnError ends the session of a client that is gone.
func (h *headerClient) OnError(*relay.Conn, unix.Errno) { (*session)(h).fail(codeClientReset) }

// sendHeader sends the server a PROXY protocol header (-Hout1, -Hout2) in one
// write with what the client has sent by now.
func (s *session) sendHeader() {
	early := s.buf.Bytes()
	if len(early) == 0 && s.cli.MayRead() {
		early = s.cli.Rest()
	}
	s.srv.Write2(s.appendHeader(s.w.scratch[:0]), early)
	s.countOut(len(early))
	s.buf.Release(s.w.loop)
}

// appendHeader appends the header for the server. An HTTP or SOCKS client of an
// auto service chooses its server, which does not expect one.
func (s *session) appendHeader(b []byte) []byte {
	switch {
	case s.protocol != protoPortMap && s.protocol != protoTLS:
		return b
	case s.svc.SendHeader == 1:
		return proxyproto.Append1(b, s.client, s.localAddr())
	}
	return proxyproto.Append2(b, s.client, s.localAddr())
}

var _ relay.Handler = (*headerClient)(nil)
