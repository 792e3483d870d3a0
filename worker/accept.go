package worker

import (
	"log/slog"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

const (
	// maxConnRetryMS is how often a listener that reached maxconn looks
	// whether another worker has released a place, in milliseconds.
	maxConnRetryMS = 10
	// maxConnRetryLimitMS bounds the doubling of that time.
	maxConnRetryLimitMS = 160
	// fdRetryMS is the pause of a listener for want of descriptors, which a
	// session that ends cuts short; fdRetryLimitMS bounds its doubling.
	fdRetryMS      = 100
	fdRetryLimitMS = 1600
	// fdReserve is the number of descriptors kept for what is not a
	// connection or a pipe: listeners come on top.
	fdReserve = 64
	// warnEveryMS bounds how often the same shortage is reported.
	warnEveryMS = 60_000
)

// listener is one listening socket that the worker serves: of its own slot, of
// an orphaned slot it has adopted, or shared by all workers.
type listener struct {
	relay.Listener
	// packets is the socket of a service that takes datagrams, which has no use
	// for the Listener.
	packets *packetSocket

	w    *Worker
	svc  *service
	id   string // of the service
	slot int
	// kept says that the socket outlives the daemon's use of it, unit is the
	// name it has in its socket unit.
	kept bool
	unit string
	// limited says that it is paused at maxconn, starved that it is for want
	// of descriptors; retryMS is for how long the next time.
	limited, starved bool
	retryMS          int64
}

// addListener starts to serve a socket that came from the supervisor, which
// the listener owns from now on. It takes the place of one that the worker had
// for the same service and slot.
func (w *Worker) addListener(r receivedFD) {
	v := w.services[r.Service]
	if v == nil || w.draining {
		unix.Close(r.fd)
		return
	}
	w.dropListeners(func(s *listener) bool { return s.id == r.Service && s.slot == r.Slot }, v.handover())
	s := &listener{w: w, svc: v, id: r.Service, slot: r.Slot, kept: r.Kept, unit: r.Unit}
	if errno := s.open(r); errno != 0 {
		slog.Error("cannot serve listening socket", "service", r.Service, "error", errno)
		return
	}
	if s.held() {
		s.pause()
	}
	w.listeners = append(w.listeners, s)
}

// handover says what happens to the queue of a socket that another one takes the
// place of: they are the same but for a Unix socket, whose file may have been
// removed and made anew.
func (v *service) handover() parting {
	if v.Listen.Unix != "" {
		return emptied
	}
	return toOthers
}

// open starts to serve the socket, or closes it.
func (s *listener) open(r receivedFD) unix.Errno {
	if s.svc.Listen.Network == config.UDP {
		return s.openPackets(int32(r.fd))
	}
	errno := s.w.loop.Listen(&s.Listener, int32(r.fd), r.Kind == ipc.FileSharedListener, s)
	if errno != 0 {
		unix.Close(r.fd)
	}
	return errno
}

func (s *listener) pause() {
	if s.packets != nil {
		s.packets.Pause()
		return
	}
	s.Pause()
}

// descriptor returns the descriptor of the socket.
func (s *listener) descriptor() int {
	if s.packets != nil {
		return int(s.packets.FD())
	}
	return int(s.FD())
}

// followKinds gives the listeners of services that are gone to those that have
// taken their addresses, as when proxy becomes auto: the sockets are the same.
func (w *Worker) followKinds() {
	heirs := map[string]*service{}
	for _, v := range w.services {
		heirs[v.Listen.Key()] = v
	}
	for _, s := range w.listeners {
		if heir := heirs[s.svc.Listen.Key()]; w.services[s.id] == nil && heir != nil {
			s.id, s.svc = heir.ID, heir
		}
	}
}

// matchListeners gives the listeners the services of the generation in force
// and closes those whose service is gone.
func (w *Worker) matchListeners() {
	w.dropListeners(func(s *listener) bool {
		v := w.services[s.id]
		if v == nil {
			return true
		}
		s.svc = v
		s.resumeLimited()
		return false
	}, shutDown)
}

// parting is what happens to the queue of a listener that is given up.
type parting int

const (
	// toOthers: another process serves it.
	toOthers parting = iota
	// emptied: what waits is accepted, and another process may go on.
	emptied
	// shutDown: what waits is accepted, and nobody goes on. Listening ends, so
	// that no connection enters a queue that is about to go.
	shutDown
)

// dropListeners stops and closes the listeners that match.
func (w *Worker) dropListeners(match func(*listener) bool, how parting) {
	kept := w.listeners[:0]
	for _, s := range w.listeners {
		if !match(s) {
			kept = append(kept, s)
			continue
		}
		s.part(how)
	}
	clear(w.listeners[len(kept):])
	w.listeners = kept
}

// part stops and closes a listener. Sockets of socket units go on listening
// whatever happens.
func (s *listener) part(how parting) {
	if s.packets != nil {
		s.packets.giveUp(how)
		return
	}
	if how == shutDown && !s.kept {
		dropSYN(int(s.FD()))
	}
	if how != toOthers && !s.kept {
		s.Drain(maxQueue)
	}
	if how == shutDown && !s.kept {
		_ = unix.Shutdown(int(s.FD()), unix.SHUT_RDWR)
	}
	s.Pause()
	unix.Close(int(s.FD()))
}

// dropSYN has the kernel drop the first packet of new connections, so that none
// enters the queue between the last accept and the end of the socket, which
// would reset it. The client sends the packet again a second later, to whoever
// listens then.
func dropSYN(fd int) {
	const (
		flagsAt  = 13 // of the TCP header (RFC 9293, 3.1), where a filter of a TCP socket begins
		syn, ack = 0x02, 0x10
	)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flagsAt},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
	}
	// Without it the moment between is what it was.
	_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// maxQueue bounds what is accepted from the queue of a listener that is given
// up.
const maxQueue = 1 << 16

// Admit reserves a place under maxconn and looks whether there are descriptors
// for the connection and for the one to the server.
func (s *listener) Admit(*relay.Listener) bool {
	w := s.w
	if w.loop.Descriptors()+2 > w.maxConnFDs() && w.pool.evict(2) == 0 {
		w.loopCell.Add(ipc.FDPauses, 1)
		w.warnFDs(s.svc, "accepting pauses: no descriptors left", nil)
		s.starve()
		return false
	}
	s.starved = false
	if w.shm.Acquire(w.row, s.svc.column, w.shm.Rows(), s.svc.maxConn) {
		s.limited = false
		return true
	}
	if !s.limited {
		s.limited = true
		s.retryMS = maxConnRetryMS
		s.svc.cell.Add(ipc.MaxConnPauses, 1)
		w.warnMaxConn(s.svc, connectionsWait)
	}
	s.PauseFor(s.retryMS)
	s.retryMS = min(2*s.retryMS, maxConnRetryLimitMS)
	return false
}

// roomFor reports whether a session of v may open n more descriptors, and warns
// when it may not.
func (w *Worker) roomFor(v *service, n int) bool {
	if w.loop.Descriptors()+n <= w.maxConnFDs() || w.pool.evict(n) > 0 {
		return true
	}
	w.warnResources(v, unix.EMFILE)
	return false
}

// maxConnFDs is the number of descriptors that connections and pipes may use.
func (w *Worker) maxConnFDs() int { return w.maxFDs - fdReserve - len(w.listeners) }

// OnAccept starts a session.
func (s *listener) OnAccept(_ *relay.Listener, fd int32, peer netip.AddrPort) {
	s.w.newSession(s.svc, fd, peer)
}

// OnNoAccept gives the reserved place back.
func (s *listener) OnNoAccept(*relay.Listener) { s.w.shm.Release(s.w.row, s.svc.column) }

// OnExhausted counts a pause that the kernel forced.
func (s *listener) OnExhausted(_ *relay.Listener, errno unix.Errno) {
	s.w.pool.evict(poolMax)
	s.w.loop.TrimPipes(0)
	s.w.loopCell.Add(ipc.FDPauses, 1)
	s.w.warnFDs(s.svc, "accepting pauses", errno)
	s.starve()
}

// starve pauses for want of descriptors, longer each time in a row.
func (s *listener) starve() {
	if !s.starved {
		s.starved = true
		s.retryMS = fdRetryMS
	}
	s.PauseFor(s.retryMS)
	s.retryMS = min(2*s.retryMS, fdRetryLimitMS)
}

// connectionsWait is the warning of a listener that has paused at maxconn.
const connectionsWait = "maxconn reached: new connections wait"

// resumeStarved goes on when a session has given descriptors back.
func (s *listener) resumeStarved() {
	if s.held() || s.Active() || s.w.loop.Descriptors()+2 > s.w.maxConnFDs() {
		return
	}
	if errno := s.Resume(); errno != 0 {
		s.PauseFor(fdRetryMS)
	}
}

func (s *listener) resumeLimited() {
	if !s.limited || s.held() {
		return
	}
	s.limited = false
	if errno := s.Resume(); errno != 0 {
		s.PauseFor(fdRetryMS)
	}
}

// released is called when a session of the service in column has given its
// place back: a listener that waits for one goes on at once.
func (w *Worker) released(column int) {
	for _, s := range w.listeners {
		if s.limited && s.svc.column == column {
			s.resumeLimited()
		}
		if s.starved {
			s.resumeStarved()
		}
	}
}

func (w *Worker) warnFDs(v *service, text string, err error) {
	if now := w.loop.Now(); now >= w.nextFDWarning {
		w.nextFDWarning = now + warnEveryMS
		args := []any{"service", v.ID, "limit", w.maxFDs}
		if err != nil {
			args = append(args, "error", err)
		}
		slog.Warn(text, args...)
	}
}

// warnResources reports a request that failed for want of descriptors or
// memory.
func (w *Worker) warnResources(v *service, errno unix.Errno) {
	if now := w.loop.Now(); now >= w.nextResourceWarning {
		w.nextResourceWarning = now + warnEveryMS
		slog.Warn("requests fail for want of descriptors or memory", "service", v.ID, "error", errno)
	}
}

// warnNames reports a name that could not be looked up because no name server
// answered.
func (w *Worker) warnNames(err error) {
	if now := w.loop.Now(); now >= w.nextNameWarning {
		w.nextNameWarning = now + warnEveryMS
		slog.Warn("name servers do not answer", "error", err)
	}
}

func (w *Worker) warnMaxConn(v *service, text string) {
	if now := w.loop.Now(); now >= w.nextMaxConnWarning {
		w.nextMaxConnWarning = now + warnEveryMS
		slog.Warn(text, "service", v.ID, "maxconn", v.maxConn)
	}
}
