package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// succession is the part of a daemon that takes over from another one.
type succession struct {
	*Successor
	// handed are the predecessor's listeners that no service has taken yet.
	handed map[string]*listener
	// failed gets the reason why this daemon should not take over.
	failed chan error
	// messages are those of the predecessor; closed at its end.
	messages chan *ipc.Message
	released chan struct{}
	// accepts says that the workers may have accepted connections.
	accepts bool
	// unused are the keys of listeners that no service wants.
	unused []string
	// present are the predecessor's workers, see presence.
	present map[int]*foreignProcess
}

// cancelWait is how long a successor that has failed waits for the
// predecessor's word: its workers have to accept again before.
const cancelWait = 10 * time.Second

// succeedTo puts what was received in the place of what a daemon makes for
// itself.
func (d *daemon) succeedTo(s *Successor) error {
	m := &s.manifest
	d.succession = &succession{
		Successor: s, handed: s.listeners(), failed: make(chan error, 1),
		messages: make(chan *ipc.Message, 16), released: make(chan struct{}),
		present: map[int]*foreignProcess{},
	}
	d.accepting = ipc.Accept{Paused: true, HoldDatagrams: true, Lent: true}
	d.lastGen = m.Generation
	d.shm = s.shm
	d.columns = newColumns(d.shm)
	if err := d.columns.succeed(m.Columns, m.ColumnsUsed, m.Past); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	d.takeRows(m.Slots)
	d.inherited.sockets = append(s.control(), d.unwanted()...)
	d.store.adopted(s.stored())
	for i, w := range m.Workers {
		d.succession.present[presence(w)] = newForeign(w, s.workers[i])
	}
	return nil
}

// takeRows gives the slots the rows of the predecessor's. Slots that are not
// configured any more are retired: others serve their sockets.
func (d *daemon) takeRows(slots []ipc.HandoffSlot) {
	active := len(d.slots)
	for i := active; i < len(slots); i++ {
		d.slots = append(d.slots, newRetiredSlot(i, d.slots[i%active].cpu))
	}
	for i, rows := range slots {
		s := d.slots[i]
		s.rows = append(s.rows, rows.Idle...)
		for _, row := range rows.Busy {
			s.rows = append(s.rows, row)
			s.busy[row] = true
		}
	}
}

// unwanted takes the sockets of listeners no service has by its key: a service
// may still want them by their address.
func (d *daemon) unwanted() []systemd.Socket {
	wanted := map[string]bool{}
	for _, s := range d.startConfig.Services {
		wanted[s.Listen.Key()] = true
	}
	var list []systemd.Socket
	for i, socket := range d.succession.sockets {
		what := d.succession.manifest.Sockets[i]
		if what.Kind != ipc.HandoffControl && servable(socket) && !wanted[what.Key] {
			list = append(list, socket)
			delete(d.succession.handed, what.Key)
		}
	}
	return list
}

// handedListener returns the listener of a service that was handed over, nil
// when there is none.
func (d *daemon) handedListener(s *config.Service) *listener {
	if d.succession == nil {
		return nil
	}
	key := s.Listen.Key()
	l := d.succession.handed[key]
	if l == nil {
		return nil
	}
	delete(d.succession.handed, key)
	locate(&s.Listen, l.units)
	l.endpoint = s.Listen
	return l
}

// claimPIDFile writes the pidfile, which has to wait in an upgrade. Where a full
// disk forbids it, the workers of a supervisor before are not left alone for it.
func (d *daemon) claimPIDFile() error {
	if d.succession != nil {
		return nil
	}
	err := writePIDFile(d.startConfig.PIDFile)
	if err != nil && len(d.legacy.orphans) > 0 {
		d.logf("warning: %v; the daemon starts all the same, for the workers of the supervisor before", err)
		return nil
	}
	return err
}

// markBorrowed notes which listeners consist of sockets the predecessor has as
// well, and closes those that no service has taken.
func (d *daemon) markBorrowed() {
	if d.succession == nil {
		return
	}
	var unused []string
	handed := map[int]string{}
	for i, socket := range d.succession.sockets {
		handed[socket.FD] = d.succession.manifest.Sockets[i].Key
	}
	for _, l := range d.inForce().listeners {
		for _, fd := range l.sockets() {
			if _, ok := handed[fd]; ok {
				l.borrowed = true
				delete(handed, fd)
			}
		}
	}
	for _, s := range d.inherited.take(func(systemd.Socket) bool { return true }) {
		unused = append(unused, handed[s.FD])
		_ = unix.Close(s.FD)
	}
	slices.Sort(unused)
	d.succession.unused = slices.Compact(unused)
}

// trialFailed says that the daemon should not take over, if it has not yet.
func (d *daemon) trialFailed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.succession == nil || d.main.Load() {
		return
	}
	select {
	case d.succession.failed <- err:
	default:
	}
}

// prove goes through the trial and returns nil when the daemon has taken over.
func (d *daemon) prove(ctx context.Context, signals <-chan os.Signal) error {
	s := d.succession
	go s.read()
	// A predecessor that is dead is noticed by the end of its messages.
	_ = s.conn.Send(ipc.MsgHandoffReady, 0, d.readiness())
	var failure error
	var stopped bool
	var giveUp <-chan time.Time
	fail := func(err error) {
		if failure == nil {
			failure, giveUp = err, time.After(cancelWait)
			d.logf("the upgrade is given up: %v", err)
			s.Fail(err)
		}
	}
	for {
		select {
		case m, ok := <-s.messages:
			if !ok && stopped {
				return d.retreat(failure, d.drainTimeout())
			}
			if !ok {
				return d.takeOverAlone()
			}
			done, err := d.obey(m)
			m.CloseFDs()
			if done {
				return err
			}
			if err != nil {
				fail(err)
			}
		case err := <-s.failed:
			fail(err)
		case sig := <-signals:
			if sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGQUIT {
				stopped = true
				fail(fmt.Errorf("it was told to stop (%v)", sig))
			}
		case <-ctx.Done():
			return d.retreat(ctx.Err(), 0)
		case <-giveUp:
			return d.giveWay(failure)
		}
	}
}

// read passes the predecessor's messages on until its end.
func (s *succession) read() {
	defer close(s.messages)
	for {
		m, err := s.conn.Recv()
		if errors.Is(err, ipc.ErrFrame) {
			continue
		}
		if err != nil {
			return
		}
		s.messages <- m
	}
}

// obey carries out one message; done says that the trial is over, with err.
func (d *daemon) obey(m *ipc.Message) (done bool, err error) {
	s := d.succession
	switch m.Type {
	case ipc.MsgHandoffGo:
		s.accepts = true
		d.setAccepting(ipc.Accept{HoldDatagrams: true, Lent: true})
		d.kickAdoption()
		return false, d.serving()
	case ipc.MsgHandoffCheck:
		return false, d.serving()
	case ipc.MsgHandoffProcess:
		return false, s.addProcess(m)
	case ipc.MsgHandoffTakeover:
		var body ipc.HandoffTakeover
		if err := m.Decode(&body); err != nil {
			return false, err
		}
		if err := writePIDFile(d.startConfig.PIDFile); err != nil {
			return false, err
		}
		d.takeOver(time.Duration(body.LeftMS) * time.Millisecond)
		_ = s.conn.Send(ipc.MsgHandoffTakenOver, 0, nil)
		go d.followUp()
		return true, nil
	case ipc.MsgHandoffCancel:
		var body ipc.HandoffCancel
		_ = m.Decode(&body)
		why := errors.New(body.Reason)
		if body.Leave {
			return true, d.giveWay(why)
		}
		return true, d.retreat(why, time.Duration(body.TimeoutMS)*time.Millisecond)
	}
	return false, fmt.Errorf("the old daemon sends message type %d", m.Type)
}

// serving answers that every worker accepts, after making sure of it.
func (d *daemon) serving() error {
	if err := d.checkAccepting(); err != nil {
		return fmt.Errorf("its workers do not answer: %w", err)
	}
	_ = d.succession.conn.Send(ipc.MsgHandoffServing, 0, nil)
	return nil
}

// addProcess notes a worker that the predecessor has started.
func (s *succession) addProcess(m *ipc.Message) error {
	var w ipc.HandoffWorker
	if err := m.Decode(&w); err != nil {
		return err
	}
	if w.Row < 0 || w.Row >= ipc.MaxRows || len(m.FDs) != 1 {
		return fmt.Errorf("worker %d has row %d and %d descriptors", w.PID, w.Row, len(m.FDs))
	}
	if old := s.present[presence(w)]; old != nil {
		_ = old.file.Close()
	}
	s.present[presence(w)] = newForeign(w, m.FDs[0])
	m.FDs = nil
	return nil
}

// presence is the key of a worker: its row, which a later one may take over, or
// a number of its own for one that has no row.
func presence(w ipc.HandoffWorker) int {
	if w.Row == noRow {
		return -w.PID
	}
	return w.Row
}

// readiness says what the configuration has made of what was handed over.
func (d *daemon) readiness() ipc.HandoffReady {
	current := d.inForce()
	r := ipc.HandoffReady{
		Generation: current.gen, ColumnsUsed: d.columnsUsed(), Unused: d.succession.unused, Own: d.ownServices(),
		Family: ipc.Family(d.control.path), Warnings: boundDiagnostics(current.warnings),
	}
	before := d.succession.manifest.Services
	for _, id := range serviceIDs(current.cfg) {
		if slices.Contains(before, id) {
			r.Kept = append(r.Kept, id)
		} else {
			r.Added = append(r.Added, id)
		}
	}
	for _, id := range before {
		if !slices.Contains(serviceIDs(current.cfg), id) {
			r.Removed = append(r.Removed, id)
		}
	}
	return r
}

// takeOver makes this the daemon. left is the time the predecessor's sessions
// have.
func (d *daemon) takeOver(left time.Duration) {
	s := d.succession
	d.main.Store(true)
	d.columns.thaw()
	d.own()
	d.setAccepting(ipc.Accept{})
	d.watchPredecessors(left)
	d.freeStaleRows()
	d.warnLate()
	go d.control.serve(d)
	d.mu.Lock()
	d.lastUpgrade = &ipc.UpgradeOutcome{Time: time.Now(), OK: true, Version: d.options.Version, From: s.manifest.Version}
	d.mu.Unlock()
	d.logf("this daemon, version %s, has taken over from process %d, version %s", d.options.Version, s.manifest.PID, s.manifest.Version)
}

// watchPredecessors makes old generations of the predecessor and of those it
// had itself.
func (d *daemon) watchPredecessors(left time.Duration) {
	s, now := d.succession, time.Now()
	for i, o := range s.manifest.Old {
		d.addOldGeneration(newOldGeneration(o, now, s.old[i]))
	}
	// What the predecessor itself has comes by its own will.
	d.attract(d.oldGenerations())
	o := ipc.HandoffOld{Version: s.manifest.Version, PID: s.manifest.PID, Started: s.manifest.Started, Replaced: now, LeftMS: left.Milliseconds()}
	own := newOldGeneration(o, now, []int{s.supervisor})
	for _, p := range s.present {
		own.workers = append(own.workers, p)
	}
	d.addOldGeneration(own)
}

// freeStaleRows gives rows free that belonged to processes which the
// predecessor was only starting.
func (d *daemon) freeStaleRows() {
	known := map[int]bool{}
	for _, p := range d.succession.present {
		known[p.worker.Row] = true
	}
	for _, o := range d.succession.manifest.Old {
		for _, w := range o.Workers {
			known[w.Row] = true
		}
	}
	for _, s := range d.succession.manifest.Slots {
		for _, row := range s.Busy {
			if !known[row] {
				d.freeRow(ipc.HandoffWorker{Row: row})
			}
		}
	}
}

// warnLate does what had to wait until the sockets were the own ones, and keeps
// the warnings.
func (d *daemon) warnLate() {
	current := d.inForce()
	late := append(current.startGrowth(), d.updateListeners(current)...)
	d.sendGrowth(current)
	d.mu.Lock()
	current.warnings = append(current.warnings, late...)
	d.mu.Unlock()
}

// sendGrowth gives workers of slots the predecessor did not have the sockets
// that have been opened for them.
func (d *daemon) sendGrowth(current *snapshot) {
	had := len(d.succession.manifest.Slots)
	for _, p := range d.runningProcesses() {
		if p.slot.index < had {
			continue
		}
		var files []passed
		for i, l := range current.listeners {
			if !l.shared {
				files = append(files, listenerFiles(l, current.cfg.Services[i].ID, p.slot.index)...)
			}
		}
		p.talk.Lock()
		err := p.sendFiles(ipc.MsgAdopt, current.gen, files)
		p.talk.Unlock()
		if err != nil {
			d.logf("worker %d (pid %d) does not take its sockets: %v; killing it", p.slot.index, p.pid, err)
			p.kill()
		}
	}
}

// errLeft is the error of a daemon that leaves its workers to the next one.
var errLeft = errors.New("the workers are left to the next daemon")

// takeOverAlone takes over from a predecessor that has died. Where the service
// manager has noticed that first, it starts a daemon of its own: then this one
// leaves its workers to that one.
func (d *daemon) takeOverAlone() error {
	if !d.claimMain() {
		d.logf("the old daemon (pid %d) has died in the upgrade, and the service manager takes no other process for the main one: the workers serve until the next daemon has taken over",
			d.succession.manifest.PID)
		return errLeft
	}
	d.logf("the old daemon (pid %d) has died in the upgrade: taking over", d.succession.manifest.PID)
	if err := writePIDFile(d.startConfig.PIDFile); err != nil {
		d.logf("%v", err)
	}
	d.takeOver(d.drainTimeout())
	_ = d.succession.conn.Close()
	go d.becomeMain()
	return nil
}

// claimPatience bounds the questions to the service manager about the main
// process.
const claimPatience = 2 * time.Second

// claimMain makes this the main process of the service in the place of the
// predecessor, which has died. It is false when the manager knows of the death,
// and takes this process for none any more. Without an answer nobody else is
// known to come.
func (d *daemon) claimMain() bool {
	if !systemd.Managed() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimPatience)
	defer cancel()
	d.awaitParent()
	main, err := systemd.MainProcess(ctx)
	if err == nil && main == d.succession.manifest.PID {
		_ = systemd.Notify(systemd.MainPID(os.Getpid()))
		_ = systemd.Barrier(claimPatience)
		main, err = systemd.MainProcess(ctx)
	}
	if err != nil {
		d.logf("warning: the service manager does not say which process it takes for the main one: %v", err)
		return true
	}
	return main == os.Getpid()
}

// followUp takes the predecessor's last messages: the launcher has gone, and
// the sessions it hands over.
func (d *daemon) followUp() {
	s := d.succession
	defer s.conn.Close()
	for m := range s.messages {
		switch m.Type {
		case ipc.MsgHandoffReleased:
			d.becomeMain()
		case ipc.MsgHandoffMove:
			d.takeSessions(m)
		}
		m.CloseFDs()
	}
}

// takeSessions has the worker of a slot take the sessions of an old one. When
// there is none the end of the channel tells the old one to keep them.
func (d *daemon) takeSessions(m *ipc.Message) {
	var body ipc.HandoffMove
	if err := m.Decode(&body); err != nil || len(m.FDs) != 1 || body.Slot < 0 {
		d.logf("the old daemon's order to take sessions cannot be read")
		return
	}
	slots := d.allSlots()
	to := d.currentOf(slots[body.Slot%len(slots)])
	if running := d.runningProcesses(); to == nil && len(running) > 0 {
		to = running[body.Slot%len(running)]
	}
	if to == nil {
		return
	}
	if err := to.send(ipc.MsgMoveIn, 0, nil, m.FDs[0]); err != nil {
		d.logf("worker %d (pid %d) does not take the sessions of an old one: %v", to.slot.index, to.pid, err)
	}
}

// becomeMain tells the service manager that this is the main process now. It
// accepts that only of a child of process 1, which this one becomes when the
// launcher has ended.
func (d *daemon) becomeMain() {
	d.awaitParent()
	d.tell(systemd.MainPID(os.Getpid()), systemd.Ready, systemd.Status(d.statusLine()))
}

// awaitParent waits until the launcher, which started this process, has ended.
func (d *daemon) awaitParent() {
	for deadline := time.Now().Add(takeoverTime); os.Getppid() == d.parent && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// giveWay ends a successor that does not take over. Workers that have accepted
// serve on, until the predecessor takes them over.
func (d *daemon) giveWay(why error) error {
	if !d.succession.accepts {
		return d.retreat(why, 0)
	}
	d.logf("the upgrade was given up: %v; the workers are left to the old daemon", why)
	return errLeft
}

// ownServices are those whose sockets the predecessor does not have.
func (d *daemon) ownServices() []string {
	var own []string
	current := d.inForce()
	for i, l := range current.listeners {
		if !l.borrowed {
			own = append(own, current.cfg.Services[i].ID)
		}
	}
	return own
}

// retreat ends a successor that does not take over, with its workers: they stop
// accepting and have some time for what they have accepted.
func (d *daemon) retreat(why error, left time.Duration) error {
	_, _ = d.markDraining(drainLimit{timeout: left, explicit: true})
	d.change.Lock()
	defer d.change.Unlock()
	own := d.ownServices()
	each(d.allProcesses(), func(_ int, p *process) {
		if p.drain(context.Background(), d, drainLimit{timeout: left}, false, own...) != nil {
			p.kill()
		}
	})
	d.slotsDone.Wait()
	d.closeInForce()
	d.control.close()
	for _, p := range d.succession.present {
		_ = p.file.Close()
	}
	return fmt.Errorf("the upgrade was given up: %w", why)
}
