package worker

import (
	"golang.org/x/sys/unix"

	"3proxyd/proto/http1"
)

// requestOpener sends the waiting request when its server is reached.
type requestOpener struct{}

func (requestOpener) opened(s *session) {
	st := s.http
	s.srv.SetHandler((*httpServer)(s))
	s.srv.TellEarly()
	if s.srv.HasEarly() {
		(*httpServer)(s).broken(reasonEarly)
		return
	}
	used := (*httpClient)(s).send(st.out.Bytes(), s.buf.Bytes())
	if used < 0 {
		return
	}
	s.buf.Consume(s.w.loop, used)
	// A fresh connection that fails is the server's answer: nothing is sent
	// twice.
	st.out.Release(s.w.loop)
}

func (requestOpener) refused(s *session, c code, errno unix.Errno) {
	if c == codeLoop && s.http.asterisk {
		s.code = codeOK
		(*httpClient)(s).answerOptions()
		return
	}
	(*httpClient)(s).answerRefused(c, errno)
}

// connectOpener makes a tunnel of a CONNECT request.
type connectOpener struct{}

func (connectOpener) opened(s *session) {
	s.cli.Write(http1.AppendEstablished(s.w.scratch[:0], int(s.http.minor)))
	s.w.dropHTTP(s)
	s.startTunnel()
}

func (connectOpener) refused(s *session, c code, errno unix.Errno) {
	(*httpClient)(s).answerRefused(c, errno)
}

// retry sends the request once more on a connection of its own, after one from
// the pool turned out to be closed by the server.
func (h *httpClient) retry() {
	s := (*session)(h)
	addr := s.srv.addr
	s.dropUpstream()
	s.http.reused = false
	s.http.interims, s.http.interimBytes = 0, 0
	s.http.resp.Release(s.w.loop)
	s.http.respScan = http1.Scan{}
	s.out = 0
	d := s.w.newDial(s)
	d.opener = requestOpener{}
	d.one[0] = addr.Addr()
	d.targets.set(d.one[:], false)
	s.connectNext()
}
