package worker

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/hostport"
	"3proxyd/proto/socks"
	"3proxyd/relay"
)

// socksState is what a SOCKS handshake needs until its reply has been sent.
type socksState struct {
	shake socks.Handshake
	// creds are those of RFC 1929 or the user id of SOCKS 4, kept for the
	// request and forgotten with the state.
	creds acl.Creds
	begun bool // the client has sent something
	// verified says that the password of the session's user has been verified;
	// it is set when the credentials are forgotten before the state is.
	verified  bool
	bind      *peerWait
	associate *association
	free      *socksState
}

func (w *Worker) newSocks() *socksState {
	st := w.freeSocks
	if st == nil {
		return &socksState{}
	}
	w.freeSocks = st.free
	st.free = nil
	return st
}

func (w *Worker) dropSocks(s *session) {
	if st := s.socks; st != nil {
		w.dropPeerWait(st)
		w.dropAssociation(st)
		*st = socksState{free: w.freeSocks}
		w.freeSocks = st
		s.socks = nil
	}
}

// socksClient handles the client connection until the reply has been sent.
type socksClient session

func (s *session) startSocks() {
	s.socks = s.w.newSocks()
	s.op = config.OpConnect
	s.cli.SetHandler((*socksClient)(s))
	s.cli.StartRead()
	s.arm(seconds(s.svc.Timeouts.ByteLong))
}

// OnConnect does not come for an accepted connection.
func (h *socksClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData feeds the handshake.
func (h *socksClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	if !s.socks.begun {
		s.socks.begun = true
		s.arm(seconds(s.svc.Timeouts.StringShort))
	}
	if s.buf.Len() == 0 {
		h.feed(p, false)
		return
	}
	if !s.buf.Append(s.w.loop, p) {
		s.fail(codeSocksError)
		return
	}
	h.feed(s.buf.Bytes(), true)
}

// feed runs the handshake over in, which is the session's buffer when buffered
// is set; otherwise what is not taken is put there.
func (h *socksClient) feed(in []byte, buffered bool) {
	s := (*session)(h)
	used := 0
	for {
		n, step := s.socks.shake.Next(in[used:])
		used += n
		switch step {
		case socks.Methods:
			if !h.chooseMethod() {
				return
			}
			continue
		case socks.UserPass:
			if !h.checkPassword() {
				return
			}
			continue
		case socks.Fail:
			h.reject(codeSocksError+code(s.socks.shake.Err), s.socks.shake.Err.Reply())
			return
		case socks.Request:
			h.takeRequest()
		}
		if buffered {
			s.buf.Consume(s.w.loop, used)
		} else if used < len(in) {
			s.buf.Append(s.w.loop, in[used:])
		}
		s.boundRead(&s.cli, &s.buf)
		if step == socks.Request {
			h.request()
		}
		return
	}
}

// chooseMethod answers the offer of methods. A password is asked for when a
// method of the service needs it, or -u2 says so; a client that offers only
// user/password gets it everywhere but with -u.
func (h *socksClient) chooseMethod() bool {
	s := (*session)(h)
	shake, policy, ask := &s.socks.shake, s.svc.policy, s.svc.AskUser
	needed := policy.NeedsCreds() || ask == config.AskAlways || !shake.HasNoAuth
	method := socks.NoAcceptable
	switch {
	case shake.HasUserPass && needed && ask != config.AskNever:
		method = socks.UserPassAuth
	case shake.HasNoAuth && policy.Anonymous() && ask != config.AskAlways:
		method = socks.NoAuth
	}
	shake.Select(method)
	s.cli.Write(socks.AppendMethod(s.w.scratch[:0], method))
	if method == socks.NoAcceptable {
		s.code = codeNoUser
		s.closeGently()
		return false
	}
	return true
}

// checkPassword answers the user and password of RFC 1929: a wrong one is
// refused here already.
func (h *socksClient) checkPassword() bool {
	s := (*session)(h)
	st := s.socks
	st.creds = acl.Creds{
		HasUser: len(st.shake.User) > 0,
		User:    string(st.shake.User),
		HasPass: true,
		Pass:    append([]byte(nil), st.shake.Pass...),
	}
	c := acl.OK
	switch {
	case s.svc.policy.NeedsCreds():
		c = s.svc.policy.CheckCreds(&st.creds)
	case s.svc.AskUser == config.AskAlways && !st.creds.HasUser:
		c = acl.NoUser
	}
	s.cli.Write(socks.AppendAuthStatus(s.w.scratch[:0], c == acl.OK))
	if c != acl.OK {
		s.setUser(st.creds.User)
		s.code = code(c)
		s.closeGently()
		return false
	}
	return true
}

// takeRequest copies the request out of the input.
func (h *socksClient) takeRequest() {
	s := (*session)(h)
	shake := &s.socks.shake
	s.addr, s.port = shake.Addr, shake.Port
	s.setHost(hostport.AppendLower(s.w.scratch[:0], shake.Host))
	if shake.Version == socks.Version4 && len(shake.User) > 0 {
		s.socks.creds = acl.Creds{HasUser: true, User: string(shake.User)}
	}
	switch shake.Command {
	case socks.Bind:
		s.op = config.OpBind
	case socks.UDPAssociate:
		s.op = config.OpUDPAssoc
	}
}

// request carries the request out.
func (h *socksClient) request() {
	s := (*session)(h)
	s.cli.StopRead()
	s.cli.SetReadSize(s.svc.headRead())
	switch {
	case s.svc.AskUser == config.AskAlways && !s.socks.creds.HasUser:
		h.reject(codeNoUser, socks.ReplyNotAllowed)
	case s.op == config.OpBind:
		h.bind()
	case s.op == config.OpUDPAssoc:
		h.associate()
	default:
		s.open(&s.socks.creds, socksOpener{})
	}
}

// reject sends a reply other than success and ends the session.
func (h *socksClient) reject(c code, reply byte) {
	s := (*session)(h)
	s.code = c
	switch v := s.socks.shake.Version; {
	case s.socks.shake.Err == socks.FailAuthVersion:
		s.cli.Write(socks.AppendAuthStatus(s.w.scratch[:0], false))
	case v == socks.Version4 || v == socks.Version5:
		if v == socks.Version4 && c >= codeNoUser && c < codeSocket {
			reply = socks.Reply4UserMismatch
		}
		s.cli.Write(socks.AppendReply(s.w.scratch[:0], v, reply, netip.AddrPort{}))
	}
	s.closeGently()
}

// OnEOF ends a client that goes before it has asked.
func (h *socksClient) OnEOF(*relay.Conn) {
	s := (*session)(h)
	c := codeOK
	if s.socks.begun {
		c = codeSocksError
	}
	s.fail(c)
}

// OnSent is of no interest: replies are short.
func (h *socksClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (h *socksClient) OnFlow(*relay.Flow) {}

// OnError ends the session of a client that is gone.
func (h *socksClient) OnError(*relay.Conn, unix.Errno) { (*session)(h).fail(codeClientReset) }

// socksOpener answers the request when its outcome is known.
type socksOpener struct{}

func (socksOpener) opened(s *session) {
	local := s.srv.LocalAddr()
	if told := advertised(&s.svc.AdvertisedExternal, local.Addr()); told.IsValid() {
		local = netip.AddrPortFrom(told, local.Port())
	}
	(*socksClient)(s).replyBound(local)
	s.svc.cell.Add(ipc.Requests, 1)
	s.w.dropSocks(s)
	s.startTunnel()
}

func (socksOpener) refused(s *session, c code, errno unix.Errno) {
	(*socksClient)(s).reject(c, replyOf(c, errno))
}

// replyOf returns the SOCKS 5 reply for a code (RFC 1928 section 6). "TTL
// expired" is what servers say when nobody answers; the router that says so of a
// packet makes the host unreachable for connect(2).
func replyOf(c code, errno unix.Errno) byte {
	switch {
	case c >= codeDenied && c < codeSocket, c == codeLoop:
		return socks.ReplyNotAllowed
	case c == codeNoHost:
		return socks.ReplyHostUnreachable
	}
	switch errno {
	case unix.ECONNREFUSED:
		return socks.ReplyConnectionRefused
	case unix.ENETUNREACH, unix.ENETDOWN, unix.EAFNOSUPPORT:
		return socks.ReplyNetworkUnreachable
	case unix.EHOSTUNREACH, unix.EHOSTDOWN:
		return socks.ReplyHostUnreachable
	case unix.ETIMEDOUT:
		return socks.ReplyTTLExpired
	case unix.EPERM, unix.EACCES: // a packet filter of this host
		return socks.ReplyNotAllowed
	}
	return socks.ReplyGeneralFailure
}
