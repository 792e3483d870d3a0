package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/relay"
)

// tunnel is a session whose two connections are joined: bytes pass both ways
// until both sides have finished. It handles both connections.
type tunnel session

// startTunnel joins the client and the server connection. What the client has
// already sent goes first.
func (s *session) startTunnel() {
	t := (*tunnel)(s)
	l := s.w.loop
	s.phase = phaseRelay
	s.cli.SetHandler(t)
	s.srv.SetHandler(t)
	s.cli.SetReadSize(s.svc.readSize)
	if n := s.buf.Len(); n > 0 {
		s.srv.Write(s.buf.Bytes())
		s.buf.Release(l)
		s.out += uint64(n)
		s.svc.cell.Add(ipc.BytesOut, uint64(n))
	}
	l.StartFlow(&s.up, &s.cli, &s.srv.Conn, relay.Unlimited, &s.svc.upSplice, &s.svc.up)
	l.StartFlow(&s.down, &s.srv.Conn, &s.cli, relay.Unlimited, &s.svc.downSplice, &s.svc.down)
	s.arm(s.svc.idleMS)
}

// OnConnect does not come in this phase.
func (t *tunnel) OnConnect(*relay.Conn, unix.Errno) {}

// OnData does not come in this phase: the flows read.
func (t *tunnel) OnData(*relay.Conn, []byte) {}

// OnEOF does not come in this phase: the flows see the end.
func (t *tunnel) OnEOF(*relay.Conn) {}

// OnFlow passes the end of one direction on.
func (t *tunnel) OnFlow(f *relay.Flow) {
	s := (*session)(t)
	if s.svc.CloseBoth {
		s.up.Stop()
		s.down.Stop()
	}
	if s.up.Active() || s.down.Active() {
		s.halfClosed = true
		s.shutdownTarget(f)
		s.arm(s.svc.lingerMS)
		return
	}
	t.endWhenSent()
}

// shutdownTarget sends the FIN to the side that f wrote to.
func (s *session) shutdownTarget(f *relay.Flow) {
	if f == &s.up {
		s.srv.Shutdown()
	} else {
		s.cli.Shutdown()
	}
}

// endWhenSent closes a tunnel that has nothing more to read, once all output
// has left.
func (t *tunnel) endWhenSent() {
	s := (*session)(t)
	if s.cli.Pending() == 0 && (s.srv == nil || s.srv.Pending() == 0) {
		s.finish()
		return
	}
	s.halfClosed = true
	s.arm(s.svc.lingerMS)
}

// OnSent ends a tunnel that waited for its output.
func (t *tunnel) OnSent(*relay.Conn) {
	s := (*session)(t)
	if !s.up.Active() && !s.down.Active() {
		t.endWhenSent()
	}
}

// OnError ends the tunnel; what the broken side had sent before still reaches
// the other.
func (t *tunnel) OnError(c *relay.Conn, errno unix.Errno) {
	s := (*session)(t)
	s.code = s.brokenCode(c, errno)
	if c == &s.cli || !s.cli.Blocked() {
		s.finish()
		return
	}
	s.up.Stop()
	if s.cli.Pending() == 0 {
		// The rest lies in the pipe of the flow and comes out with it.
		s.down.Stop()
		s.finish()
		return
	}
	s.down.Stop()
	s.dropUpstream()
	s.halfClosed = true
	s.arm(s.svc.lingerMS)
}

// checkIdle ends a tunnel in which nothing has moved for too long. After one
// side has finished, the other may be silent for the linger time only; a peer
// that is still reading what it was sent is not silent.
func (t *tunnel) checkIdle() {
	s := (*session)(t)
	limit := s.svc.idleMS
	if s.halfClosed {
		limit = min(limit, s.svc.lingerMS)
		if s.cli.Blocked() || s.srv != nil && s.srv.Blocked() {
			limit = max(limit, min(s.svc.exchangeMS, s.svc.idleMS))
		}
	}
	last := max(s.up.Last(), s.down.Last(), s.cli.Flushed(), s.start)
	if s.srv != nil {
		last = max(last, s.srv.Flushed())
	}
	if left := last + limit - s.w.loop.Now(); left > 0 {
		s.arm(left)
		return
	}
	s.fail(codeTimeout)
}
