package worker

import (
	"net/netip"

	"3proxyd/proto/http1"
)

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
