package worker

import (
	"cmp"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"3proxyd/accesslog"
	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

const (
	// logFlushMS is how long a line waits for company, in milliseconds.
	logFlushMS = 100
	// logCloseTime bounds the writing of the last lines.
	logCloseTime = 5 * time.Second
)

// logFile is an access log. It outlives generations: a reload that brings a
// new descriptor for the same path replaces the writer.
type logFile struct {
	w       *Worker
	path    string
	out     *accesslog.Writer
	file    *os.File // of out, which closes it
	timer   relay.Timer
	cell    *ipc.Cell // of the service that logged last
	dropped uint64
	// inForce says that a service of the present generation uses it.
	inForce bool
}

// stdoutLog is the key of standard output among the logs.
const stdoutLog = ""

// openLog finds the log of a service, opening it when it is new: its
// descriptor came with the generation, or is standard output.
func (v *service) openLog(w *Worker, g *generation) error {
	key := stdoutLog
	switch v.Log.Kind {
	case config.LogFile:
		key = v.Log.Path
	case config.LogStdout:
	default:
		return nil
	}
	var err error
	if v.format, err = accesslog.Compile(v.LogFormat); err != nil {
		return err
	}
	v.log = g.logs[key]
	if v.log == nil {
		v.log = &logFile{w: w, path: key}
		g.logs[key] = v.log
	}
	return nil
}

// replaceWriter gives the log a new writer; the old one is closed by a
// goroutine of its own, since that may wait for a disk.
func (f *logFile) replaceWriter(out *os.File) {
	old := f.out
	f.file = out
	f.out = accesslog.NewWriter(out, out.Name(), func(err error) {
		if err != nil {
			slog.Error("access log", "error", err)
			return
		}
		slog.Info("access log works again", "log", out.Name())
	})
	if old != nil {
		go closeWriter(old)
	}
}

func closeWriter(out *accesslog.Writer) {
	if err := out.Close(logCloseTime); err != nil {
		slog.Error("access log", "error", err)
	}
}

// OnTimer hands the gathered lines over.
func (f *logFile) OnTimer(*relay.Timer) {
	f.out.Flush()
	if n := f.out.Dropped(); n > f.dropped && f.cell != nil {
		f.cell.Add(ipc.LogDropped, n-f.dropped)
		f.dropped = n
	}
	if f.out.Buffered() > 0 {
		f.w.loop.SetTimer(&f.timer, logFlushMS, f)
	}
}

// log counts the result of the request and writes its line, once.
func (s *session) log() {
	if s.logged {
		return
	}
	s.logged = true
	if a := s.association(); a != nil {
		a.logEnd()
	}
	s.logLine()
}

// logLine counts the result of the request and writes its line.
func (s *session) logLine() {
	s.svc.count(s.code)
	f := s.svc.log
	if f == nil || f.out == nil {
		return
	}
	f.cell = s.svc.cell
	r := &s.w.record
	s.fillRecord(r)
	f.write(s.svc, r)
	s.text.Release(s.w.loop)
}

// write puts the line of a record on its way to the file.
func (f *logFile) write(v *service, r *accesslog.Record) {
	f.out.Log(v.format, r)
	if !f.timer.Set() {
		f.w.loop.SetTimer(&f.timer, logFlushMS, f)
	}
}

func (s *session) fillRecord(r *accesslog.Record) {
	now := time.Now().UnixNano()
	*r = accesslog.Record{
		Start:       now - (s.w.loop.Now()-s.began)*int64(time.Millisecond),
		End:         now,
		Service:     s.protocol.String(),
		ServicePort: s.svc.port,
		User:        s.user,
		Host:        s.host,
		Client:      s.client,
		Internal:    s.svc.internal,
		Code:        int(s.code),
		BytesIn:     s.bytesIn(),
		BytesOut:    s.bytesOut(),
	}
	addr := s.addr
	if u := s.srv; u != nil {
		r.Server = u.addr
		addr = u.addr.Addr()
		if s.svc.format.Uses('e') {
			r.External = u.LocalAddr().Addr()
		}
	}
	if u := s.udp; u != nil && u.server.IsValid() {
		r.Server = u.server
		addr = u.server.Addr()
		if s.svc.format.Uses('e') {
			r.External = u.LocalAddr().Addr()
		}
	}
	if s.udp != nil && r.Internal.IsUnspecified() && s.udp.path.Local.IsValid() {
		r.Internal = s.udp.path.Local
	}
	if a := s.association(); a != nil {
		d := cmp.Or(a.line, a.current)
		if r.Server = d.server(); r.Server.IsValid() {
			addr = r.Server.Addr()
		}
		if s.svc.format.Uses('e') {
			r.External = a.externalAddr(addr)
		}
	}
	r.Requested = netip.AddrPortFrom(addr, s.port)
	switch {
	case s.front != nil && s.front.local.IsValid():
		r.Internal = s.front.local.Addr()
	case s.svc.format.Uses('i') && s.cli.IsOpen() && r.Internal.IsUnspecified():
		r.Internal = s.cli.LocalAddr().Addr()
	}
	r.Text = s.logText()
}

// logText is %T: the request line, or operation and target.
func (s *session) logText() []byte {
	if s.text.Len() > 0 {
		return s.text.Bytes()
	}
	command := "CONNECT "
	switch {
	case s.op == config.OpBind:
		command = "BIND "
	case s.op == config.OpUDPAssoc:
		command = "UDPMAP "
	case s.port == 0:
		return nil
	}
	b := append(s.w.scratch[:0], command...)
	b = s.appendTarget(b)
	if s.udp != nil {
		b = s.udp.appendDatagrams(b)
	}
	if s.op == config.OpHTTPConnect {
		b = append(b, " HTTP/1.1"...)
	}
	return b
}

// appendTarget appends the requested host:port.
func (s *session) appendTarget(b []byte) []byte { return appendTarget(b, s.host, s.addr, s.port) }

func appendTarget(b []byte, host string, addr netip.Addr, port uint16) []byte {
	switch {
	case host != "":
		b = append(b, host...)
	case addr.Is6():
		b = append(addr.AppendTo(append(b, '[')), ']')
	case addr.IsValid():
		b = addr.AppendTo(b)
	}
	return strconv.AppendUint(append(b, ':'), uint64(port), 10)
}
