package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/relay"
)

// aborting handles the side of a tunnel that is left when the other has broken:
// it gets what is on the way to it, and then a reset.
type aborting session

// abortPollMS is how often the kernel is asked whether the peer has got all, in
// milliseconds.
const abortPollMS = 100

// resetWhenSent resets the connections that are open when their peers have got
// everything.
func (s *session) resetWhenSent() {
	a := (*aborting)(s)
	s.phase = phaseAborting
	s.drained = s.w.loop.Now()
	s.unsent = 0
	if s.cli.IsOpen() {
		s.cli.SetHandler(a)
		s.cli.StopRead()
	}
	if s.srv != nil && s.srv.IsOpen() {
		s.srv.SetHandler(a)
		s.srv.StopRead()
	}
	a.check()
}

// check ends the session when nothing is on the way any more, or nothing has
// been taken for as long as an exchange may be silent.
func (a *aborting) check() {
	s := (*session)(a)
	if s.stillSending() && s.w.loop.Now()-s.drained < s.svc.exchangeMS {
		s.arm(abortPollMS)
		return
	}
	a.reset()
}

func (a *aborting) reset() {
	s := (*session)(a)
	s.cli.Reset()
	if s.srv != nil {
		s.srv.Reset()
	}
	s.release()
}

// OnConnect does not come: the connection is established.
func (a *aborting) OnConnect(*relay.Conn, unix.Errno) {}

// OnData does not come: nothing is read.
func (a *aborting) OnData(*relay.Conn, []byte) {}

// OnEOF does not come: nothing is read.
func (a *aborting) OnEOF(*relay.Conn) {}

// OnSent is of no interest: what the kernel holds counts as well.
func (a *aborting) OnSent(*relay.Conn) {}

// OnFlow does not come: there is no flow.
func (a *aborting) OnFlow(*relay.Flow) {}

// OnError ends a side that is gone as well.
func (a *aborting) OnError(*relay.Conn, unix.Errno) { a.reset() }
