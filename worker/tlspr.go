package worker

import (
	"fmt"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/tlshello"
	"3proxyd/relay"
)

// tlsClient handles the client of tlspr until it is joined to a server: the
// ClientHello says which.
type tlsClient session

func (s *session) startTLS() {
	s.needFront()
	s.op = config.OpConnect
	s.cli.SetHandler((*tlsClient)(s))
	s.cli.StartRead()
	s.arm(seconds(s.svc.Timeouts.ByteLong))
}

// OnConnect does not come for an accepted connection.
func (h *tlsClient) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes the hello, which stays in the session's buffer.
func (h *tlsClient) OnData(_ *relay.Conn, p []byte) {
	s := (*session)(h)
	if s.buf.Len() == 0 {
		s.arm(seconds(s.svc.Timeouts.StringShort))
	}
	if !s.buf.Append(s.w.loop, p) {
		h.refuse(codeBadHello, tlshello.RecordOverflow)
		return
	}
	hello := &s.w.hello
	done, err := hello.Parse(&s.front.scan, s.buf.Bytes())
	switch {
	case err != nil:
		h.badHello(err.(*tlshello.Error))
	case done:
		h.request(hello)
	default:
		s.boundRead(&s.cli, &s.buf)
	}
}

// badHello refuses a client that does not speak TLS, or not as it should. At
// level 0 that is allowed, but there is no name to connect to.
func (h *tlsClient) badHello(err *tlshello.Error) {
	s := (*session)(h)
	switch {
	case err.Alert == 0 && s.svc.TLSCheck == 0:
		s.text.Append(s.w.loop, []byte("NONE - -"))
		h.nameless(0)
	case err.Alert == 0:
		h.refuse(codeNotTLS, 0)
	default:
		h.refuse(codeBadHello, err.Alert)
	}
}

// nameless refuses a client without a name, with the code of the access list
// if that is against it already.
func (h *tlsClient) nameless(alert tlshello.Alert) {
	s := (*session)(h)
	s.port = s.svc.TargetPort
	c := code(s.decide(s.addr, true, nil).Code)
	if c == codeOK {
		c = codeNoHost
	}
	h.refuse(c, alert)
}

// request connects to the server that the hello names.
func (h *tlsClient) request(hello *tlshello.Hello) {
	s := (*session)(h)
	s.cli.StopRead()
	s.cli.SetReadSize(s.svc.headRead())
	h.noteHello(hello)
	if hello.Name == nil {
		h.nameless(tlshello.UnrecognizedName)
		return
	}
	s.setHost(hello.Name)
	s.port = s.svc.TargetPort
	s.open(nil, tlsOpener{})
}

// noteHello keeps the text for the log: version, name and protocol as 3proxy
// writes them.
func (h *tlsClient) noteHello(hello *tlshello.Hello) {
	s := (*session)(h)
	if s.svc.log == nil {
		return
	}
	version := "SSLv3.0"
	if hello.Version > tlshello.SSL30 {
		version = fmt.Sprintf("TLSv1.%d", hello.Version-tlshello.TLS10)
	}
	line := append(s.w.scratch[:0], version...)
	line = appendOrDash(append(line, ' '), hello.Name)
	line = appendOrDash(append(line, ' '), hello.ALPN)
	s.text.Append(s.w.loop, line)
}

func appendOrDash(b, word []byte) []byte {
	if len(word) == 0 {
		return append(b, '-')
	}
	return append(b, word...)
}

// refuse ends the session; the client is told why in its language, unless
// alert is 0.
func (h *tlsClient) refuse(c code, alert tlshello.Alert) {
	s := (*session)(h)
	s.code = c
	if alert == 0 {
		s.finish()
		return
	}
	s.cli.Write(tlshello.AppendAlert(s.w.scratch[:0], alert))
	s.closeGently()
}

// OnEOF ends a client that goes before its hello is complete.
func (h *tlsClient) OnEOF(*relay.Conn) {
	s := (*session)(h)
	if s.buf.Len() > 0 {
		s.code = codeBadHello
	}
	s.finish()
}

// OnSent is of no interest: nothing but an alert is written.
func (h *tlsClient) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (h *tlsClient) OnFlow(*relay.Flow) {}

// OnError ends the session of a client that is gone.
func (h *tlsClient) OnError(*relay.Conn, unix.Errno) { (*session)(h).fail(codeClientReset) }

// tlsOpener passes the hello on when its server is reached.
type tlsOpener struct{}

func (tlsOpener) opened(s *session) {
	s.svc.cell.Add(ipc.Requests, 1)
	if s.svc.TLSCheck < 2 {
		s.startTunnel()
		return
	}
	s.sendEarly()
	s.phase = phaseHandshake
	s.front.scan = tlshello.Scan{}
	s.srv.SetHandler((*tlsServer)(s))
	s.srv.SetReadSize(s.svc.headRead())
	s.srv.StartRead()
	s.arm(seconds(s.svc.Timeouts.StringShort))
}

func (tlsOpener) refused(s *session, c code, _ unix.Errno) {
	alert := tlshello.InternalError
	switch {
	case c >= codeDenied && c < codeSocket, c == codeLoop:
		alert = tlshello.AccessDenied
	case c == codeNoHost:
		alert = tlshello.UnrecognizedName
	}
	(*tlsClient)(s).refuse(c, alert)
}

// tlsServer handles a server whose ServerHello is to be looked at (-c2).
type tlsServer session

// OnConnect has come before.
func (v *tlsServer) OnConnect(*relay.Conn, unix.Errno) {}

// OnData takes the beginning of the answer.
func (v *tlsServer) OnData(c *relay.Conn, p []byte) {
	s := (*session)(v)
	answer := &s.front.answer
	if !answer.Append(s.w.loop, p) {
		v.refuse(codeBadServer)
		return
	}
	done, err := tlshello.CheckServer(&s.front.scan, answer.Bytes())
	switch {
	case err != nil:
		v.refuse(codeBadServer)
	case done:
		c.StopRead()
		s.cli.Write(answer.Bytes())
		s.countIn(answer.Len())
		answer.Release(s.w.loop)
		s.srv.SetReadSize(s.svc.readSize)
		s.join()
	default:
		s.boundRead(c, answer)
	}
}

func (v *tlsServer) refuse(c code) {
	(*tlsClient)(v).refuse(c, tlshello.HandshakeFailure)
}

// OnEOF refuses a server that answers nothing.
func (v *tlsServer) OnEOF(*relay.Conn) { v.refuse(codeBadServer) }

// OnSent is of no interest: the hello has been sent.
func (v *tlsServer) OnSent(*relay.Conn) {}

// OnFlow does not come before there is a flow.
func (v *tlsServer) OnFlow(*relay.Flow) {}

// OnError refuses a server that has gone.
func (v *tlsServer) OnError(*relay.Conn, unix.Errno) { v.refuse(codeServerReset) }

var (
	_ relay.Handler = (*tlsClient)(nil)
	_ relay.Handler = (*tlsServer)(nil)
)
