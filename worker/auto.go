package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/proto/http1"
	"3proxyd/proto/socks"
	"3proxyd/proto/tlshello"
	"3proxyd/relay"
)

// autoClient waits for the first byte, which tells the protocol.
type autoClient session

func (s *session) startAuto() {
	s.cli.SetHandler((*autoClient)(s))
	s.cli.StartRead()
	s.arm(s.svc.headMS)
}

// OnConnect does not come for an accepted connection.
func (h *autoClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData goes on with the client's protocol.
func (h *autoClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	switch first := p[0]; {
	case first == socks.Version4 || first == socks.Version5:
		s.begin(protoSocks, p)
	case first == tlshello.RecordHandshake:
		s.begin(protoTLS, p)
	case http1.MayBegin(first):
		s.begin(protoHTTP, p)
	default:
		s.fail(codeUnknown)
	}
}

// OnEOF ends a client that has sent nothing.
func (h *autoClient) OnEOF(*relay.Conn) { (*session)(h).finish() }

// OnSent does not come: nothing is written.
func (h *autoClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (h *autoClient) OnFlow(*relay.Flow) {}

// OnError ends the session of a client that is gone.
func (h *autoClient) OnError(*relay.Conn, unix.Errno) { (*session)(h).fail(codeClientReset) }

var _ relay.Handler = (*autoClient)(nil)
