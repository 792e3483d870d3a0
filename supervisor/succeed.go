package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// legacy is what an earlier supervisor of the same daemon, which has died or
// been restarted, has left: the shared memory, and workers that go on serving
// until this one has taken over.
type legacy struct {
	shm     *ipc.Shm
	orphans []*orphan
	// failed are the names of orphans that could not be taken over: they end
	// by themselves.
	failed []string
	// old are workers of supervisors that live, by these: an upgrade had
	// replaced them.
	old map[int][]ipc.HandoffWorker
	// fromManager are the keys of the addresses whose sockets the service
	// manager has passed.
	fromManager map[string]bool
}

// orphan is a worker of an earlier supervisor.
type orphan struct {
	ipc.Orphan
	conn *ipc.Conn
	pid  int
	// memory identifies its shared memory.
	memory uint64
}

const (
	// orphanPatience bounds the search for orphans that are known to live, and
	// the answer of one.
	orphanPatience = 3 * time.Second
	orphanRetry    = 20 * time.Millisecond
	// maxOrphanSockets bounds the sockets one orphan may send.
	maxOrphanSockets = config.MaxServices * maxWorkers
)

// countersStoreName is the name of the shared memory in the store.
const countersStoreName = config.StoredPrefix + "counters"

// inherit takes over what this process was started with and what an earlier
// supervisor has left.
func (d *daemon) inherit() (err error) {
	if s := d.options.Successor; s != nil {
		return d.succeedTo(s)
	}
	if d.inherited.sockets, err = systemd.Inherited(); err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	d.store.adopted(d.inherited.sockets)
	d.findLegacy()
	d.shm = d.legacy.shm
	if d.shm == nil {
		if d.shm, err = ipc.CreateShm(); err != nil {
			d.abandonOrphans()
			return err
		}
	}
	d.columns = newColumns(d.shm)
	d.restoreSlots()
	return nil
}

// findLegacy collects what an earlier supervisor has left. The sockets go to
// the inheritance, each once. The workers it knew to be alive have a moment to
// notice that their supervisor has gone; one that does not is hung.
func (d *daemon) findLegacy() {
	for _, s := range d.inherited.take(func(s systemd.Socket) bool { return s.Name == countersStoreName }) {
		d.takeMemory(s.FD)
	}
	d.legacy.fromManager = d.inherited.unitAddresses()
	deadline := time.Now().Add(orphanPatience)
	settled := time.Now()
	if d.controlLeftBehind() {
		settled = settled.Add(orphanSettled)
	}
	var strangers map[string]error
	defer func() {
		for name, err := range strangers {
			d.giveOrphanUp(name, err)
		}
	}()
	for {
		strangers = d.greetOrphans(deadline)
		late := d.lateOrphans()
		if len(late) == 0 {
			if d.legacy.shm == nil && time.Now().Before(settled) {
				time.Sleep(orphanRetry)
				continue
			}
			break
		}
		if time.Now().After(deadline) {
			d.endLate(late)
			break
		}
		time.Sleep(orphanRetry)
	}
}

// controlLeftBehind says whether there is a control socket that nobody may
// answer on: that of a supervisor which has been killed, perhaps a moment ago.
func (d *daemon) controlLeftBehind() bool {
	return slices.ContainsFunc(d.earlierControlPaths(), func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode()&os.ModeSocket != 0
	})
}

// takeMemory goes on with the shared memory of an earlier supervisor, unless
// there is one already; it uses fd up.
func (d *daemon) takeMemory(fd int) {
	if d.legacy.shm == nil {
		shm, err := ipc.AdoptShm(fd)
		if err == nil {
			d.legacy.shm = shm
			return
		}
		d.logf("the counters of the supervisor before cannot be continued: %v", err)
	}
	_ = unix.Close(fd)
}

// giveOrphanUp notes that an orphan cannot be taken over.
func (d *daemon) giveOrphanUp(name string, why error) {
	d.legacy.failed = append(d.legacy.failed, name)
	d.logf("warning: a worker of the supervisor before, at %s, cannot be taken over, and ends by itself: %v", name, why)
}

// greetOrphans connects to the orphans that wait, and returns those of other
// users that nothing vouches for yet.
func (d *daemon) greetOrphans(deadline time.Time) (strangers map[string]error) {
	strangers = map[string]error{}
	for _, path := range d.earlierControlPaths() {
		names, err := ipc.OrphanNames(ipc.Family(path))
		if err != nil {
			d.logf("warning: workers of a supervisor before cannot be looked for: %v", err)
			return strangers
		}
		for _, name := range names {
			if slices.Contains(d.legacy.failed, name) {
				continue
			}
			err := d.greetOrphan(name, deadline)
			switch {
			case err == nil:
			case errors.Is(err, errOtherUser) && d.legacy.shm == nil:
				strangers[name] = err // another one may bring the memory that vouches for it
			default:
				d.giveOrphanUp(name, err)
			}
		}
	}
	return strangers
}

// earlierControlPaths are where the earlier supervisor may have had its control
// socket: the configuration may have another path now.
func (d *daemon) earlierControlPaths() []string {
	paths := controlPaths(d.startConfig.Control)
	d.inherited.mu.Lock()
	defer d.inherited.mu.Unlock()
	for _, s := range d.inherited.sockets {
		if s.Name == controlStoreName && !slices.Contains(paths, s.Path) {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

func (d *daemon) greetOrphan(name string, deadline time.Time) error {
	o, err := d.meetOrphan(name, deadline, d.takeMemory, d.inheritFrom)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil // it ends, or has another successor
	}
	if err == nil {
		d.legacy.orphans = append(d.legacy.orphans, o)
	}
	return err
}

// meetOrphan connects to an orphan and reads what it is and has: memory gets the
// descriptor of its shared memory, sockets the messages with its listening
// sockets. ECONNREFUSED is the error of one that is no orphan. One of a user that
// workers do not have now (setuid has changed) must show that it has the shared
// memory, which only workers of this daemon are given.
func (d *daemon) meetOrphan(name string, deadline time.Time, memory func(fd int), sockets func(*ipc.Message)) (*orphan, error) {
	conn, peer, err := ipc.DialOrphan(name)
	if err != nil {
		return nil, err
	}
	o := &orphan{conn: conn, pid: peer.PID}
	err = conn.SetRecvDeadline(deadline.Add(orphanPatience))
	if err == nil {
		err = o.introduced(d.believes(peer), memory, sockets)
	}
	if err == nil {
		err = conn.SetRecvDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return o, nil
}

// believes returns what a process that says it is an orphan must pass, given the
// memory it has sent.
func (d *daemon) believes(peer ipc.Peer) func(memory int) error {
	return func(memory int) error {
		uid := workerUID(d.startConfig, os.Geteuid())
		if peer.UID == 0 || peer.UID == os.Geteuid() || peer.UID == uid || d.hasMemory(memory) {
			return nil
		}
		return fmt.Errorf("process %d: %w (user %d)", peer.PID, errOtherUser, peer.UID)
	}
}

// errOtherUser is the error of a worker that may be anyone's.
var errOtherUser = errors.New("it is one of another user, and does not have the daemon's shared memory")

// hasMemory says whether fd is the shared memory of this daemon, or of the
// supervisor before.
func (d *daemon) hasMemory(fd int) bool {
	shm := d.shm
	if shm == nil {
		shm = d.legacy.shm
	}
	var own, other unix.Stat_t
	return shm != nil && unix.Fstat(shm.FD(), &own) == nil && unix.Fstat(fd, &other) == nil &&
		own.Dev == other.Dev && own.Ino == other.Ino
}

// introduced reads what an orphan is and has; believed gets its shared memory
// before anything of it counts.
func (o *orphan) introduced(believed func(memory int) error, memory func(fd int), sockets func(*ipc.Message)) error {
	m, err := o.conn.Recv()
	if err != nil {
		return err
	}
	defer m.CloseFDs()
	if err := m.Decode(&o.Orphan); err != nil {
		return err
	}
	if m.Type != ipc.MsgOrphan || o.Version != ipc.Version || len(m.FDs) != 1 {
		return fmt.Errorf("first message: type %d, version %d, %d descriptors", m.Type, o.Version, len(m.FDs))
	}
	o.memory = identity(m.FDs[0])
	if err := believed(m.FDs[0]); err != nil {
		return err
	}
	memory(m.FDs[0])
	m.FDs = nil
	for range maxOrphanSockets {
		m, err := o.conn.Recv()
		if err != nil {
			return err
		}
		if m.Type == ipc.MsgOrphanEnd {
			return nil
		}
		sockets(m)
		m.CloseFDs()
	}
	return errors.New("it sends too many sockets")
}

// inheritFrom takes the sockets of a message that are not there yet, by what
// the kernel says of them. Those of socket units are needed only where the
// service manager has not passed any for the address.
func (d *daemon) inheritFrom(m *ipc.Message) {
	var body ipc.Files
	if m.Type != ipc.MsgFiles || m.Decode(&body) != nil || len(body.Entries) != len(m.FDs) {
		return
	}
	for i, e := range body.Entries {
		s, err := systemd.Describe(m.FDs[i], "")
		if err != nil || !servable(s) {
			continue
		}
		index, shared := e.Slot, false
		if e.Slot < 0 {
			index, shared = -1-e.Slot, true
		}
		switch {
		case !e.Kept:
			s.Name = storeName(socketKey(s), shared, index)
		case d.legacy.fromManager[socketKey(s)]:
			continue
		default:
			s.Name = e.Unit
		}
		if d.inherited.addNew(s) {
			m.FDs[i] = -1
		}
	}
	m.FDs = slices.DeleteFunc(m.FDs, func(fd int) bool { return fd < 0 })
}

// socketKey is the config.Endpoint.Key of a socket's address.
func socketKey(s systemd.Socket) string {
	return endpointOf(s).Key()
}

// lateOrphans are the workers that were alive when the shared memory was last
// written, are so still, and have not been heard of.
func (d *daemon) lateOrphans() map[int]int {
	late := map[int]int{}
	if d.legacy.shm == nil {
		return late
	}
	replaced := d.replacedSupervisors()
	for row := range d.legacy.shm.Rows() {
		pid := d.legacy.shm.RowPID(row)
		if pid > 0 && !d.hasAnswered(pid) && isWorker(pid) && d.legacy.supervisorOf(row, replaced) == 0 {
			late[row] = pid
		}
	}
	return late
}

// supervisorOf returns the supervisor of the worker of a row, 0 for an orphan:
// one that an upgrade has replaced, which lives as long as its workers drain, or
// one that has not taken over from a dead one yet, whose child the worker is.
func (l *legacy) supervisorOf(row int, replaced []int) int {
	master := l.shm.RowSupervisor(row)
	if slices.Contains(replaced, master) || master == parentOf(l.shm.RowPID(row)) {
		return master
	}
	return 0
}

// replacedSupervisors are those that an upgrade has replaced.
func (d *daemon) replacedSupervisors() []int {
	var all []int
	for _, path := range d.earlierControlPaths() {
		pids, err := ipc.Replaced(ipc.Family(path))
		if err != nil {
			d.logf("warning: replaced supervisors cannot be looked for: %v", err)
		}
		all = append(all, pids...)
	}
	return all
}

// hasAnswered says whether a worker has been heard of, for good or bad.
func (d *daemon) hasAnswered(pid int) bool {
	return slices.ContainsFunc(d.legacy.orphans, func(o *orphan) bool { return o.pid == pid }) ||
		slices.ContainsFunc(d.legacy.failed, func(name string) bool { return strings.HasSuffix(name, "/"+strconv.Itoa(pid)) })
}

// isWorker says whether a process is a worker of some daemon.
func isWorker(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && strings.HasPrefix(string(line), workerName)
}

// ownerOf returns the user of a process, -1 when it is gone.
func ownerOf(pid int) int {
	var st unix.Stat_t
	if unix.Stat(filepath.Join("/proc", strconv.Itoa(pid)), &st) != nil {
		return -1
	}
	return int(st.Uid)
}

// endLate ends workers that do not answer: nobody could tell them to drain. The
// numbers come from memory that workers write to, so that only those of the
// present user are.
func (d *daemon) endLate(late map[int]int) {
	own := workerUID(d.startConfig, os.Geteuid())
	for _, pid := range late {
		if uid := ownerOf(pid); uid != own && uid != 0 {
			d.logf("worker pid %d of the supervisor before does not answer, and ends by itself: it is one of user %d", pid, uid)
			continue
		}
		d.logf("worker pid %d of the supervisor before does not answer; killing it", pid)
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
			_ = p.Release()
		}
	}
}

// own makes what came from an earlier supervisor this one's: from here on it
// closes what it gives up.
func (d *daemon) own() {
	for _, l := range d.inForce().listeners {
		l.borrowed = false
	}
	d.control.borrowed = false
	d.closeUnclaimed()
	d.syncStore()
	if text := d.storeShortage(); text != "" {
		d.logf("warning: %s", text)
	}
}

// abandonOrphans gives the workers of an earlier supervisor up: they go on
// serving, and wait for another successor.
func (d *daemon) abandonOrphans() {
	for _, o := range d.legacy.orphans {
		_ = o.conn.Close()
	}
	d.legacy.orphans = nil
}

// restoreSlots gives each slot the rows of the earlier one in its place, and
// the workers that are still there. The rest of the rows is free.
func (d *daemon) restoreSlots() {
	if d.legacy.shm == nil {
		return
	}
	d.makeRoom()
	memory := identity(d.shm.FD())
	owner, replaced := map[int]*orphan{}, d.replacedSupervisors()
	for _, o := range d.legacy.orphans {
		if o.memory == memory && o.Row >= 0 && o.Row < d.shm.Rows() && owner[o.Row] == nil {
			owner[o.Row] = o
		}
	}
	for row := range d.shm.Rows() {
		index := d.shm.RowSlot(row)
		s := d.slots[index%len(d.slots)]
		s.rows = append(s.rows, row)
		if o := owner[row]; o != nil {
			s.busy[row] = true
			d.lastGen = max(d.lastGen, o.Gen)
			continue
		}
		if d.legacy.attended(row, s, replaced) {
			s.busy[row] = true
			continue
		}
		d.shm.TakeBack(row, d.columnsUsed())
		d.shm.SetRowOwner(row, index, 0)
	}
	for _, o := range d.legacy.orphans {
		if owner[o.Row] != o {
			o.Row = noRow
		}
	}
}

// attended says whether a row belongs to a worker that has a supervisor still,
// and notes it.
func (l *legacy) attended(row int, s *slot, replaced []int) bool {
	pid := l.shm.RowPID(row)
	if pid == 0 {
		return false
	}
	master := l.supervisorOf(row, replaced)
	if master == 0 {
		return false
	}
	if l.old == nil {
		l.old = map[int][]ipc.HandoffWorker{}
	}
	l.old[master] = append(l.old[master], ipc.HandoffWorker{Slot: s.index, Row: row, PID: pid, CPU: s.cpu, Started: time.Now()})
	return true
}

// watchOld watches the daemons that an upgrade has replaced, before the
// supervisor that followed them died.
func (d *daemon) watchOld() {
	now, replaced := time.Now(), d.replacedSupervisors()
	for master, workers := range d.legacy.old {
		pidfd, err := unix.PidfdOpen(master, 0)
		if err != nil {
			continue // its workers wait for a successor, and end by themselves
		}
		o := ipc.HandoffOld{PID: master, Version: "unknown", Started: now, Replaced: now, LeftMS: d.drainTimeout().Milliseconds()}
		pidfds := []int{pidfd}
		for _, w := range workers {
			if pidfd, err = unix.PidfdOpen(w.PID, 0); err != nil {
				d.freeRow(w)
				continue
			}
			o.Workers, pidfds = append(o.Workers, w), append(pidfds, pidfd)
		}
		g := newOldGeneration(o, now, pidfds)
		d.addOldGeneration(g)
		if !slices.Contains(replaced, master) {
			d.oldDone.Go(func() { d.awaitUndecided(g) })
		}
	}
	d.legacy.old = nil
}

// awaitUndecided ends a supervisor on trial that leaves its workers to nobody: it
// hangs. They are taken over then.
func (d *daemon) awaitUndecided(o *oldGeneration) {
	select {
	case <-o.supervisor.exited:
	case <-d.takenOver:
	case <-d.running.Done():
	case <-time.After(d.timing.undecided):
		d.logf("the daemon that was on trial (pid %d) does not give way; killing it", o.PID)
		o.supervisor.signal(unix.SIGKILL)
	}
}

// makeRoom ends the oldest workers when, after many restarts, too few rows are
// left for those that are to be started and replaced.
func (d *daemon) makeRoom() {
	surplus := len(d.legacy.orphans) - (ipc.MaxRows - 2*len(d.slots))
	if surplus <= 0 {
		return
	}
	slices.SortStableFunc(d.legacy.orphans, func(a, b *orphan) int { return cmp.Compare(a.Gen, b.Gen) })
	for _, o := range d.legacy.orphans[:surplus] {
		d.logf("worker pid %d of an early supervisor is ended: too many are left to be counted", o.pid)
		if p, err := os.FindProcess(o.pid); err == nil {
			_ = p.Kill()
			_ = p.Release()
		}
		_ = o.conn.Close()
	}
	d.legacy.orphans = d.legacy.orphans[surplus:]
}

// noRow is the row of a worker whose counters are elsewhere.
const noRow = -1

// watchOrphans makes orphans processes that leave their slots.
func (d *daemon) watchOrphans(orphans []*orphan) []*process {
	var procs []*process
	for _, o := range orphans {
		proc, err := os.FindProcess(o.pid)
		if err != nil {
			_ = o.conn.Close()
			continue
		}
		p := o.process(d, proc)
		d.supervise(p)
		d.mu.Lock()
		p.slot.leaving[p] = true
		d.mu.Unlock()
		d.slotsDone.Add(1)
		go p.readOrphan()
		go d.awaitOrphan(p)
		procs = append(procs, p)
	}
	return procs
}

// supervise notes that a worker has this process as its supervisor now.
func (d *daemon) supervise(p *process) {
	d.rowsOwner.RLock()
	defer d.rowsOwner.RUnlock()
	if p.row != noRow && !d.isReplaced() {
		d.shm.SetRowOwner(p.row, d.shm.RowSlot(p.row), p.pid)
	}
}

// process describes an orphan as a process that leaves its slot.
func (o *orphan) process(d *daemon, proc *os.Process) *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &process{
		slot: d.slots[max(0, o.Slot)%len(d.slots)], row: o.Row, pid: o.pid, proc: proc, conn: o.conn,
		started: time.Now(), replies: make(chan *ipc.Message, 16), exited: make(chan struct{}),
		held: map[string]*listener{}, gen: o.Gen, state: stateDraining,
	}
	for _, s := range d.slots {
		if o.Row != noRow && slices.Contains(s.rows, o.Row) {
			p.slot = s
		}
	}
	p.loopThread.Store(int64(o.Thread))
	return p
}

// readOrphan passes messages on until the process has ended: this one is not
// its parent, and the end of its socket is all there is to see.
func (p *process) readOrphan() {
	for {
		m, err := p.conn.Recv()
		if errors.Is(err, ipc.ErrFrame) {
			p.kill()
			continue
		}
		if err != nil {
			break
		}
		m.CloseFDs()
		if m.Type == ipc.MsgMoved {
			p.onMoved(m)
			continue
		}
		select {
		case p.replies <- m:
		default:
		}
	}
	p.exitText = "it has ended"
	close(p.exited)
	_ = p.conn.Close()
	p.stopKillTimer()
	_ = p.proc.Release()
}

func (d *daemon) awaitOrphan(p *process) {
	defer d.slotsDone.Done()
	<-p.exited
	d.leave(p)
	d.logf("worker pid %d of another supervisor has ended", p.pid)
}

// unowned lists the services whose sockets no service has taken: only workers of
// another supervisor serve them.
func (d *daemon) unowned() []string {
	left := d.inherited.addresses()
	list := slices.DeleteFunc(d.columns.ids(), func(id string) bool { return !left[id[strings.IndexByte(id, '@')+1:]] })
	return list[:min(len(list), maxUnowned)]
}

// maxUnowned bounds the services in one message.
const maxUnowned = 1024

// drainOrphans has workers of another supervisor drain, and hand their sessions
// over: this one's workers accept. unowned lists services that only they have.
func (d *daemon) drainOrphans(procs []*process, unowned ...string) {
	if len(procs) == 0 {
		return
	}
	limit := drainLimit{timeout: d.drainTimeout()}
	d.logf("%s of another supervisor drain, for up to %v", count(len(procs), "worker", "workers"), limit.timeout)
	each(procs, func(_ int, p *process) {
		if err := p.drain(context.Background(), d, limit, false, unowned...); err != nil {
			d.logf("worker pid %d does not drain: %v; killing it", p.pid, err)
			p.kill()
			return
		}
		// Places under maxconn move only within one shared memory.
		if p.row != noRow {
			d.drained.Go(func() { d.moveAway(p) })
		}
	})
}
