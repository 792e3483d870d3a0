package worker

import (
	"3proxyd/acl"
	"3proxyd/proto/http1"
)

// finalRecipient answers a request that must not be forwarded any further
// (Max-Forwards: 0, RFC 9110 section 7.6.2), OPTIONS or TRACE, and OPTIONS * to
// the proxy itself.
func (h *httpClient) finalRecipient(r *http1.Request, creds *acl.Creds) {
	s := (*session)(h)
	if d := s.decide(s.addr, !s.addr.IsValid(), creds); d.Code != acl.OK {
		h.answerRefused(code(d.Code), 0)
		return
	}
	st := s.http
	keep := st.keepClient && h.skippable() && !s.w.draining
	answer := http1.AppendOptions
	if string(r.Method) == "TRACE" {
		answer = http1.AppendTrace
	}
	head := answer(s.w.headScratch[:0], r, http1.ErrorOptions{Close: !keep, HTTP10: st.minor == 0 && keep})
	s.w.headScratch = head
	s.log()
	s.dropUpstream()
	s.cli.Write(head)
	h.answered(keep)
}
