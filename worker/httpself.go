package worker

import (
	"3proxyd/acl"
	"3proxyd/proto/http1"
)

// finalRecipient answers a request that must not be forwarded any further
// (Max-Forwards: 0, RFC 9110 section 7.6.2), OPTIONS or TRACE, and OPTIONS * to
// an address of the proxy itself.
func (h *httpClient) finalRecipient(r *http1.Request, creds *acl.Creds) {
	s := (*session)(h)
	if d := s.decide(s.addr, !s.addr.IsValid(), creds); d.Code != acl.OK {
		h.answerRefused(code(d.Code), 0)
		return
	}
	if string(r.Method) != "TRACE" {
		h.answerOptions()
		return
	}
	keep := h.keepsAfterSelf()
	h.answerSelf(http1.AppendTrace(s.w.headScratch[:0], r, h.selfOptions(keep)), keep)
}

// answerOptions answers OPTIONS for the proxy.
func (h *httpClient) answerOptions() {
	keep := h.keepsAfterSelf()
	h.answerSelf(http1.AppendOptions(h.w.headScratch[:0], h.selfOptions(keep)), keep)
}

// keepsAfterSelf reports whether the connection goes on after an answer for the
// proxy.
func (h *httpClient) keepsAfterSelf() bool {
	return h.http.keepClient && h.skippable() && !h.w.draining
}

func (h *httpClient) selfOptions(keep bool) http1.AnswerOptions {
	return http1.AnswerOptions{Close: !keep, HTTP10: h.http.minor == 0 && keep}
}

// answerSelf sends the answer for the proxy.
func (h *httpClient) answerSelf(answer []byte, keep bool) {
	s := (*session)(h)
	s.w.headScratch = answer
	s.log()
	s.dropUpstream()
	s.cli.Write(answer)
	h.answered(keep)
}
