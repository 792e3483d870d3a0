package worker

import (
	"bytes"
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/http1"
	"3proxyd/relay"
)

// bodyKind is how the rest of a request's body is moved.
type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
)

// httpState is what the HTTP proxy keeps for a client connection. It goes when
// the session becomes a tunnel.
type httpState struct {
	free *httpState

	// The request.
	scan       http1.Scan
	minor      int8
	head       bool // HEAD: the response has no body
	keepClient bool // the client wants to keep its connection
	upgrade    bool
	retryable  bool         // may be sent again on another connection (RFC 9110 section 9.2.2)
	counted    bool         // its bytes have been counted
	pinned     bool         // authentication belongs to the connection: not shared
	pins       bool         // this request authenticates its connection
	expect     bool         // the client waits for 100 (Continue) before it sends the body
	asterisk   bool         // OPTIONS of the server as a whole
	format     http1.Format // of a page of the proxy's own
	body       bodyKind
	bodyLeft   int64
	chunks     http1.Chunked
	sent       bool // the whole request has been handed to the server
	// bodyMS is how long the client has been waited for within the body,
	// bodySeen when that was last added up, in the loop's time.
	bodyMS, bodySeen int64

	// out is the head to send: until there is a connection, and as long as
	// the request may have to be sent again.
	out relay.Buffer

	// The response.
	reused     bool // the server connection comes from the pool
	started    bool // the client has got part of the response
	answering  bool // the final head has been passed on
	closing    bool // the client connection ends after this response
	keepServer bool
	keepMS     int64 // how long the server connection may be idle
	dechunk    bool
	chunked    bool // the response's body is chunked
	untilClose bool // it ends with the connection
	respChunks http1.Chunked
	respScan   http1.Scan
	resp       relay.Buffer // part of a response head
	// interims and interimBytes are of the interim responses so far.
	interims, interimBytes int32

	active int64 // of bytes that do not pass through the flows
	served int   // requests answered on this connection
}

func (w *Worker) newHTTP() *httpState {
	st := w.freeHTTP
	if st == nil {
		return &httpState{}
	}
	w.freeHTTP = st.free
	st.free = nil
	return st
}

func (w *Worker) dropHTTP(s *session) {
	st := s.http
	if st == nil {
		return
	}
	s.http = nil
	st.out.Release(w.loop)
	st.resp.Release(w.loop)
	*st = httpState{free: w.freeHTTP}
	w.freeHTTP = st
}

// reset makes the state ready for the next request of the same client.
func (st *httpState) reset(l *relay.Loop) {
	st.out.Release(l)
	st.resp.Release(l)
	*st = httpState{served: st.served + 1, pinned: st.pinned}
}

// httpClient handles the client connection of the HTTP proxy.
type httpClient session

func (s *session) startHTTP() {
	s.http = s.w.newHTTP()
	s.cli.SetHandler((*httpClient)(s))
	s.cli.StartRead()
	s.arm(s.svc.headMS)
}

// OnConnect does not come for an accepted connection.
func (h *httpClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes request heads, chunked bodies, and what a client sends before
// its turn.
func (h *httpClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	switch {
	case s.phase == phaseHandshake || s.phase == phaseIdle:
		h.headData(p)
	case s.phase == phaseExchange && s.http.body == bodyChunked && !s.http.sent:
		h.bodyData(p)
	case s.phase == phaseSkip:
		h.skipData(p)
	default:
		s.cli.StopRead()
		if !s.buf.Append(s.w.loop, p) {
			s.fail(codeHTTPError)
		}
	}
}

// headData takes bytes of a request head.
func (h *httpClient) headData(p []byte) {
	s := (*session)(h)
	if s.phase == phaseIdle || s.w.draining && s.buf.Len() == 0 {
		h.beginRequest()
	}
	if s.buf.Len() == 0 {
		h.parse(p, false)
		return
	}
	if !s.buf.Append(s.w.loop, p) {
		h.forgetTarget()
		h.answer(431, codeHTTPError, "", false)
		return
	}
	h.parse(s.buf.Bytes(), true)
}

// beginRequest is called with the first byte of a request after the first: the
// rest of its head has to come within a bounded time, however slowly.
func (h *httpClient) beginRequest() {
	s := (*session)(h)
	s.phase = phaseHandshake
	s.began = s.w.loop.Now()
	s.arm(seconds(s.svc.Timeouts.StringShort))
}

// parse looks for a whole head in in, which is the session's buffer when
// buffered is set.
func (h *httpClient) parse(in []byte, buffered bool) {
	s := (*session)(h)
	r := &s.w.request
	r.Reset()
	r.Scan = s.http.scan
	n, err := r.Parse(in)
	if err != nil {
		h.refuseHead(err)
		return
	}
	if n == 0 {
		s.http.scan = r.Scan
		h.awaitHead(in, buffered)
		return
	}
	s.http.scan = http1.Scan{}
	s.cli.SetReadSize(s.svc.headRead())
	h.take(r, in[n:], buffered, n)
}

// awaitHead keeps the beginning of a head and has the rest of it read.
func (h *httpClient) awaitHead(in []byte, buffered bool) {
	s := (*session)(h)
	if !buffered && !s.buf.Append(s.w.loop, in) {
		h.forgetTarget()
		h.answer(431, codeHTTPError, "", false)
		return
	}
	s.boundRead(&s.cli, &s.buf)
	s.cli.StartRead()
}

// boundRead keeps the next reads of c within the room of b, so that what
// follows a head does not make the head too long for the buffer.
func (s *session) boundRead(c *relay.Conn, b *relay.Buffer) {
	c.SetReadSize(min(relay.MaxBuffer-b.Len(), s.svc.headRead()))
}

// forgetTarget keeps the target of the request before out of the log of one
// that could not be parsed.
func (h *httpClient) forgetTarget() {
	s := (*session)(h)
	s.user, s.host, s.addr, s.port, s.op = "", "", netip.Addr{}, 0, 0
}

// refuseHead answers a head that http1 does not accept.
func (h *httpClient) refuseHead(err error) {
	s := (*session)(h)
	r := &s.w.request
	status, reason := protocolError(err)
	h.forgetTarget()
	h.noteRequestLine(r)
	s.http.head = string(r.Method) == "HEAD"
	s.http.format = r.ErrorFormat()
	h.answer(status, protocolCode(status), reason, false)
}

// protocolError returns the status for an error of http1 and its reason.
func protocolError(err error) (status int, reason string) {
	if e, ok := err.(*http1.Error); ok {
		return e.Status, e.Text
	}
	return 400, ""
}

// protocolCode is the code of the log for a request answered with an error of
// the protocol.
func protocolCode(status int) code {
	if status >= 500 {
		return code(status)
	}
	return codeHTTPError
}

// noteRequestLine keeps the request line when there is a log for it, without
// a user and password before the host.
func (h *httpClient) noteRequestLine(r *http1.Request) {
	s := (*session)(h)
	if s.svc.log == nil || len(r.Method) == 0 {
		return
	}
	line := append(s.w.scratch[:0], r.Method...)
	line = appendTargetText(append(line, ' '), r.Method, r.Target)
	line = append(line, " HTTP/1."...)
	line = append(line, '0'+byte(r.Minor))
	s.text.Release(s.w.loop)
	s.text.Append(s.w.loop, line)
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

// answer sends a page of the proxy's own; reason says more than the status
// does. With keep the connection goes on, provided the client wants it and what
// is left of the request can be skipped.
func (h *httpClient) answer(status int, c code, reason string, keep bool) {
	s := (*session)(h)
	st := s.http
	s.code = c
	if st.started {
		s.abort()
		return
	}
	keep = keep && st.keepClient && h.skippable() && !h.hasEarly() && !s.w.draining
	s.log()
	s.dropUpstream()
	page := http1.AppendError(s.w.scratch[:0], status, http1.ErrorOptions{
		Close:  !keep,
		HTTP10: st.minor == 0 && keep,
		Head:   st.head,
		Realm:  realm,
		Format: st.format,
		Reason: reason,
	})
	s.cli.Write(page)
	h.answered(keep)
}

// hasEarly reports whether the client of a CONNECT request has sent more before
// its answer. That was meant for the tunnel, and whoever wrote it need not be who
// may send requests (RFC 9931).
func (h *httpClient) hasEarly() bool {
	s := (*session)(h)
	return s.op == config.OpHTTPConnect && (s.buf.Len() > 0 || s.cli.MayRead())
}

// answered goes on after an answer of the proxy's own.
func (h *httpClient) answered(keep bool) {
	s := (*session)(h)
	switch {
	case !keep:
		s.closeGently()
	case s.http.body != bodyNone && !s.http.sent:
		h.skipBody()
	default:
		h.nextRequest()
	}
}

// abort ends a session in the middle of an answer, so that the client sees
// that it is not complete: from its length or its chunks when it has them,
// else only a reset can tell. What has come still goes out before.
func (s *session) abort() {
	s.log()
	if st := s.http; st.untilClose || st.dechunk {
		s.dropUpstream()
		s.resetWhenSent()
		return
	}
	s.closeGently()
}

// realm is what a browser shows when it asks for a password.
const realm = "3proxyd"

// nextRequest goes on to the next request of the connection, which may have
// come already.
func (h *httpClient) nextRequest() {
	s := (*session)(h)
	s.http.reset(s.w.loop)
	s.phase = phaseIdle
	s.code, s.in, s.out, s.logged = codeOK, 0, 0, false
	s.up, s.down = relay.Flow{}, relay.Flow{}
	s.arm(s.svc.headMS)
	if s.buf.Len() == 0 && s.cli.Backlog() == 0 {
		s.cli.StartRead()
		return
	}
	// A client that does not read its answers is not read either.
	s.cli.NotifySent()
}

// OnEOF ends a client between requests, or one that stops within a request.
func (h *httpClient) OnEOF(*relay.Conn) {
	s := (*session)(h)
	switch {
	case s.phase == phaseExchange:
		h.cutShort()
	case len(bytes.Trim(s.buf.Bytes(), "\r\n")) > 0:
		h.forgetTarget()
		h.answer(400, codeHTTPError, reasonIncomplete, false)
	default:
		s.endQuietly()
	}
}

const reasonIncomplete = "the request is not complete"

// cutShort handles a client that has finished sending within the body of its
// request (RFC 9112 section 8). When the answer is under way already it is passed
// on to its end, and the server is told.
func (h *httpClient) cutShort() {
	s := (*session)(h)
	if !s.http.answering {
		h.answer(400, codeHTTPError, reasonIncomplete, false)
		return
	}
	s.http.closing = true
	s.srv.Shutdown()
}

// endQuietly ends a session between requests: there is nothing to log unless
// the client never asked anything.
func (s *session) endQuietly() {
	if s.http != nil && s.http.served > 0 {
		s.logged = true
	}
	if s.cli.Pending() > 0 {
		s.closeGently()
		return
	}
	s.finish()
}

// OnSent lets a chunked response go on, or takes up a request that came early,
// once the client has read what it was sent before.
func (h *httpClient) OnSent(*relay.Conn) {
	s := (*session)(h)
	switch {
	case s.phase == phaseExchange:
		(*httpServer)(s).clientReady()
	case s.phase == phaseIdle && s.buf.Len() > 0:
		h.beginRequest()
		h.parse(s.buf.Bytes(), true)
	case s.phase == phaseIdle:
		s.cli.StartRead()
	}
}

// OnFlow comes when the body of a request of known length has been read.
func (h *httpClient) OnFlow(f *relay.Flow) {
	s := (*session)(h)
	eof := f.EOF()
	s.out += f.Moved()
	s.up = relay.Flow{}
	if eof {
		h.cutShort()
		return
	}
	h.requestSent()
}

// OnError ends the session of a client that is gone.
func (h *httpClient) OnError(*relay.Conn, unix.Errno) {
	s := (*session)(h)
	if s.phase == phaseIdle {
		s.logged = true
	}
	s.fail(codeClientReset)
}

// timedOut ends a client whose request did not come in time.
func (h *httpClient) timedOut() {
	s := (*session)(h)
	if s.cli.Pending() > 0 {
		if left := s.cli.Flushed() + s.svc.exchangeMS - s.w.loop.Now(); left > 0 {
			s.arm(left)
			return
		}
		s.logged = true
		s.cli.Reset()
		s.release()
		return
	}
	if len(bytes.Trim(s.buf.Bytes(), "\r\n")) == 0 {
		s.code = codeOK
		if s.http.served == 0 && !s.w.draining {
			s.code = codeTimeout
		}
		s.endQuietly()
		return
	}
	h.forgetTarget()
	h.answer(408, codeTimeout, "", false)
}

// countHead counts a request's head, and what went with it, once: it may be
// sent again.
func (s *session) countHead(n int) {
	if s.http.counted {
		s.out += uint64(n)
		return
	}
	s.http.counted = true
	s.countOut(n)
}

// countOut counts bytes from the client that did not pass through a flow,
// countIn bytes from the server.
func (s *session) countOut(n int) {
	s.out += uint64(n)
	s.svc.cell.Add(ipc.BytesOut, uint64(n))
}

func (s *session) countIn(n int) {
	s.in += uint64(n)
	s.svc.cell.Add(ipc.BytesIn, uint64(n))
}
