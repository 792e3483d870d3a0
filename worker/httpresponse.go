package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/proto/http1"
	"3proxyd/relay"
)

// httpServer handles the server connection while a request is in progress.
type httpServer session

// OnConnect does not come: the connection is established.
func (h *httpServer) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes response heads and chunked bodies.
func (h *httpServer) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	st := s.http
	if s.phase != phaseExchange {
		h.unpin()
		return
	}
	if st.answering {
		st.active = s.w.loop.Now()
		h.chunkData(p)
		return
	}
	if s.srv.HasEarly() {
		h.broken(reasonEarly)
		return
	}
	if st.resp.Len() == 0 {
		st.active = s.w.loop.Now()
		h.parse(p, false)
		return
	}
	// The pieces of a head together have the time of one silence.
	if !st.resp.Append(s.w.loop, p) {
		h.broken(reasonLongHead)
		return
	}
	h.parse(st.resp.Bytes(), true)
}

// parse takes response heads out of in, which is the buffer of the response
// when buffered is set: interim ones, and the final one.
func (h *httpServer) parse(in []byte, buffered bool) {
	s := (*session)(h)
	st := s.http
	r := &s.w.response
	for {
		r.Reset()
		r.Scan = st.respScan
		n, err := r.Parse(in, st.head, false)
		if err != nil {
			_, reason := protocolError(err)
			h.broken(reason)
			return
		}
		if n == 0 {
			st.respScan = r.Scan
			h.keepHead(in, buffered)
			return
		}
		st.respScan, st.active = http1.Scan{}, s.w.loop.Now()
		s.srv.SetReadSize(s.svc.readSize)
		if r.Status >= 200 || r.Status == 101 {
			s.countIn(n)
			h.final(r, in[n:])
			return
		}
		if !h.interim(r, n) {
			h.broken("too many interim responses")
			return
		}
		s.countIn(n)
		in = in[n:]
		if len(in) == 0 {
			st.resp.Release(s.w.loop)
			h.awaitClient()
			return
		}
	}
}

// keepHead keeps the beginning of a head in the buffer of the response.
func (h *httpServer) keepHead(in []byte, buffered bool) {
	s := (*session)(h)
	st := s.http
	if buffered {
		st.resp.Consume(s.w.loop, st.resp.Len()-len(in))
	} else if !st.resp.Append(s.w.loop, in) {
		h.broken(reasonLongHead)
		return
	}
	s.boundRead(&s.srv.Conn, &st.resp)
	h.awaitClient()
}

const (
	// maxInterims and maxInterimBytes bound the interim responses to a request: a
	// server could go on with them for ever.
	maxInterims     = 256
	maxInterimBytes = 256 << 10
)

// interim passes on a 1xx response of n bytes, which HTTP/1.0 does not know. It
// reports whether there may be another.
func (h *httpServer) interim(r *http1.Response, n int) bool {
	s := (*session)(h)
	st := s.http
	st.retryable = false // the server is answering
	if r.Status == 100 {
		st.expect = false // the body is coming now
	}
	st.interims++
	st.interimBytes += int32(n)
	if st.interims > maxInterims || st.interimBytes > maxInterimBytes {
		return false
	}
	if st.minor > 0 {
		s.cli.Write(http1.AppendResponseHead(s.w.scratch[:0], r, http1.ResponseOptions{Via: s.svc.via}))
	}
	return true
}

// final passes the head of the response on, with what of the body has come.
func (h *httpServer) final(r *http1.Response, rest []byte) {
	s := (*session)(h)
	st := s.http
	if r.Status == 408 && !r.KeepAlive && st.reused && st.retryable && st.out.Len() > 0 {
		// Said when an idle connection is closed; the request has not been read
		// (RFC 9110 section 15.5.9).
		(*httpClient)(s).retry()
		return
	}
	st.out.Release(s.w.loop)
	if r.Status == 101 {
		h.switchProtocols(r, rest)
		return
	}
	st.answering, st.started = true, true
	st.keepServer = r.KeepAlive && st.sent
	st.keepMS = poolIdleMS
	if r.KeepAliveFor >= 0 {
		st.keepMS = min(poolIdleMS, 1000*int64(r.KeepAliveFor)-poolMarginMS)
	}
	st.chunked, st.untilClose = r.Body == http1.BodyChunked, r.Body == http1.BodyUntilClose
	st.dechunk = st.chunked && st.minor == 0
	st.closing = !st.keepClient || st.dechunk || st.untilClose || s.w.draining ||
		!st.sent && !(*httpClient)(s).restShort()
	if connectionAuth(r.Fields, "WWW-Authenticate") {
		st.pinned = true
	}
	head := http1.AppendResponseHead(s.w.headScratch[:0], r, http1.ResponseOptions{
		Via:     s.svc.via,
		Close:   st.closing,
		HTTP10:  st.minor == 0,
		Dechunk: st.dechunk,
	})
	s.w.headScratch = head
	h.startBody(r, head, rest)
}

// startBody sends the head with the first of the body and arranges for the
// rest.
func (h *httpServer) startBody(r *http1.Response, head, rest []byte) {
	s := (*session)(h)
	st := s.http
	switch r.Body {
	case http1.BodyNone:
		s.cli.Write(head)
		h.done(len(rest) > 0)
	case http1.BodyLength:
		take := int(min(int64(len(rest)), r.ContentLength))
		left := r.ContentLength - int64(take)
		h.writeHead(head, rest[:take])
		if left == 0 {
			h.done(take < len(rest))
			return
		}
		h.flow(left)
	case http1.BodyUntilClose:
		h.writeHead(head, rest)
		h.flow(relay.Unlimited)
	case http1.BodyChunked:
		if st.dechunk {
			s.cli.Write(head)
			h.chunkData(rest)
			return
		}
		h.passChunks(head, rest)
	}
	if s.http == st {
		st.resp.Release(s.w.loop)
	}
}

func (h *httpServer) writeHead(head, body []byte) {
	s := (*session)(h)
	s.countIn(len(body))
	if len(body) == 0 {
		s.cli.Write(head)
		return
	}
	s.cli.Write2(head, body)
}

// writeChunks writes a piece of a chunked body as Chunked.Pass returned it.
func (h *httpServer) writeChunks(head, out []byte) {
	if len(head)+len(out) > 0 {
		h.writeHead(head, out)
	}
}

func (h *httpServer) flow(length int64) {
	s := (*session)(h)
	s.w.loop.StartFlow(&s.down, &s.srv.Conn, &s.cli, length, &s.svc.downSplice, &s.svc.down)
}

// chunkData passes a piece of a chunked body on, or its data to a client that
// does not know chunks.
func (h *httpServer) chunkData(p []byte) {
	s := (*session)(h)
	if !s.http.dechunk {
		h.passChunks(nil, p)
		return
	}
	for len(p) > 0 {
		n, data, done, err := s.http.respChunks.Next(p)
		if err != nil {
			s.code = protocolCode(502)
			s.abort()
			return
		}
		if len(data) > 0 {
			s.cli.Write(data)
		}
		s.countIn(n)
		p = p[n:]
		if done {
			h.done(len(p) > 0)
			return
		}
	}
	h.awaitClient()
}

// passChunks sends chunks as they came, after head.
func (h *httpServer) passChunks(head, p []byte) {
	s := (*session)(h)
	st := s.http
	out, n, done, err := st.respChunks.Pass(s.w.scratch[:0], p)
	h.writeChunks(head, out)
	if err != nil {
		s.code = protocolCode(502)
		s.abort()
		return
	}
	if done {
		h.done(n < len(p))
		return
	}
	if left := st.respChunks.Left(); left >= chunkFlowMin {
		st.respChunks.Skip(left)
		h.flow(left)
		return
	}
	h.awaitClient()
}

// chunkFlowMin is the rest of a chunk, in bytes, from which it is moved by a
// flow, which may splice.
const chunkFlowMin = 32 << 10

// awaitClient stops reading from the server while the client has not taken
// what it was sent.
func (h *httpServer) awaitClient() {
	s := (*session)(h)
	if s.cli.Backlog() > 0 {
		s.srv.StopRead()
	}
}

// clientReady goes on when the client has taken all.
func (h *httpServer) clientReady() {
	s := (*session)(h)
	if s.srv != nil && !s.down.Active() {
		s.srv.StartRead()
	}
}

// OnSent lets a chunked request body go on.
func (h *httpServer) OnSent(*relay.Conn) {
	s := (*session)(h)
	if s.phase == phaseExchange && s.http.body == bodyChunked && !s.http.sent {
		s.cli.StartRead()
	}
}

// OnFlow comes when a body, or a large chunk of one, has been read.
func (h *httpServer) OnFlow(f *relay.Flow) {
	s := (*session)(h)
	st := s.http
	st.active = s.w.loop.Now()
	if f.Left() > 0 {
		// The server stopped within the body: the client has to see that.
		s.code = codeServerReset
		s.abort()
		return
	}
	s.in += f.Moved()
	s.down = relay.Flow{}
	if st.chunked {
		s.srv.StartRead()
		h.awaitClient()
		return
	}
	h.done(false)
}

// switchProtocols makes a tunnel of a connection whose server accepted the
// upgrade.
func (h *httpServer) switchProtocols(r *http1.Response, rest []byte) {
	s := (*session)(h)
	if !s.http.upgrade || !s.http.sent {
		h.broken("the server switches protocols unasked")
		return
	}
	head := http1.AppendResponseHead(s.w.headScratch[:0], r, http1.ResponseOptions{Via: s.svc.via})
	s.w.headScratch = head
	h.writeHead(head, rest)
	s.w.dropHTTP(s)
	s.startTunnel()
}

// done ends an exchange whose response is complete. surplus says that the
// server has sent more than that, which nobody asked for.
func (h *httpServer) done(surplus bool) {
	s := (*session)(h)
	st := s.http
	(*httpClient)(s).haltUpload()
	s.log()
	if u := s.srv; st.keepServer && !surplus && !u.HangupSeen() {
		h.keepUpstream(u)
	} else {
		s.dropUpstream()
	}
	switch {
	case !st.closing:
		(*httpClient)(s).answered(true)
	case !st.keepClient && st.sent && s.buf.Len() == 0 && s.cli.SendLast() && !s.cli.MayRead():
		// The client has announced that it sends nothing more, and has not.
		s.release()
	default:
		s.closeGently()
	}
}

// keepUpstream leaves the server connection to whoever comes next, or to the
// client alone when it authenticated the connection.
func (h *httpServer) keepUpstream(u *upstream) {
	s := (*session)(h)
	if s.http.pinned {
		u.StartRead()
		return
	}
	s.srv = nil
	s.w.pool.put(s, u, s.http.keepMS)
}

const (
	reasonLongHead = "response head too large"
	reasonEarly    = "the server has sent something before it was asked"
)

var _ relay.Handler = (*httpServer)(nil)
