package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/systemd"
)

// handout is everything a successor is given: the manifest and the descriptors
// in the order it prescribes. Process descriptors are owned, sockets are not.
type handout struct {
	manifest ipc.Manifest
	fds      []int
	owned    []int
}

func (h *handout) close() {
	for _, fd := range h.owned {
		_ = unix.Close(fd)
	}
}

// prepareHandout describes the daemon. Rows of the shared memory that are idle
// are lent to the successor until takeBackRows. The caller holds daemon.change.
func (d *daemon) prepareHandout() (*handout, error) {
	current := d.inForce()
	h := &handout{manifest: ipc.Manifest{
		Version: d.options.Version, PID: os.Getpid(), Started: d.started,
		Generation: d.lastGen, Services: serviceIDs(current.cfg),
	}}
	if err := h.addSockets(d, current); err != nil {
		return nil, err
	}
	h.manifest.Columns, h.manifest.ColumnsUsed, h.manifest.Past = d.columns.export()
	h.manifest.Slots = d.lendRows()
	own, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	h.fds, h.owned = append(h.fds, own), append(h.owned, own)
	if err := h.addWorkers(d); err != nil {
		h.close()
		return nil, err
	}
	if err := h.addOld(d); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *handout) addSockets(d *daemon, s *snapshot) error {
	for _, l := range s.listeners {
		for i, fd := range l.sockets() {
			socket, err := describeHandoff(fd)
			if err != nil {
				return fmt.Errorf("socket of %s: %w", l.key, err)
			}
			socket.Kind, socket.Key, socket.Slot = l.handoffKind(), l.key, i
			if l.shared {
				socket.Slot = -1
			}
			socket.File = l.lost || l.file != socketFile{}
			socket.Backlog, socket.Options = l.backlog, l.options
			if l.kept {
				socket.Unit = l.units[i].Name
			}
			_, socket.Stored = d.store.identities[storeName(l.key, l.shared, i)]
			h.addSocket(socket, fd)
		}
	}
	socket, err := describeHandoff(d.control.fd)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	socket.Kind, socket.Key, socket.Slot = ipc.HandoffControl, controlStoreName, -1
	socket.File = d.control.file != socketFile{}
	_, socket.Stored = d.store.identities[controlStoreName]
	h.addSocket(socket, d.control.fd)
	return nil
}

// handoffKind is the kind of the listener's sockets in a handoff.
func (l *listener) handoffKind() ipc.HandoffKind {
	if l.datagrams() {
		return ipc.HandoffDatagram
	}
	return ipc.HandoffListener
}

func (h *handout) addSocket(s ipc.HandoffSocket, fd int) {
	h.manifest.Sockets = append(h.manifest.Sockets, s)
	h.fds = append(h.fds, fd)
}

// describeHandoff says what the kernel knows of a socket.
func describeHandoff(fd int) (ipc.HandoffSocket, error) {
	s, err := systemd.Describe(fd, "")
	if err != nil {
		return ipc.HandoffSocket{}, err
	}
	return handoffSocket(s), nil
}

func handoffSocket(s systemd.Socket) ipc.HandoffSocket {
	h := ipc.HandoffSocket{Network: s.Network, Address: s.Path, Listening: s.Listening, V6Only: s.V6Only, ReusePort: s.ReusePort}
	if s.Addr.IsValid() {
		h.Address = s.Addr.String()
	}
	return h
}

// addWorkers adds the processes that are alive. One that has just ended is
// waited for: its row must be accounted for by one side only.
func (h *handout) addWorkers(d *daemon) error {
	for deadline := time.Now().Add(d.timing.exchange); ; time.Sleep(10 * time.Millisecond) {
		err := h.tryWorkers(d)
		if err == nil || !errors.Is(err, errEnded) || time.Now().After(deadline) {
			return err
		}
	}
}

func (h *handout) tryWorkers(d *daemon) error {
	var workers []ipc.HandoffWorker
	var pidfds []int
	for _, p := range d.allProcesses() {
		pidfd, err := p.pidfd()
		if err != nil {
			for _, fd := range pidfds {
				_ = unix.Close(fd)
			}
			return fmt.Errorf("worker %d (pid %d): %w", p.slot.index, p.pid, err)
		}
		workers = append(workers, d.describeWorker(p))
		pidfds = append(pidfds, pidfd)
	}
	h.manifest.Workers = workers
	h.fds = append(h.fds, pidfds...)
	h.owned = append(h.owned, pidfds...)
	return nil
}

func (d *daemon) describeWorker(p *process) ipc.HandoffWorker {
	return ipc.HandoffWorker{Slot: p.slot.index, Row: p.row, PID: p.pid, CPU: d.cpuOf(p.slot), Started: p.started}
}

// pidfd returns a new process descriptor of the worker (pidfd_open(2)).
func (p *process) pidfd() (int, error) {
	fd, dupErr := -1, error(nil)
	err := p.proc.WithHandle(func(handle uintptr) {
		fd, dupErr = unix.FcntlInt(handle, unix.F_DUPFD_CLOEXEC, 0)
	})
	select {
	case <-p.exited:
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return -1, errEnded
	default:
	}
	if err == nil && dupErr == nil {
		return fd, nil
	}
	if errors.Is(err, os.ErrProcessDone) {
		return -1, errEnded
	}
	return -1, errors.Join(err, os.NewSyscallError("fcntl", dupErr))
}

// addOld adds the daemons this one has replaced.
func (h *handout) addOld(d *daemon) error {
	for _, o := range d.oldGenerations() {
		if err := h.addOldGeneration(o); err != nil {
			return fmt.Errorf("old generation (pid %d): %w", o.PID, err)
		}
	}
	return nil
}

func (h *handout) addOldGeneration(o *oldGeneration) error {
	described, pidfds := o.describe()
	copies := make([]int, 0, len(pidfds))
	for _, fd := range pidfds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			for _, c := range copies {
				_ = unix.Close(c)
			}
			return os.NewSyscallError("fcntl", err)
		}
		copies = append(copies, dup)
	}
	h.manifest.Old = append(h.manifest.Old, described)
	h.fds = append(h.fds, copies...)
	h.owned = append(h.owned, copies...)
	return nil
}

// memfd returns the manifest as a sealed memfd.
func (h *handout) memfd() (*os.File, error) {
	data, err := json.Marshal(h.manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return ipc.WriteMemfd("3proxyd-handoff", data)
}

// lentRows are the rows of the shared memory that a successor may use.
type lentRows struct {
	// idle are rows of the own slots, by slot; they are marked busy
	// meanwhile.
	idle map[*slot][]int
	// used is the number of rows in use when they were lent; all beyond
	// belong to the successor.
	used int
}

// lendRows gives the idle rows away: until takeBackRows a process can only be
// started in the row of one that has ended meanwhile.
func (d *daemon) lendRows() []ipc.HandoffSlot {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lent = &lentRows{idle: map[*slot][]int{}, used: d.shm.Rows()}
	list := make([]ipc.HandoffSlot, len(d.slots))
	for i, s := range d.slots {
		for _, row := range s.rows {
			if s.busy[row] {
				list[i].Busy = append(list[i].Busy, row)
				continue
			}
			list[i].Idle = append(list[i].Idle, row)
			d.lent.idle[s] = append(d.lent.idle[s], row)
			s.busy[row] = true
		}
	}
	return list
}

// lentRows lists the rows that are lent.
func (d *daemon) lentRows() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lent == nil {
		return nil
	}
	var all []int
	for _, idle := range d.lent.idle {
		all = append(all, idle...)
	}
	for row := d.lent.used; row < d.shm.Rows(); row++ {
		all = append(all, row)
	}
	return all
}

// lentWorkers are the processes that were last known to use a lent row.
func (d *daemon) lentWorkers() []int {
	var pids []int
	for _, row := range d.lentRows() {
		if pid := d.shm.RowPID(row); pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// takeBackRows ends the lending after the successor, which had columns columns
// in use, and all of its workers but orphans have ended. What they have counted
// stays.
func (d *daemon) takeBackRows(columns int, orphans []*orphan) {
	lives := map[int]bool{}
	for _, o := range orphans {
		lives[o.Row] = true
	}
	if len(orphans) > 0 {
		d.columns.restore()
	}
	rows := d.shm.Rows()
	for _, row := range d.lentRows() {
		if lives[row] {
			continue
		}
		d.shm.TakeBack(row, max(columns, d.columnsUsed()))
		d.shm.SetRowOwner(row, d.shm.RowSlot(row), 0)
	}
	d.columns.forget(rows, columns)
	d.mu.Lock()
	defer d.mu.Unlock()
	lent := d.lent
	d.lent = nil
	if lent == nil {
		return
	}
	for s, idle := range lent.idle {
		for _, row := range idle {
			s.busy[row] = lives[row]
		}
	}
	for row := lent.used; row < rows; row++ {
		s := d.slots[row%len(d.slots)]
		s.rows = append(s.rows, row)
		s.busy[row] = lives[row]
	}
}
