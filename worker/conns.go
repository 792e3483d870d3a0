package worker

import (
	"bufio"
	"encoding/json"
	"math/bits"
	"os"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// connsTimeout bounds the writing of a list that nobody reads.
const connsTimeout = 10 * time.Second

// listSessions writes the live sessions to a pipe of the supervisor. The loop
// takes a copy of what it shows; a goroutine writes it. fd is owned and closed.
func (w *Worker) listSessions(fd int) {
	list := make([]ipc.Session, 0, w.sessions.count)
	for s := w.sessions.head; s != nil; s = s.next {
		list = append(list, s.describe())
	}
	for s := range w.moves.leaving {
		list = append(list, s.describe())
	}
	go writeSessions(os.NewFile(uintptr(fd), "session list"), list)
}

func (s *session) describe() ipc.Session {
	d := ipc.Session{
		ID:       s.id,
		Worker:   s.w.slot,
		Service:  s.svc.ID,
		Protocol: s.detected(),
		User:     s.user,
		Op:       s.opName(),
		State:    phaseNames[s.phase],
		AgeSec:   float64(s.w.loop.Now()-s.start) / 1000,
		BytesIn:  s.bytesIn(),
		BytesOut: s.bytesOut(),
	}
	if s.client.IsValid() {
		d.Client = s.client.String()
	}
	if t := s.svc.Target; t != nil && t.Unix != "" {
		d.Target = "unix:" + t.Unix
	} else if s.port != 0 || s.op == config.OpBind || s.op == config.OpUDPAssoc {
		d.Target = string(s.appendTarget(nil))
	}
	if s.srv != nil && s.srv.addr.IsValid() {
		d.Server = s.srv.addr.String()
	}
	if u := s.udp; u != nil {
		d.DatagramsIn, d.DatagramsOut = u.in, u.out
		if u.server.IsValid() {
			d.Server = u.server.String()
		}
	}
	if a := s.association(); a != nil {
		d.DatagramsIn, d.DatagramsOut = a.in, a.out
		if c := a.current; c != nil {
			d.Target = string(appendTarget(nil, c.host, c.to, c.port))
			if v := c.server(); v.IsValid() {
				d.Server = v.String()
			}
		}
	}
	return d
}

// detected is the protocol that a client of an auto service speaks, "" before it is
// known.
func (s *session) detected() string {
	if s.svc.Kind != config.Auto {
		return ""
	}
	switch s.protocol {
	case protoHTTP:
		return "http"
	case protoSocks:
		return "socks"
	case protoTLS:
		return "tls"
	}
	return ""
}

// opNames has the name of each operation, by its bit.
var opNames = func() (names [32]string) {
	for i := range names {
		names[i] = config.Operations(1 << i).String()
	}
	return names
}()

// opName is the name of the operation that the session is for, "" before it has
// asked.
func (s *session) opName() string {
	if s.op == 0 || s.port == 0 && s.phase == phaseHandshake {
		return ""
	}
	return opNames[bits.TrailingZeros32(uint32(s.op))&31]
}

func writeSessions(f *os.File, list []ipc.Session) {
	defer f.Close()
	// A pipe that does not take deadlines is bounded by its reader, the
	// supervisor, which closes it after a time.
	_ = f.SetWriteDeadline(time.Now().Add(connsTimeout))
	out := bufio.NewWriter(f)
	enc := json.NewEncoder(out)
	for i := range list {
		if enc.Encode(&list[i]) != nil {
			return
		}
	}
	_ = out.Flush()
}
