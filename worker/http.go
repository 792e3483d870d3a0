package worker

import (
	"bytes"

	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

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

var _ relay.Handler = (*httpClient)(nil)
