package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/proto/http1"
)

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
	page := http1.AppendError(s.w.scratch[:0], status, http1.AnswerOptions{
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
