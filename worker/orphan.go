package worker

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/relay"
)

// orphanServeMS is how long a worker goes on accepting after its supervisor has
// died when no successor takes over, in milliseconds.
const orphanServeMS = 5 * 60_000

// orphanRetryMS is how long the end of that time is put off while a successor
// is starting.
const orphanRetryMS = 10_000

// orphanHeldMS is how long an orphan leaves its queues to the other daemon of an
// upgrade, in milliseconds: that one takes it over, or is dead as well.
var orphanHeldMS int64 = 3_000

// orphaned is what the loop does when the supervisor has gone: a worker goes on
// serving for a while, so that a successor of the supervisor finds all at work.
func (w *Worker) orphaned() {
	w.adopted.Store(false)
	switch {
	case w.gen == 0:
		slog.Warn("the supervisor is gone: the worker has nothing to serve yet and ends")
		w.drain(0, toOthers)
		return
	case w.draining:
		slog.Warn("the supervisor is gone: the worker finishes its sessions", "sessions", w.sessions.count)
		return
	}
	slog.Warn("the supervisor is gone: the worker serves on until a successor takes over", "seconds", orphanServeMS/1000)
	if !w.orphanTimer.Set() {
		w.loop.SetTimer(&w.orphanTimer, orphanServeMS, orphanHandler{w})
	}
	if w.accepting.Paused {
		w.loop.SetTimer(&w.heldTimer, orphanHeldMS, heldHandler{w})
	}
}

// heldHandler has an orphan accept again when the other daemon of an upgrade has
// not taken it over: both may have died.
type heldHandler struct{ w *Worker }

// OnTimer resumes the listeners.
func (h heldHandler) OnTimer(*relay.Timer) {
	w := h.w
	switch {
	case w.draining || !w.accepting.Paused:
	case w.adopted.Load():
		w.loop.SetTimer(&w.heldTimer, orphanHeldMS, h)
	default:
		slog.Warn("neither daemon of the upgrade is there: the worker accepts again")
		w.setAccepting(ipc.Accept{Lent: true})
	}
}

// orphanHandler ends accepting when no successor has come in time.
type orphanHandler struct{ w *Worker }

// OnTimer drains.
func (h orphanHandler) OnTimer(*relay.Timer) {
	w := h.w
	switch {
	case w.draining:
	case w.adopted.Load():
		w.loop.SetTimer(&w.orphanTimer, orphanRetryMS, orphanHandler{w})
	default:
		slog.Error("no successor of the supervisor has come: no new connections are accepted")
		w.drainOrphan(w.drainMS)
	}
}

// drainOrphan drains without a supervisor. Sockets that are stored go on
// listening: a successor may still come for them. So do those that another
// daemon has in an upgrade.
func (w *Worker) drainOrphan(timeoutMS int64) {
	how := shutDown
	if w.stored || w.accepting.Lent {
		how = emptied
	}
	w.drain(timeoutMS, how)
}

// awaitSuccessor waits for a new supervisor, tells it what this worker is and
// has, and returns the connection to it. Meanwhile SIGTERM drains, and ends all
// sessions when it comes again.
func (w *Worker) awaitSuccessor() (*ipc.Conn, error) {
	socket, err := ipc.ListenOrphan(w.family)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	stop := w.obeySignals()
	defer stop()
	waited := make(chan struct{})
	defer close(waited)
	go func() {
		select {
		case <-w.moves.over:
			_ = socket.Close()
		case <-waited:
		}
	}()
	for {
		conn, peer, err := socket.Accept()
		if err != nil {
			return nil, err
		}
		if peer.UID != 0 && peer.UID != os.Geteuid() && peer.UID != w.masterUID {
			slog.Warn("a process of another user wants to be the supervisor", "pid", peer.PID, "user", peer.UID)
			_ = conn.Close()
			continue
		}
		if err := w.introduce(conn); err != nil {
			slog.Error("successor of the supervisor", "pid", peer.PID, "error", err)
			_ = conn.Close()
			continue
		}
		w.adopted.Store(true)
		return conn, nil
	}
}

// obeySignals has SIGTERM and SIGINT drain until the returned function is
// called; a supervisor decides what they mean otherwise. One that came shortly
// before counts as well: a service manager may send it to all processes of a
// service at the moment the main one dies.
func (w *Worker) obeySignals() (stop func()) {
	w.alone.Store(true)
	done := make(chan struct{})
	go func() {
		for again := false; ; again = true {
			select {
			case <-w.signals:
				w.loop.Post(func() { w.drainBySignal(again) })
			case <-done:
				return
			}
		}
	}()
	return func() {
		w.alone.Store(false)
		close(done)
	}
}

// forgetSignals drops those that were the supervisor's business.
func (w *Worker) forgetSignals() {
	for !w.alone.Load() {
		select {
		case <-w.signals:
		default:
			return
		}
	}
}

func (w *Worker) drainBySignal(now bool) {
	if now {
		w.drainOrphan(0)
		return
	}
	w.drainOrphan(w.drainMS)
}

// introduce tells a new supervisor what this worker is and has.
func (w *Worker) introduce(conn *ipc.Conn) error {
	gathered := make(chan []receivedFD)
	var gen uint64
	w.loop.Post(func() {
		gen = w.gen
		gathered <- w.duplicateListeners()
	})
	sockets := <-gathered
	defer func() {
		for _, r := range sockets {
			_ = unix.Close(r.fd)
		}
	}()
	me := ipc.Orphan{Version: ipc.Version, Slot: w.slot, Row: w.row, Thread: w.thread, Gen: gen}
	if err := conn.Send(ipc.MsgOrphan, 0, me, w.shm.FD()); err != nil {
		return err
	}
	for rest := sockets; len(rest) > 0; {
		n := min(len(rest), ipc.MaxFDs)
		body := ipc.Files{Gen: gen}
		var fds []int
		for _, r := range rest[:n] {
			body.Entries = append(body.Entries, r.FileEntry)
			fds = append(fds, r.fd)
		}
		if err := conn.Send(ipc.MsgFiles, 0, body, fds...); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return conn.Send(ipc.MsgOrphanEnd, 0, nil)
}

// duplicateListeners returns duplicates of the listening sockets. Those of
// socket units are among them: a successor that the service manager has not
// started does not inherit them.
func (w *Worker) duplicateListeners() []receivedFD {
	var list []receivedFD
	for _, s := range w.listeners {
		fd, err := unix.FcntlInt(uintptr(s.descriptor()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue
		}
		kind := ipc.FileListener
		if s.slot < 0 {
			kind = ipc.FileSharedListener
		}
		list = append(list, receivedFD{ipc.FileEntry{Kind: kind, Service: s.id, Slot: s.slot, Kept: s.kept, Unit: s.unit}, fd})
	}
	return list
}
