package worker

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/internal/sys"
	"3proxyd/ipc"
	"3proxyd/relay"
)

// frozen is a tunnel whose connections have been taken out of the loop. Nobody
// reads from its sockets or writes to them.
type frozen struct {
	cli, srv relay.Detached
	// up and down are the states of the two directions; a direction that has
	// ended is not in force.
	up, down         relay.FlowState
	upOpen, downOpen bool
	// gen is the generation in force when the session was frozen.
	gen uint64
}

// movable reports whether a session can move: it relays, and no part of a
// handshake is left.
func (s *session) movable() bool {
	return s.phase == phaseRelay && !s.logged && s.srv != nil &&
		s.http == nil && s.socks == nil && s.dial == nil && s.buf.Len() == 0 &&
		s.cli.Detachable() && s.srv.Detachable()
}

// freeze takes a movable session out of the loop and the list of live ones;
// done is called when it stands still.
func (s *session) freeze(done func(*frozen)) {
	w := s.w
	f := &frozen{gen: w.gen, upOpen: s.up.Active(), downOpen: s.down.Active()}
	s.in, s.out = s.bytesIn(), s.bytesOut()
	f.up = haltFlow(&s.up)
	f.down = haltFlow(&s.down)
	w.loop.StopTimer(&s.timer)
	w.sessions.remove(s)
	w.moves.leaving[s] = true
	s.phase = phaseMoving
	left := 2
	detached := func(to *relay.Detached, d *relay.Detached) {
		*to = *d
		if left--; left == 0 {
			s.passInput(f)
			done(f)
		}
	}
	s.cli.Detach(func(d *relay.Detached) { detached(&f.cli, d) })
	s.srv.Detach(func(d *relay.Detached) { detached(&f.srv, d) })
}

// haltFlow stops a flow, which may have ended already.
func haltFlow(f *relay.Flow) relay.FlowState {
	state := relay.FlowState{Last: f.Last()}
	if f.Active() {
		state = f.Halt()
	}
	*f = relay.Flow{}
	return state
}

// passInput hands on what the loop had read from one side already.
func (s *session) passInput(f *frozen) {
	if n := uint64(len(f.cli.Input)); n > 0 {
		f.srv.Output = append(f.srv.Output, f.cli.Input...)
		s.out += n
		s.svc.up.Bytes.Add(n)
	}
	if n := uint64(len(f.srv.Input)); n > 0 {
		f.cli.Output = append(f.cli.Output, f.srv.Input...)
		s.in += n
		s.svc.down.Bytes.Add(n)
	}
	f.cli.Input, f.srv.Input = nil, nil
}

// thaw brings a session, which is in the list of live ones, back to relaying.
func (s *session) thaw(f *frozen) {
	l := s.w.loop
	t := (*tunnel)(s)
	s.phase = phaseRelay
	if errno := l.Attach(&s.cli, &f.cli, t); errno != 0 {
		f.close()
		s.lost(errno)
		return
	}
	if errno := l.Attach(&s.srv.Conn, &f.srv, t); errno != 0 {
		sys.Close(f.srv.FD)
		s.lost(errno)
		return
	}
	if f.upOpen {
		l.StartFlow(&s.up, &s.cli, &s.srv.Conn, relay.Unlimited, &s.svc.upSplice, &s.svc.up)
		s.up.Resume(f.up)
	} else {
		s.lastMoved = max(s.lastMoved, f.up.Last)
	}
	if f.downOpen {
		l.StartFlow(&s.down, &s.srv.Conn, &s.cli, relay.Unlimited, &s.svc.downSplice, &s.svc.down)
		s.down.Resume(f.down)
	} else {
		s.lastMoved = max(s.lastMoved, f.down.Last)
	}
	if !f.upOpen && !f.downOpen {
		t.endWhenSent()
		return
	}
	t.checkIdle()
}

// lost ends a session that the loop cannot take.
func (s *session) lost(errno unix.Errno) {
	slog.Error("a session cannot go on after a move", "service", s.svc.ID, "error", errno)
	s.fail(codeNoResources)
}

// canLeave reports whether the session can be described to another worker. One
// whose peer turned out to be gone ends here.
func (f *frozen) canLeave() bool {
	return !f.cli.Broken && !f.srv.Broken &&
		len(f.cli.Output) <= ipc.MaxMoveOutput && len(f.srv.Output) <= ipc.MaxMoveOutput
}

// close closes the sockets without shutting them down: another process may
// have them.
func (f *frozen) close() {
	sys.Close(f.cli.FD)
	sys.Close(f.srv.FD)
}

// takeBack lets a session that has not moved go on.
func (s *session) takeBack(f *frozen) {
	w := s.w
	delete(w.moves.leaving, s)
	w.sessions.restore(s)
	if w.ended {
		f.close()
		s.finish()
		return
	}
	s.thaw(f)
	s.obeyLater(f.gen)
}

// obeyLater makes up for a reload that came while the session was frozen: it
// is put under the rules that the live sessions were put under.
func (s *session) obeyLater(gen uint64) {
	w := s.w
	if s.svc == nil || s.phase != phaseRelay || gen == w.gen {
		return
	}
	forced := w.forcedGen > gen
	switch now := w.services[s.svc.ID]; {
	case now != nil && (forced || now.Force):
		s.obey(now)
	case now == nil && (forced || s.svc.Force):
		s.endByRules(code(acl.NoRule))
	}
}

// hasOldSecret reports whether the session's user was let in with a password
// that is not the present one.
func (s *session) hasOldSecret() bool {
	now := s.w.services[s.svc.ID]
	if now == nil {
		return s.svc.policy.SecretDigest(s.user) != nil
	}
	return !now.policy.SameSecret(s.svc.policy, s.user)
}

// oldSecret is the digest of that password: the user may come back with it.
func (s *session) oldSecret() []byte {
	if !s.hasOldSecret() {
		return nil
	}
	return s.svc.policy.SecretDigest(s.user)
}

// movedService is what the session has in common with others that move.
func (s *session) movedService() serviceKey {
	v := s.svc
	if v.general != nil {
		v = v.general
	}
	return serviceKey{v, s.hasOldSecret()}
}

// handedOver forgets a session that is another worker's now: it is neither
// logged nor counted here any more, and its place is given up by the other.
func (s *session) handedOver(f *frozen) {
	f.close()
	delete(s.w.moves.leaving, s)
	s.recycle()
}
