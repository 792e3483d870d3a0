package worker

import (
	"math"

	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

// tunnel is a session whose two connections are joined: bytes pass both ways
// until both sides have finished. It handles both connections.
type tunnel session

// startTunnel joins the client and the server connection. What the client has
// already sent goes first.
func (s *session) startTunnel() {
	s.sendEarly()
	s.join()
}

// sendEarly sends the server what comes before the bytes that flow: the header
// of the PROXY protocol, if there is to be one, and what the client has sent
// already.
func (s *session) sendEarly() {
	if s.svc.SendHeader != 0 {
		s.sendHeader()
		return
	}
	if n := s.buf.Len(); n > 0 {
		s.srv.Write(s.buf.Bytes())
		s.buf.Release(s.w.loop)
		s.countOut(n)
	}
}

// join starts the two flows.
func (s *session) join() {
	t := (*tunnel)(s)
	l := s.w.loop
	s.phase = phaseRelay
	s.cli.SetHandler(t)
	s.srv.SetHandler(t)
	s.cli.SetReadSize(s.svc.readSize)
	l.StartFlow(&s.up, &s.cli, &s.srv.Conn, relay.Unlimited, &s.svc.upSplice, &s.svc.up)
	l.StartFlow(&s.down, &s.srv.Conn, &s.cli, relay.Unlimited, &s.svc.downSplice, &s.svc.down)
	s.arm(s.svc.idleMS)
	s.settleFront()
	s.w.followUp()
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
		s.arm(s.halfClosedMS())
		return
	}
	t.endWhenSent()
}

// halfClosedMS is how long a tunnel may be silent after one side has finished:
// a server may take longer to answer than a client to go away.
func (s *session) halfClosedMS() int64 {
	if s.down.Active() {
		return s.svc.answerMS
	}
	return s.svc.lingerMS
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

// OnError ends the tunnel. What the broken side had sent before still reaches
// the other, which then sees a reset as well: an end in order would make what
// it has got look complete.
func (t *tunnel) OnError(c *relay.Conn, errno unix.Errno) {
	s := (*session)(t)
	s.code = s.brokenCode(c)
	to, flow, in := &s.srv.Conn, &s.up, s.svc.up
	if c != &s.cli {
		to, flow, in = &s.cli, &s.down, s.svc.down
	}
	flow.Salvage()
	s.in, s.out = s.bytesIn(), s.bytesOut()
	s.up.Stop()
	s.down.Stop()
	s.up, s.down = relay.Flow{}, relay.Flow{}
	for total := 0; total < maxRest; {
		p := c.Rest()
		if len(p) == 0 {
			break
		}
		to.Write(p)
		total += len(p)
		in.Bytes.Add(uint64(len(p)))
		if c == &s.cli {
			s.out += uint64(len(p))
		} else {
			s.in += uint64(len(p))
		}
	}
	s.log()
	c.Close()
	s.resetWhenSent()
}

// maxRest bounds in bytes what is taken from a connection that has broken: as
// much as a receive buffer may hold.
const maxRest = 16 << 20

// checkIdle ends a tunnel in which nothing has moved for too long. After one
// side has finished, the other may be silent for a short time only; a peer
// that is still taking what it was sent is not silent.
func (t *tunnel) checkIdle() {
	s := (*session)(t)
	limit := s.svc.idleMS
	last := max(s.up.Last(), s.down.Last(), s.cli.Flushed(), s.start, s.lastMoved)
	if s.srv != nil {
		last = max(last, s.srv.Flushed())
	}
	if s.halfClosed {
		limit = min(limit, s.halfClosedMS())
		if s.stillSending() {
			limit = max(limit, min(s.svc.exchangeMS, s.svc.idleMS))
		}
		last = max(last, s.drained)
	}
	if left := last + limit - s.w.loop.Now(); left > 0 {
		s.arm(left)
		return
	}
	s.fail(codeTimeout)
}

// stillSending reports whether a peer has yet to take output, be it here or in
// the kernel, and notes whether it has taken some since the last time.
func (s *session) stillSending() bool {
	unsent := s.cli.Unsent()
	if s.srv != nil {
		unsent += s.srv.Unsent()
	}
	if unsent < int(s.unsent) || s.drained == 0 {
		s.drained = s.w.loop.Now()
	}
	s.unsent = int32(min(unsent, math.MaxInt32))
	return unsent > 0
}
