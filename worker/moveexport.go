package worker

import (
	"math"
	"net/netip"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

// export describes a frozen session for another worker. Times become those of
// CLOCK_MONOTONIC, which all processes share; 0 stays 0.
func (s *session) export(f *frozen, m *ipc.MoveSession) {
	shared := s.w.toShared()
	*m = ipc.MoveSession{
		Generation: f.gen,
		Client:     s.client,
		Protocol:   s.protocol.String(),
		Local:      s.headerLocal(),
		User:       []byte(s.user),
		Secret:     s.oldSecret(),
		Host:       []byte(s.host),
		Addr:       s.addr,
		Port:       s.port,
		Op:         uint64(s.op),
		Text:       append([]byte(nil), s.text.Bytes()...),
		Code:       int(s.code),

		StartedMS:  shared(s.start),
		BeganMS:    shared(s.began),
		BytesIn:    s.in,
		BytesOut:   s.out,
		HalfClosed: s.halfClosed,
		Unsent:     int(s.unsent),
		DrainedMS:  shared(s.drained),

		Server:     s.srv.addr,
		ServerHost: []byte(s.srv.host),
		ServerUser: []byte(s.srv.user),
		ClientConn: exportConn(&f.cli, shared),
		ServerConn: exportConn(&f.srv, shared),
		Up:         exportFlow(f.up, f.upOpen, shared),
		Down:       exportFlow(f.down, f.downOpen, shared),
	}
}

// headerLocal is where the client connected to according to a PROXY protocol
// header, the zero AddrPort without one.
func (s *session) headerLocal() netip.AddrPort {
	if s.front == nil {
		return netip.AddrPort{}
	}
	return s.front.local
}

func exportConn(d *relay.Detached, shared func(int64) int64) ipc.MoveConn {
	return ipc.MoveConn{
		Output:             len(d.Output),
		Shutdown:           d.Shutdown,
		Broken:             d.Broken,
		DistrustShortReads: d.DistrustShortReads,
		Unwritten:          d.Unwritten,
		Nagle:              d.Nagle,
		ReadSize:           d.ReadSize,
		FlushedMS:          shared(d.Flushed),
	}
}

func exportFlow(f relay.FlowState, open bool, shared func(int64) int64) ipc.MoveFlow {
	return ipc.MoveFlow{Active: open, Splicing: f.Splicing, Streak: f.Streak, LastMS: shared(f.Last)}
}

// toShared returns the conversion from the loop's time to CLOCK_MONOTONIC.
func (w *Worker) toShared() func(int64) int64 {
	offset := int64(monotonicMS()) - w.loop.Now()
	return func(ms int64) int64 {
		if ms == 0 {
			return 0
		}
		return ms + offset
	}
}

// fromShared is the reverse of toShared. The result is negative for what was
// before the loop began; a time in the future, which no clock has shown,
// becomes the present.
func (w *Worker) fromShared() func(int64) int64 {
	now := int64(monotonicMS())
	offset := now - w.loop.Now()
	return func(ms int64) int64 {
		if ms == 0 {
			return 0
		}
		return min(ms, now) - offset
	}
}

// arrive makes a live session of one that another worker has handed over. Its
// place has been taken over.
func (w *Worker) arrive(v *service, m *ipc.MoveSession, f *frozen) {
	local := w.fromShared()
	s := w.takeSession()
	s.svc = v
	if len(m.Secret) > 0 {
		s.svc = v.forUser(string(m.User), m.Secret)
	}
	s.client = m.Client
	s.start, s.began = local(m.StartedMS), local(m.BeganMS)
	s.user, s.host = string(m.User), string(m.Host)
	s.addr, s.port, s.op = m.Addr, m.Port, config.Operations(m.Op)
	s.in, s.out, s.code = m.BytesIn, m.BytesOut, code(m.Code)
	s.halfClosed, s.unsent, s.drained = m.HalfClosed, int32(min(m.Unsent, math.MaxInt32)), local(m.DrainedMS)
	if len(m.Text) > 0 && v.log != nil {
		s.text.Append(w.loop, m.Text)
	}
	s.protocol = v.protocol
	if p, ok := protocolNamed(m.Protocol); ok {
		s.protocol = p
	}
	if m.Local.IsValid() {
		s.needFront().local = m.Local
	}
	u := w.newUpstream(s)
	u.addr, u.host, u.user = m.Server, string(m.ServerHost), string(m.ServerUser)
	s.srv = u
	importConn(&f.cli, m.ClientConn, local)
	importConn(&f.srv, m.ServerConn, local)
	f.up, f.upOpen = importFlow(m.Up, local)
	f.down, f.downOpen = importFlow(m.Down, local)
	w.sessions.add(s)
	if w.ended {
		f.close()
		s.finish()
		return
	}
	f.gen = m.Generation
	s.thaw(f)
	s.obeyLater(f.gen)
}

// importConn completes what came as a descriptor and its output.
func importConn(d *relay.Detached, m ipc.MoveConn, local func(int64) int64) {
	d.Shutdown, d.Broken = m.Shutdown, m.Broken
	d.DistrustShortReads = m.DistrustShortReads
	d.Unwritten, d.Nagle = m.Unwritten, m.Nagle
	d.ReadSize = min(m.ReadSize, relay.MaxBufferSize)
	d.Flushed = local(m.FlushedMS)
}

func importFlow(m ipc.MoveFlow, local func(int64) int64) (relay.FlowState, bool) {
	return relay.FlowState{Splicing: m.Splicing, Streak: m.Streak, Last: local(m.LastMS)}, m.Active
}
