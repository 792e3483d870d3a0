package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

// maxDiscard bounds in bytes what is read and thrown away from a client that
// is being closed: enough for one that looks for an answer only now and then
// while it uploads at full speed.
const maxDiscard = 64 << 20

// closing handles a client whose last answer has been written: the FIN goes
// out after it, and what the client still sends is read and dropped, because
// closing a socket with unread data resets it and could take the answer with
// it (RFC 9112 section 9.6).
type closing session

// closeGently ends the session after the output that waits; then the client
// has the linger time to finish.
func (s *session) closeGently() {
	s.log()
	s.w.dropDial(s)
	s.dropUpstream()
	s.w.dropHTTP(s)
	s.w.dropSocks(s)
	s.w.dropFront(s)
	s.buf.Release(s.w.loop)
	s.phase = phaseClosing
	s.in = 0
	s.cli.SetHandler((*closing)(s))
	s.cli.Shutdown()
	s.cli.StartRead()
	if s.cli.Pending() > 0 {
		s.arm(s.svc.exchangeMS)
		return
	}
	s.arm(s.svc.lingerMS)
}

// timedOut ends a client that does not finish. One that still reads what it
// was sent gets as long as during an exchange; the rest of an answer that is
// given up ends in a reset, so that it does not look complete.
func (c *closing) timedOut() {
	s := (*session)(c)
	if !s.stillSending() {
		s.finish()
		return
	}
	if left := max(s.cli.Flushed(), s.drained) + s.svc.exchangeMS - s.w.loop.Now(); left > 0 {
		s.arm(min(left, s.svc.lingerMS))
		return
	}
	s.cli.Reset()
	s.release()
}

// OnConnect does not come for an accepted connection.
func (c *closing) OnConnect(*relay.Conn, unix.Errno) {}

// OnData drops what comes.
func (c *closing) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(c)
	if s.in += uint64(len(p)); s.in > maxDiscard {
		s.finish()
	}
}

// OnEOF ends the session: the client has taken the answer, or does not want
// it. Output that still waits is given the rest of the time.
func (c *closing) OnEOF(*relay.Conn) {
	if s := (*session)(c); s.cli.Pending() == 0 {
		s.finish()
	}
}

// OnSent ends a client that had already finished; another has the linger time
// from now on.
func (c *closing) OnSent(*relay.Conn) {
	s := (*session)(c)
	if s.cli.HangupSeen() {
		s.finish()
		return
	}
	s.arm(s.svc.lingerMS)
}

// OnFlow does not come: there is no flow.
func (c *closing) OnFlow(*relay.Flow) {}

// OnError ends the session.
func (c *closing) OnError(*relay.Conn, unix.Errno) { (*session)(c).finish() }
