package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

// portMap opens the connections of a tcppm service.
type portMap struct{}

// startPortMap connects a new client to the service's fixed target.
func (s *session) startPortMap() {
	t := s.svc.Target
	s.cli.StopRead()
	s.op, s.port = config.OpConnect, t.Port
	s.cli.SetHandler((*waitingClient)(s))
	if t.Unix != "" {
		s.openUnix()
		return
	}
	s.host, s.addr = t.Host, t.Addr
	s.open(nil, portMap{})
}

// openUnix connects to a Unix socket, which has no address for the access list
// to look at.
func (s *session) openUnix() {
	d := s.w.newDial(s)
	d.opener = portMap{}
	decision := s.decide(s.addr, true, nil)
	if decision.Code != 0 {
		s.refuse(code(decision.Code), 0)
		return
	}
	if !s.connect(&relay.Target{Unix: s.svc.Target.Unix}) {
		s.refuse(d.code, d.errno)
		return
	}
	s.armDial()
}

func (portMap) opened(s *session) {
	s.svc.cell.Add(ipc.Requests, 1)
	s.startTunnel()
}

func (portMap) refused(s *session, _ code, _ unix.Errno) { s.finish() }

// waitingClient handles a client whose target is being reached and that is
// not read meanwhile.
type waitingClient session

// OnConnect does not come for an accepted connection.
func (c *waitingClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData does not come: the client is not read.
func (c *waitingClient) OnData(*relay.Conn, []byte) {}

// OnEOF does not come: the client is not read.
func (c *waitingClient) OnEOF(*relay.Conn) {}

// OnSent is of no interest.
func (c *waitingClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (c *waitingClient) OnFlow(*relay.Flow) {}

// OnError ends the attempt of a client that is gone.
func (c *waitingClient) OnError(*relay.Conn, unix.Errno) { (*session)(c).fail(codeClientReset) }
