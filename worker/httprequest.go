package worker

import (
	"bytes"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/hostport"
	"3proxyd/proto/http1"
	"3proxyd/relay"
)

// pooledMaxIdleMS is how long a pooled connection may have been idle to take a
// request that cannot be sent twice, in milliseconds: servers close idle
// connections, but seldom this early.
const pooledMaxIdleMS = 2000

// take carries out a request whose head has been parsed. rest is what follows
// the head in the input; n is the head's length there.
func (h *httpClient) take(r *http1.Request, rest []byte, buffered bool, n int) {
	s := (*session)(h)
	st := s.http
	s.cli.StopRead()
	s.svc.cell.Add(ipc.Requests, 1)
	h.note(r)
	if status, reason := unacceptable(r, s.svc.via); status != 0 {
		h.keepRest(rest, buffered, n)
		h.answer(status, protocolCode(status), reason, false)
		return
	}
	creds := s.credentials(r)
	switch {
	case s.svc.AskUser == config.AskAlways && s.user == "":
		h.keepRest(rest, buffered, n)
		h.answerRefused(codeNoUser, 0)
		return
	case r.MaxForwards == 0, st.asterisk && s.addr.IsValid() && s.isOwn(s.addr):
		h.keepRest(rest, buffered, n)
		h.finalRecipient(r, creds)
		return
	case s.svc.MaxBody > 0 && r.ContentLength > s.svc.MaxBody:
		h.keepRest(rest, buffered, n)
		h.answer(http1.ErrBodyLong.Status, codeHTTPError, http1.ErrBodyLong.Text, true)
		return
	}
	if s.op == config.OpHTTPConnect {
		s.dropUpstream()
		h.keepRest(rest, buffered, n)
		s.open(creds, connectOpener{})
		return
	}
	head := http1.AppendRequestHead(s.w.headScratch[:0], r, s.requestOptions())
	s.w.headScratch = head
	if u := h.pooled(creds); u != nil {
		s.srv = u
		st.reused = true
		if st.retryable {
			st.out.Append(s.w.loop, head)
		}
		used := h.send(head, rest)
		if used < 0 {
			return
		}
		h.keepRest(rest[used:], buffered, n+used)
		return
	}
	if !st.out.Append(s.w.loop, head) {
		h.answer(431, codeHTTPError, "", false)
		return
	}
	h.keepRest(rest, buffered, n)
	s.open(creds, requestOpener{})
}

// keepRest leaves in the session's buffer what the request has not used. used
// is the number of bytes to drop when the input was that buffer.
func (h *httpClient) keepRest(rest []byte, buffered bool, used int) {
	s := (*session)(h)
	if buffered {
		s.buf.Consume(s.w.loop, used)
		return
	}
	if len(rest) > 0 {
		s.buf.Append(s.w.loop, rest)
	}
}

// note copies out of the request what is needed after its buffer is gone.
func (h *httpClient) note(r *http1.Request) {
	s := (*session)(h)
	st := s.http
	s.op = operation(r.Method)
	s.addr, s.port = r.Addr, r.Port
	s.setHost(hostport.AppendLower(s.w.scratch[:0], r.Host))
	st.minor = int8(r.Minor)
	st.head = string(r.Method) == "HEAD"
	st.keepClient = r.KeepAlive
	st.upgrade, st.expect = r.Upgrade, r.Expect100
	st.asterisk = string(r.Path) == "*"
	st.format = r.ErrorFormat()
	switch {
	case r.Chunked:
		st.body = bodyChunked
		st.chunks.Limit = s.svc.MaxBody
	case r.ContentLength > 0:
		st.body, st.bodyLeft = bodyLength, r.ContentLength
	}
	st.retryable = st.body == bodyNone && idempotent(r.Method)
	st.pins = connectionAuth(r.Fields, "Authorization")
	st.pinned = st.pinned || st.pins
	h.noteRequestLine(r)
}

// unacceptable returns the status with which a request is refused that is
// well-formed but not for a forward proxy, and the reason; 0 for others.
func unacceptable(r *http1.Request, via string) (status int, reason string) {
	switch {
	case r.Form == http1.OriginForm:
		return 400, "the request line has a path only: a proxy needs the whole URL"
	case r.Host == nil && !r.Addr.IsValid():
		return 400, "the request names no server"
	case r.HasVia(via):
		return 508, ""
	}
	return 0, ""
}

func idempotent(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// connectionAuth reports whether a field carries an authentication scheme that
// belongs to the connection rather than to the request. Such a connection must
// not serve anybody else.
func connectionAuth(fields []http1.Field, name string) bool {
	for i := range fields {
		f := &fields[i]
		if len(f.Name) == len(name) && bytes.EqualFold(f.Name, []byte(name)) &&
			(hasPrefixFold(f.Value, "NTLM") || hasPrefixFold(f.Value, "Negotiate")) {
			return true
		}
	}
	return false
}

func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && bytes.EqualFold(b[:len(prefix)], []byte(prefix))
}

// credentials returns the user and password of the request, nil without any.
// The password lies in the worker's scratch.
func (s *session) credentials(r *http1.Request) *acl.Creds {
	if r.ProxyAuth == nil {
		s.setUser("")
		return nil
	}
	user, pass, ok := http1.ParseBasic(r.ProxyAuth, s.w.basicScratch[:])
	if !ok {
		s.setUser("")
		return nil
	}
	if s.user != string(user) {
		s.user = string(user)
	}
	s.w.creds = acl.Creds{HasUser: true, User: s.user, HasPass: true, Pass: pass}
	return &s.w.creds
}

// pooled returns an idle connection to the request's target, if there is one
// and the request is allowed to the address it leads to; otherwise open finds
// out what to answer.
func (h *httpClient) pooled(creds *acl.Creds) *upstream {
	s := (*session)(h)
	u := h.idle()
	if u == nil {
		return nil
	}
	if !s.svc.policy.Trivial() && s.decide(u.addr.Addr(), false, creds).Code != acl.OK {
		s.w.freeUpstream(u)
		return nil
	}
	u.s = s
	u.SetHandler((*httpServer)(s))
	return u
}

// idle takes an idle connection to the request's target: the client's own, if
// it authenticated one, or one from the pool.
func (h *httpClient) idle() *upstream {
	s := (*session)(h)
	st := s.http
	if u := s.srv; u != nil {
		s.srv = nil
		if u.serves(s) && !u.HangupSeen() && !u.MayRead() {
			return u
		}
		s.w.freeUpstream(u)
		st.pinned = st.pins
	}
	switch {
	case st.pinned:
		return nil
	case st.retryable:
		return s.w.pool.get(s, poolIdleMS)
	}
	return s.w.pool.get(s, pooledMaxIdleMS)
}

// send writes the head and what of the body is in rest to the server, and
// returns how much of rest it used; the body's remainder follows by itself. It
// returns -1 when the session has been ended instead.
func (h *httpClient) send(head, rest []byte) int {
	s := (*session)(h)
	st := s.http
	s.phase = phaseExchange
	st.active, st.bodySeen = s.w.loop.Now(), s.w.loop.Now()
	s.srv.StartRead()
	s.arm(min(s.svc.exchangeMS, exchangeCheckMS))
	used, whole := 0, true
	var body []byte
	switch st.body {
	case bodyLength:
		used = int(min(int64(len(rest)), st.bodyLeft))
		st.bodyLeft -= int64(used)
		body = rest[:used]
		whole = st.bodyLeft == 0
	case bodyChunked:
		out, n, done, err := st.chunks.Pass(s.w.scratch[:0], rest)
		if err != nil {
			h.badChunks(err)
			return -1
		}
		body, used, whole = out, n, done
	}
	s.countHead(len(head) + used)
	if len(body) > 0 {
		s.srv.Write2(head, body)
	} else {
		s.srv.Write(head)
	}
	switch {
	case whole:
		st.sent = true
	case st.body == bodyLength:
		s.w.loop.StartFlow(&s.up, &s.cli, &s.srv.Conn, st.bodyLeft, &s.svc.upSplice, &s.svc.up)
	default:
		s.cli.StartRead()
	}
	return used
}

// bodyData passes a piece of a chunked body on.
func (h *httpClient) bodyData(p []byte) {
	s := (*session)(h)
	st := s.http
	out, n, done, err := st.chunks.Pass(s.w.scratch[:0], p)
	if err != nil {
		h.badChunks(err)
		return
	}
	st.active = s.w.loop.Now()
	s.countOut(n)
	if len(out) > 0 {
		s.srv.Write(out)
	}
	if !done {
		if s.srv.Pending() > 0 {
			s.cli.StopRead()
		}
		return
	}
	s.cli.StopRead()
	if n < len(p) {
		s.buf.Append(s.w.loop, p[n:])
	}
	h.requestSent()
}

// badChunks answers a chunked body that is malformed.
func (h *httpClient) badChunks(err error) {
	status, reason := protocolError(err)
	h.answer(status, protocolCode(status), reason, false)
}

// requestSent is called when the last of the request has been handed over.
func (h *httpClient) requestSent() {
	s := (*session)(h)
	s.http.sent = true
	s.http.active = s.w.loop.Now()
}

// requestOpener sends the waiting request when its server is reached.
type requestOpener struct{}

func (requestOpener) opened(s *session) {
	st := s.http
	s.srv.SetHandler((*httpServer)(s))
	s.srv.TellEarly()
	if s.srv.HasEarly() {
		(*httpServer)(s).broken(reasonEarly)
		return
	}
	used := (*httpClient)(s).send(st.out.Bytes(), s.buf.Bytes())
	if used < 0 {
		return
	}
	s.buf.Consume(s.w.loop, used)
	// A fresh connection that fails is the server's answer: nothing is sent
	// twice.
	st.out.Release(s.w.loop)
}

func (requestOpener) refused(s *session, c code, errno unix.Errno) {
	if c == codeLoop && s.http.asterisk {
		s.code = codeOK
		(*httpClient)(s).answerOptions()
		return
	}
	(*httpClient)(s).answerRefused(c, errno)
}

// connectOpener makes a tunnel of a CONNECT request.
type connectOpener struct{}

func (connectOpener) opened(s *session) {
	s.cli.Write(http1.AppendEstablished(s.w.scratch[:0], int(s.http.minor)))
	s.w.dropHTTP(s)
	s.startTunnel()
}

func (connectOpener) refused(s *session, c code, errno unix.Errno) {
	(*httpClient)(s).answerRefused(c, errno)
}

// answerRefused answers a request that reached no server.
func (h *httpClient) answerRefused(c code, errno unix.Errno) {
	s := (*session)(h)
	status := 502
	switch {
	case c >= codeDenied && c < codeNoUser:
		status = 403
	case c >= codeNoUser && c < codeSocket && s.svc.AskUser == config.AskNever:
		status = 403
	case c >= codeNoUser && c < codeSocket:
		status = 407
	case c == codeNoResources, c == codeBind, c == codeSocket:
		status = 503
	case c == codeLoop:
		status = 508
	case errno == unix.ETIMEDOUT:
		status = 504
	}
	h.answer(status, c, refusalReason(c, errno), true)
}

// refusalReason says why no server was reached. Unknown users and wrong
// passwords are not told apart.
func refusalReason(c code, errno unix.Errno) string {
	switch {
	case c == codeDenied:
		return "a rule forbids it"
	case c < codeNoUser:
		return "no rule allows it"
	case c == codeNoUser:
		return "no user name has been given"
	case c < codeSocket:
		return "user name or password is wrong"
	case c == codeNoResources:
		return "the proxy is out of descriptors or memory"
	case c == codeNoHost:
		return "the host has not been found"
	case c == codeLoop:
		return "the target is this proxy itself"
	case c == codeSocket, c == codeBind:
		return "the proxy has no address to connect from"
	}
	switch errno {
	case unix.ETIMEDOUT:
		return "the server has not accepted the connection in time"
	case unix.ECONNREFUSED:
		return "the server has refused the connection"
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return "the server cannot be reached from here"
	}
	return "the connection to the server has failed"
}

// retry sends the request once more on a connection of its own, after one from
// the pool turned out to be closed by the server.
func (h *httpClient) retry() {
	s := (*session)(h)
	addr := s.srv.addr
	s.dropUpstream()
	s.http.reused = false
	s.http.interims, s.http.interimBytes = 0, 0
	s.http.resp.Release(s.w.loop)
	s.http.respScan = http1.Scan{}
	s.out = 0
	d := s.w.newDial(s)
	d.opener = requestOpener{}
	d.one[0] = addr.Addr()
	d.targets.set(d.one[:], false)
	s.connectNext()
}

var _ relay.Handler = (*httpClient)(nil)
