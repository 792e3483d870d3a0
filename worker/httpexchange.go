package worker

// httpExchange is a session between a request and the end of its response.
type httpExchange session

// exchangeCheckMS is how often an exchange is looked at, in milliseconds.
const exchangeCheckMS = 5000

// checkIdle ends an exchange in which nothing has moved for too long. A client
// that has finished sending may be gone, so that its server has less time.
func (x *httpExchange) checkIdle() {
	s := (*session)(x)
	last := max(s.up.Last(), s.down.Last(), s.cli.Flushed(), s.http.active)
	if s.srv != nil {
		last = max(last, s.srv.Flushed())
	}
	limit := s.svc.exchangeMS
	if s.cli.HangupSeen() {
		limit = min(limit, s.svc.answerMS)
	}
	left := last + limit - s.w.loop.Now()
	if left > 0 && !x.bodyOverdue() {
		s.arm(min(left, exchangeCheckMS))
		return
	}
	status, reason := 504, "the server has not answered in time"
	if x.awaitsBody() {
		status, reason = 408, "the rest of the request has not come in time"
	}
	if s.http.started {
		// Whoever stopped, the answer cannot be completed any more.
		s.code = codeTimeout
		s.log()
		s.cli.Reset()
		s.release()
		return
	}
	(*httpClient)(s).answer(status, codeTimeout, reason, false)
}

// minBodyRate is how fast the body of a request has to come on the average, in
// bytes a second, after a time that is free.
const minBodyRate = 500

// bodyOverdue reports whether the client has been waited for longer than a body of
// its length so far may take: as long as an exchange may be silent, and a second
// for each minBodyRate bytes. The time in which the server does not take what has
// come is not the client's, and once there is an answer both may take theirs.
func (x *httpExchange) bodyOverdue() bool {
	st, now := x.http, x.w.loop.Now()
	since := now - st.bodySeen
	st.bodySeen = now
	if !x.awaitsBody() || st.answering {
		return false
	}
	st.bodyMS += since
	earned := int64((*session)(x).bytesOut() / minBodyRate * 1000)
	return st.bodyMS > x.svc.exchangeMS+earned
}

// awaitsBody reports whether it is the client for which the exchange waits.
func (x *httpExchange) awaitsBody() bool { return !x.http.sent && !x.srv.Blocked() }
