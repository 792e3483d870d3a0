package worker

import (
	"bytes"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/hostport"
	"3proxyd/proto/http1"
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
	st.retryable = idempotent(r.Method) && h.inHand(rest)
	head := http1.AppendRequestHead(s.w.headScratch[:0], r, s.requestOptions())
	s.w.headScratch = head
	if u := h.pooled(creds); u != nil {
		s.srv = u
		st.reused = true
		if st.retryable {
			h.keepForRetry(head, rest)
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

// maxRetryBody bounds the body, in bytes, of a request that is kept to be sent
// again.
const maxRetryBody = 4 << 10

// inHand reports whether rest, which follows the head in the input, has the whole
// body, and that is short.
func (h *httpClient) inHand(rest []byte) bool {
	switch st := h.http; st.body {
	case bodyNone:
		return true
	case bodyLength:
		return st.bodyLeft <= int64(min(len(rest), maxRetryBody))
	}
	return false
}

// keepForRetry keeps a request that may have to be sent again.
func (h *httpClient) keepForRetry(head, rest []byte) {
	st := h.http
	l := h.w.loop
	if st.out.Append(l, head) && (st.body == bodyNone || st.out.Append(l, rest[:st.bodyLeft])) {
		return
	}
	st.out.Release(l)
	st.retryable = false
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
	st.pins = connectionAuth(r.Fields, "Authorization")
	st.pinned = st.pinned || st.pins
	h.noteRequestLine(r)
}

// operation returns what a method is to the access lists.
func operation(method []byte) config.Operations {
	switch string(method) {
	case "GET":
		return config.OpHTTPGet
	case "POST":
		return config.OpHTTPPost
	case "HEAD":
		return config.OpHTTPHead
	case "PUT":
		return config.OpHTTPPut
	case "CONNECT":
		return config.OpHTTPConnect
	}
	return config.OpHTTPOther
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
