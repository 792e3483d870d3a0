package worker

import "3proxyd/relay"

// maxSkippedBody bounds in bytes the body of a refused request that is read and
// dropped so that its client can go on with the connection; a longer one ends
// it.
const maxSkippedBody = 256 << 10

// skippable reports whether what is left of the request can be skipped. A
// client that waits for 100 (Continue) need not send its body after a refusal
// (RFC 9110 section 10.1.1), so that what it sends next could be either.
func (h *httpClient) skippable() bool {
	s := (*session)(h)
	st := s.http
	switch {
	case st.body == bodyNone || st.sent:
		return true
	case s.phase == phaseExchange || st.expect:
		return false
	}
	return st.body == bodyChunked || st.bodyLeft <= maxSkippedBody
}

// restShort reports whether what is left of the request's body may be skipped
// after an early answer of the server. A chunked one may turn out to be too long.
func (h *httpClient) restShort() bool {
	st := h.http
	left := st.bodyLeft
	switch {
	case st.body == bodyChunked:
		left = st.chunks.Left()
	case h.up.Active():
		left = h.up.Left()
	}
	return !st.expect && left <= maxSkippedBody
}

// haltUpload stops the request's body on its way to a server that does not want
// the rest of it.
func (h *httpClient) haltUpload() {
	s := (*session)(h)
	if !s.up.Active() {
		return
	}
	s.http.bodyLeft = s.up.Left()
	s.out += s.up.Moved()
	s.up.Stop()
	s.up = relay.Flow{}
}

// skipBody reads and drops the body of a request that has been answered.
func (h *httpClient) skipBody() {
	s := (*session)(h)
	s.phase = phaseSkip
	if s.http.body == bodyChunked {
		s.http.bodyLeft = maxSkippedBody
	}
	s.arm(s.svc.headMS)
	n, done, ok := h.skip(s.buf.Bytes())
	s.buf.Consume(s.w.loop, n)
	h.skipped(done, ok)
}

// skipData takes bytes of a body that is dropped.
func (h *httpClient) skipData(p []byte) {
	s := (*session)(h)
	n, done, ok := h.skip(p)
	if n < len(p) && ok {
		s.buf.Append(s.w.loop, p[n:])
	}
	h.skipped(done, ok)
}

// skip counts n bytes of p as body. It is not ok when the body is malformed or
// too long.
func (h *httpClient) skip(p []byte) (n int, done, ok bool) {
	st := h.http
	if st.body == bodyLength {
		n = int(min(int64(len(p)), st.bodyLeft))
		st.bodyLeft -= int64(n)
		return n, st.bodyLeft == 0, true
	}
	for n < len(p) && !done {
		var taken int
		var err error
		taken, _, done, err = st.chunks.Next(p[n:])
		if err != nil {
			return n, false, false
		}
		n += taken
	}
	st.bodyLeft -= int64(n)
	return n, done, st.bodyLeft >= 0
}

func (h *httpClient) skipped(done, ok bool) {
	s := (*session)(h)
	switch {
	case !ok, done && s.w.draining:
		s.closeGently()
	case done:
		s.cli.StopRead()
		h.nextRequest()
	default:
		s.cli.StartRead()
	}
}
