package worker

import "3proxyd/ipc"

// countHead counts a request's head, and what went with it, once: it may be
// sent again.
func (s *session) countHead(n int) {
	if s.http.counted {
		s.out += uint64(n)
		return
	}
	s.http.counted = true
	s.countOut(n)
}

// countOut counts bytes from the client that did not pass through a flow,
// countIn bytes from the server.
func (s *session) countOut(n int) {
	s.out += uint64(n)
	s.svc.cell.Add(ipc.BytesOut, uint64(n))
}

func (s *session) countIn(n int) {
	s.in += uint64(n)
	s.svc.cell.Add(ipc.BytesIn, uint64(n))
}
