package worker

import (
	"log/slog"
	"math/rand/v2"
	"slices"

	"3proxyd/ipc"
	"3proxyd/relay"
)

// startDrain carries out MsgDrain.
func (w *Worker) startDrain(m *ipc.Message) {
	var body ipc.Drain
	if err := m.Decode(&body); err != nil {
		slog.Error("message from the supervisor", "error", err)
		return
	}
	id := m.ID
	w.loop.Post(func() {
		how := toOthers
		if body.TimeoutMS > 0 {
			w.dropListeners(func(s *listener) bool { return slices.Contains(body.Unowned, s.id) }, shutDown)
			if body.Final {
				how = shutDown
			}
		}
		w.drain(body.TimeoutMS, how)
		go w.reply(ipc.MsgDraining, id, nil)
	})
}

// drain stops accepting; the loop stops when the last session has ended or the
// time is over. It may be called again to shorten the time. how says what
// becomes of the listening sockets.
func (w *Worker) drain(timeoutMS int64, how parting) {
	w.dropListeners(func(*listener) bool { return true }, how)
	w.draining = true
	w.pool.evict(poolMax)
	w.endIdle(timeoutMS)
	if timeoutMS <= 0 {
		w.endAll()
	}
	w.loop.SetTimer(&w.deadline, timeoutMS, deadlineHandler{w})
	w.stopWhenIdle()
}

// maxIdleJitterMS bounds the time over which idle HTTP connections are closed,
// in milliseconds: clients must not all come back at once.
const maxIdleJitterMS = 3000

// firstRequestMS is how long a draining worker waits for the first
// request of a connection, in milliseconds; less if the drain is short.
const firstRequestMS = 3000

// endIdle has the HTTP connections that wait for a request closed, each at a
// moment of its own within a fraction of the drain's time. One whose request
// comes before is answered, and told that the connection ends: no connection is
// closed in the first third, so that those of busy clients end that way. A first
// request may be on its way: it has firstRequestMS besides.
func (w *Worker) endIdle(timeoutMS int64) {
	jitter := min(maxIdleJitterMS, timeoutMS/4)
	for s := w.sessions.head; s != nil; s = s.next {
		if s.phase == phaseDatagrams {
			s.arm(s.udp.idleMS())
			continue
		}
		waits := s.phase == phaseIdle || s.phase == phaseHandshake && s.http != nil
		if !waits || s.buf.Len() > 0 {
			continue
		}
		wait := jitter/3 + rand.Int64N(jitter-jitter/3+1)
		if s.phase == phaseHandshake && s.http.served == 0 {
			wait += min(firstRequestMS, timeoutMS/2)
		}
		s.arm(wait)
	}
}

// endAll ends all sessions, and those on their way out when they come back.
func (w *Worker) endAll() {
	w.ended = true
	for s := w.sessions.head; s != nil; {
		next := s.next
		s.endNow()
		s = next
	}
}

// endNow ends a session whose time is over.
func (s *session) endNow() {
	if s.phase == phaseRelay || s.phase == phaseExchange {
		s.cut()
		return
	}
	s.finish()
}

// sessionEnded stops a draining worker after its last session.
func (w *Worker) sessionEnded() {
	if w.draining {
		w.stopWhenIdle()
	}
}

func (w *Worker) stop() {
	if w.moves.isOver() {
		return
	}
	close(w.moves.over)
	w.publish()
	w.loop.Stop()
}

// deadlineHandler ends the sessions that are left when a drain's time is over.
type deadlineHandler struct{ w *Worker }

// OnTimer ends all sessions.
func (d deadlineHandler) OnTimer(*relay.Timer) {
	slog.Warn("drain timeout: sessions are ended", "sessions", d.w.sessions.count)
	d.w.endAll()
	d.w.stopWhenIdle()
}
