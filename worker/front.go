package worker

import (
	"net/netip"

	"3proxyd/proto/tlshello"
	"3proxyd/relay"
)

// frontState is what few sessions need: that of a handshake in front of the
// request, and what a PROXY protocol header has said.
type frontState struct {
	scan tlshello.Scan
	// answer is the beginning of a server's answer that is being looked at.
	answer relay.Buffer
	// local is where the client connected to according to a header; it
	// stays for the log.
	local netip.AddrPort
	free  *frontState
}

// needFront returns the session's state, new when it has none.
func (s *session) needFront() *frontState {
	if s.front != nil {
		return s.front
	}
	f := s.w.freeFronts
	if f == nil {
		f = &frontState{}
	} else {
		s.w.freeFronts = f.free
		f.free = nil
	}
	s.front = f
	return f
}

func (w *Worker) dropFront(s *session) {
	f := s.front
	if f == nil {
		return
	}
	s.front = nil
	f.answer.Release(w.loop)
	*f = frontState{free: w.freeFronts}
	w.freeFronts = f
}

// settleFront drops the state when a tunnel begins, unless the log needs it.
func (s *session) settleFront() {
	if s.front != nil && !s.front.local.IsValid() {
		s.w.dropFront(s)
	}
}

// localAddr is where the client connected to; that of a Unix socket is the zero
// AddrPort.
func (s *session) localAddr() netip.AddrPort {
	if s.front != nil && s.front.local.IsValid() {
		return s.front.local
	}
	return s.cli.LocalAddr()
}
