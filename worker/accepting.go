package worker

import (
	"log/slog"
	"slices"

	"3proxyd/ipc"
)

// accept carries out MsgAccept.
func (w *Worker) accept(m *ipc.Message) {
	var body ipc.Accept
	if err := m.Decode(&body); err != nil {
		slog.Error("message from the supervisor", "error", err)
		return
	}
	id := m.ID
	w.loop.Post(func() {
		w.setAccepting(body)
		go w.reply(ipc.MsgAccepting, id, body)
	})
}

// setAccepting pauses or resumes the listeners.
func (w *Worker) setAccepting(a ipc.Accept) {
	w.accepting = a
	for _, s := range w.listeners {
		if s.held() {
			s.pause()
			continue
		}
		s.resumeHeld()
	}
}

// held says that connections, or datagrams, are left in the queue for now,
// because another daemon takes them.
func (s *listener) held() bool {
	a := &s.w.accepting
	paused := a.Paused
	if s.packets != nil {
		paused = a.HoldDatagrams
	}
	return paused && !slices.Contains(a.Keep, s.id)
}

// resumeHeld accepts again after a hold; one that waits for a place or for
// descriptors finds that out anew.
func (s *listener) resumeHeld() {
	if s.packets != nil {
		s.packets.Resume()
		return
	}
	s.limited, s.starved = false, false
	if errno := s.Resume(); errno != 0 {
		s.PauseFor(fdRetryMS)
	}
}
