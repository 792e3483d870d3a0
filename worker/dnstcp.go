package worker

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/dnsmsg"
	"3proxyd/relay"
)

const (
	// maxDNSPipelined bounds the queries of a connection that are not answered
	// yet, maxDNSBacklog in bytes the replies that the client does not take; it
	// is not read meanwhile.
	maxDNSPipelined = 64
	maxDNSBacklog   = 128 << 10
	// dnsRead is the size of one read, in bytes: with what of a query has come
	// before it fits a relay.Buffer.
	dnsRead = 16 << 10
)

// dnsClient handles a client of a dnspr service over TCP: queries and replies
// with a length of two bytes before them, in any order (RFC 7766).
type dnsClient session

// dnsState is what a connection needs beside the session.
type dnsState struct {
	outstanding int
	ended       bool // the client has finished
	busy        bool // take is running
}

func (s *session) startDNS() {
	s.op = config.OpDNSResolve
	s.logged = true // queries have a line each, the connection has none
	s.w.dnsClients[s.id] = &dnsState{}
	s.phase = phaseIdle
	s.cli.SetHandler((*dnsClient)(s))
	s.cli.SetReadSize(dnsRead)
	s.cli.StartRead()
	s.arm(seconds(s.svc.Timeouts.StringShort))
}

// dropDNS forgets the state of a session.
func (w *Worker) dropDNS(s *session) {
	if s.protocol == protoDNS {
		delete(w.dnsClients, s.id)
	}
}

func (c *dnsClient) state() *dnsState { return c.w.dnsClients[c.id] }

// OnConnect does not come for an accepted connection.
func (c *dnsClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes the queries in what came.
func (c *dnsClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(c)
	if !s.buf.Append(s.w.loop, p) {
		s.finish()
		return
	}
	c.take()
}

// take carries out the queries that are complete, as far as the client may have
// more outstanding. It may end the session.
func (c *dnsClient) take() {
	s := (*session)(c)
	st := c.state()
	st.busy = true
	for !c.full() {
		in := s.buf.Bytes()
		if len(in) < 2 {
			break
		}
		size := int(binary.BigEndian.Uint16(in))
		if size > dnsmsg.MaxQuery {
			s.svc.cell.Add(ipc.ProtocolErrors, 1)
			s.finish()
			return
		}
		if len(in) < 2+size {
			break
		}
		st.outstanding++
		d := &dnsQuery{svc: s.svc, client: s.client, answer: c, ref: s.id}
		if !s.w.takeDNS(d, in[2:2+size]) {
			s.finish()
			return
		}
		s.buf.Consume(s.w.loop, 2+size)
		s.arm(seconds(s.svc.Timeouts.StringShort))
	}
	st.busy = false
	c.goOn()
}

// full reports whether the client has to wait: for answers, or to read them.
func (c *dnsClient) full() bool {
	return c.state().outstanding >= maxDNSPipelined || c.cli.Backlog() > maxDNSBacklog
}

// goOn reads on, waits, or ends a client that has finished.
func (c *dnsClient) goOn() {
	s := (*session)(c)
	st := c.state()
	idle := st.outstanding == 0 && s.buf.Len() == 0
	switch {
	case st.outstanding == 0 && (st.ended || idle && s.w.draining):
		s.closeGently()
		return
	case c.full() || st.ended:
		s.cli.StopRead()
	default:
		s.cli.StartRead()
	}
	s.phase = phaseHandshake
	if idle {
		s.phase = phaseIdle
	}
}

// tcp reports that replies may have any length.
func (c *dnsClient) tcp() bool { return true }

// reply sends the reply to a query, unless the connection is gone.
func (c *dnsClient) reply(d *dnsQuery, content *dnsmsg.Content, age time.Duration) int {
	s := (*session)(c)
	st := s.w.dnsClients[d.ref]
	if st == nil || s.id != d.ref {
		return 0
	}
	wire := d.Append(s.w.scratch[:2], content, age, dnsmsg.MaxTCP)
	binary.BigEndian.PutUint16(wire, uint16(len(wire)-2))
	s.cli.Write(wire)
	c.done(st)
	return len(wire) - 2
}

// dropped ends the wait for a reply that does not come.
func (c *dnsClient) dropped(d *dnsQuery) {
	if st := c.w.dnsClients[d.ref]; st != nil && c.id == d.ref {
		c.done(st)
	}
}

// done goes on with a client that has its answer; within take that does.
func (c *dnsClient) done(st *dnsState) {
	st.outstanding--
	if st.busy {
		return
	}
	s := (*session)(c)
	s.arm(seconds(s.svc.Timeouts.StringShort))
	if s.buf.Len() > 0 {
		c.take()
		return
	}
	c.goOn()
}

// timedOut ends a client that is silent, takes no reply or has sent half a query.
// One that waits for an answer is not silent.
func (c *dnsClient) timedOut() {
	s := (*session)(c)
	if st := c.state(); st.outstanding > 0 && s.cli.Pending() == 0 {
		s.arm(seconds(s.svc.Timeouts.StringShort))
		return
	}
	if s.phase == phaseIdle && s.cli.Pending() == 0 {
		s.closeGently()
		return
	}
	s.svc.cell.Add(ipc.TimedOut, 1)
	s.finish()
}

// OnEOF ends a client once it has its answers.
func (c *dnsClient) OnEOF(*relay.Conn) {
	c.state().ended = true
	c.goOn()
}

// OnSent reads on from a client that has taken its replies.
func (c *dnsClient) OnSent(*relay.Conn) { c.take() }

// OnFlow does not come: there is no flow.
func (c *dnsClient) OnFlow(*relay.Flow) {}

// OnError ends the session.
func (c *dnsClient) OnError(*relay.Conn, unix.Errno) {
	s := (*session)(c)
	s.svc.cell.Add(ipc.ResetByClient, 1)
	s.finish()
}
