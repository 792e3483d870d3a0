package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

// broken ends an exchange whose server answered with what is not a response.
func (h *httpServer) broken(reason string) {
	(*httpClient)(h).answer(502, protocolCode(502), reason, false)
}

// OnEOF comes when the server closes before the response is complete.
func (h *httpServer) OnEOF(*relay.Conn) { h.lost(protocolCode(502)) }

// OnError comes when the server resets the connection. It may have answered
// before: to refuse an upload, for example.
func (h *httpServer) OnError(c *relay.Conn, _ unix.Errno) {
	s := (*session)(h)
	if s.phase == phaseExchange && h.takeRest(c) {
		return
	}
	h.lost(codeServerReset)
}

// takeRest passes on what the server sent before its connection broke. It
// reports whether that completed the answer, or ended the exchange otherwise.
func (h *httpServer) takeRest(c *relay.Conn) bool {
	s := (*session)(h)
	id, u := s.id, s.srv
	left := int64(0)
	for total := 0; total < maxRest; {
		p := u.Rest()
		if len(p) == 0 {
			break
		}
		total += len(p)
		for len(p) > 0 {
			if s.down.Active() {
				left = h.haltBody()
			}
			if left == 0 {
				h.OnData(c, p)
				p = nil
			} else {
				p, left = h.passBody(p, left)
			}
			if s.id != id || s.srv != u {
				return true
			}
		}
	}
	if s.down.Active() {
		h.haltBody()
	}
	return false
}

// haltBody stops the flow of the body, or of a chunk of it, and returns what is
// left to pass on.
func (h *httpServer) haltBody() int64 {
	s := (*session)(h)
	s.down.Salvage()
	left := s.down.Left()
	s.in += s.down.Moved()
	s.down.Stop()
	s.down = relay.Flow{}
	return left
}

// passBody passes on what belongs to a body with left bytes to come, and
// returns the rest of p and of left.
func (h *httpServer) passBody(p []byte, left int64) ([]byte, int64) {
	s := (*session)(h)
	n := len(p)
	if left != relay.Unlimited {
		n = int(min(int64(n), left))
		left -= int64(n)
	}
	s.countIn(n)
	s.cli.Write(p[:n])
	p = p[n:]
	if left == 0 && !s.http.chunked {
		h.done(len(p) > 0)
	}
	return p, left
}

// unpin closes a connection that was kept for this client alone, when the
// server ends it or sends what nobody asked for.
func (h *httpServer) unpin() {
	s := (*session)(h)
	s.dropUpstream()
	s.http.pinned = false
}

// lost handles the loss of the server connection.
func (h *httpServer) lost(c code) {
	s := (*session)(h)
	st := s.http
	switch {
	case s.phase != phaseExchange:
		h.unpin()
	case st.answering:
		s.code = c
		s.abort()
	case st.reused && st.retryable && st.resp.Len() == 0 && st.out.Len() > 0:
		(*httpClient)(s).retry()
	default:
		(*httpClient)(s).answer(502, c, "the server has closed the connection without an answer", st.sent)
	}
}
