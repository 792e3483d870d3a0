package supervisor

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// oldGeneration is a daemon this one, or one before, has replaced: a
// supervisor, and workers that finish their sessions. Its processes are no
// children of this one and are watched by process descriptors.
type oldGeneration struct {
	ipc.HandoffOld
	// deadline is when it has to be gone.
	deadline time.Time

	mu         sync.Mutex
	supervisor *foreignProcess
	workers    []*foreignProcess
	// reclaimed are workers that this daemon supervises, because their own
	// supervisor has died.
	reclaimed []*process
}

// newOldGeneration describes what has been replaced at a time; pidfds are of the
// supervisor and of the workers o has.
func newOldGeneration(o ipc.HandoffOld, now time.Time, pidfds []int) *oldGeneration {
	g := &oldGeneration{HandoffOld: o, deadline: now.Add(time.Duration(o.LeftMS) * time.Millisecond)}
	g.supervisor = newForeign(ipc.HandoffWorker{PID: o.PID, Row: noRow}, pidfds[0])
	for i, w := range o.Workers {
		g.workers = append(g.workers, newForeign(w, pidfds[1+i]))
	}
	return g
}

// foreignProcess is a process that is not a child. worker is zero for a
// supervisor.
type foreignProcess struct {
	worker ipc.HandoffWorker
	// file owns the process descriptor fd.
	file *os.File
	fd   int
	// exited is closed when the process has ended.
	exited chan struct{}
}

// newForeign takes over a process descriptor and watches the process.
func newForeign(w ipc.HandoffWorker, pidfd int) *foreignProcess {
	own := ownPidfd(w.PID, pidfd)
	p := &foreignProcess{worker: w, file: os.NewFile(uintptr(own), "process"), fd: own, exited: make(chan struct{})}
	go p.watch()
	return p
}

// ownPidfd returns another descriptor of the process that pidfd, which it
// closes, is of, to be waited for by the runtime's poller. One that was received
// shares its flags with the sender's, whose waitid(2) fails with EAGAIN when
// O_NONBLOCK is set. A process that has been reaped has no other descriptor, and
// nobody who waits for it.
func ownPidfd(pid, pidfd int) int {
	own, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == nil && unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH {
		// The number may be of another process by now.
		_ = unix.Close(own)
		err = unix.ESRCH
	}
	if err != nil {
		_ = unix.SetNonblock(pidfd, true)
		return pidfd
	}
	_ = unix.Close(pidfd)
	return own
}

// watch waits until the descriptor is readable, which says that the process
// has ended (pidfd_open(2)).
func (p *foreignProcess) watch() {
	defer close(p.exited)
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

func (p *foreignProcess) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *foreignProcess) signal(sig unix.Signal) {
	raw, err := p.file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	}
}

// processes are the supervisor and the workers.
func (o *oldGeneration) processes() []*foreignProcess {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*foreignProcess{o.supervisor}, o.workers...)
}

func (o *oldGeneration) signal(sig unix.Signal) {
	for _, p := range o.processes() {
		p.signal(sig)
	}
}

// living are the workers that have not ended.
func (o *oldGeneration) living() []*foreignProcess {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.workers), (*foreignProcess).hasExited)
}

// describe returns what a successor is told, and the process descriptors of
// the supervisor and the workers in its order; they remain this one's.
func (o *oldGeneration) describe() (ipc.HandoffOld, []int) {
	described := o.HandoffOld
	described.LeftMS = max(0, time.Until(o.deadline)).Milliseconds()
	described.Workers = nil
	fds := []int{o.supervisor.fd}
	for _, w := range o.living() {
		described.Workers = append(described.Workers, w.worker)
		fds = append(fds, w.fd)
	}
	return described, fds
}

// oldGenerations lists those that are not gone, the latest first.
func (d *daemon) oldGenerations() []*oldGeneration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.old)
}

// addOldGeneration watches a replaced daemon until it is gone.
func (d *daemon) addOldGeneration(o *oldGeneration) {
	d.mu.Lock()
	d.old = append(d.old, o)
	d.mu.Unlock()
	for _, w := range o.workers {
		d.oldDone.Go(func() {
			<-w.exited
			d.freeRow(w.worker)
		})
	}
	d.oldDone.Go(func() { d.reclaim(o) })
	d.oldDone.Go(func() {
		o.await(d)
		d.mu.Lock()
		d.old = slices.DeleteFunc(d.old, func(other *oldGeneration) bool { return other == o })
		replaced := d.replaced
		d.mu.Unlock()
		if !replaced {
			d.logf("the old generation (pid %d, version %s) is gone", o.PID, o.Version)
		}
		for _, p := range o.processes() {
			_ = p.file.Close()
		}
	})
}

// freeRow takes back what an old worker held; its totals stay, and its row may
// be used again.
func (d *daemon) freeRow(w ipc.HandoffWorker) {
	d.rowsOwner.RLock()
	defer d.rowsOwner.RUnlock()
	d.mu.Lock()
	replaced := d.replaced
	d.mu.Unlock()
	if replaced || w.Row == noRow {
		return
	}
	d.shm.TakeBack(w.Row, d.columnsUsed())
	d.shm.SetRowOwner(w.Row, d.shm.RowSlot(w.Row), 0)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.slots {
		if slices.Contains(s.rows, w.Row) {
			delete(s.busy, w.Row)
		}
	}
}

// await returns when all processes of the generation have ended. One that
// outlives its time is killed: its own supervisor, which does that, may be
// hung or dead.
func (o *oldGeneration) await(d *daemon) {
	timer := time.NewTimer(max(0, time.Until(o.deadline)) + 2*d.timing.killGrace)
	defer timer.Stop()
	for _, p := range o.processes() {
		select {
		case <-p.exited:
			continue
		case <-d.takenOver:
			return
		case <-timer.C:
		}
		d.logf("the old generation (pid %d) has outlived its time; killing it", o.PID)
		o.signal(unix.SIGKILL)
		<-p.exited
	}
}

// endOld ends the old generations at once, or at a deadline that is nearer
// than theirs.
func (d *daemon) endOld(deadline time.Time) {
	for _, o := range d.oldGenerations() {
		if time.Now().Before(deadline) {
			d.oldDone.Go(func() { o.endAt(d, deadline) })
			continue
		}
		o.end(d)
	}
}

// end has the generation end its sessions now.
func (o *oldGeneration) end(d *daemon) {
	if !o.supervisor.hasExited() {
		o.supervisor.signal(unix.SIGQUIT)
		return
	}
	o.mu.Lock()
	reclaimed := slices.Clone(o.reclaimed)
	o.mu.Unlock()
	for _, p := range reclaimed {
		d.oldDone.Go(func() { _ = p.drain(context.Background(), d, drainLimit{explicit: true}, false) })
	}
	for _, w := range o.living() {
		if !slices.ContainsFunc(reclaimed, func(p *process) bool { return p.pid == w.worker.PID }) {
			w.signal(unix.SIGKILL)
		}
	}
}

// endAt ends the generation at a deadline unless it is gone before.
func (o *oldGeneration) endAt(d *daemon, deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for _, p := range o.processes() {
		select {
		case <-p.exited:
		case <-timer.C:
			o.end(d)
			return
		}
	}
}

// status describes the generation.
func (o *oldGeneration) status(d *daemon, now time.Time) ipc.OldGeneration {
	s := ipc.OldGeneration{
		PID: o.PID, Version: o.Version, Started: o.Started,
		Replaced: o.Replaced, AgeSec: now.Sub(o.Replaced).Seconds(),
		LeftSec: max(0, o.deadline.Sub(now).Seconds()),
	}
	for _, p := range o.living() {
		w := p.worker
		sessions := d.sessionsOf(w.Row)
		s.Sessions += sessions
		s.Workers = append(s.Workers, ipc.WorkerStatus{
			Slot: w.Slot, PID: w.PID, CPU: w.CPU, State: string(stateDraining),
			Started: w.Started, UptimeSec: now.Sub(w.Started).Seconds(), Sessions: sessions,
		})
	}
	return s
}
