package worker

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
