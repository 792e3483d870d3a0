package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"3proxyd/ipc"
)

// newSlot returns a slot that has no process yet.
func newSlot(index, cpu int) *slot {
	return &slot{
		index: index, cpu: cpu, state: stateStarting,
		drains:  make(chan drainOrder),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
		busy:    map[int]bool{},
		leaving: map[*process]bool{},
	}
}

// maxWorkers is the number of slots; the rest of the rows is left to draining
// workers.
const maxWorkers = ipc.MaxRows / 2

// slot is the place of one worker. Only its own goroutine starts and replaces
// its process.
type slot struct {
	index int
	// drains are requests to replace the process.
	drains chan drainOrder
	// quit is closed when the slot is retired, done when its goroutine has
	// ended; both are made anew when it is put into use again.
	quit, done chan struct{}

	// The rest is guarded by daemon.mu.

	cpu int
	// retired says that the slot is out of use: fewer workers are configured.
	retired bool

	// rows are those the slot's processes have had; busy says which have one
	// now.
	rows []int
	busy map[int]bool
	// current is the process in its place, nil between two.
	current  *process
	leaving  map[*process]bool
	state    workerState
	restarts int
	failures int
	lastExit string
	retryAt  time.Time
	// adopter serves the slot's sockets meanwhile; adopted are those it has.
	adopter *process
	adopted map[string]*listener
}

type drainOrder struct {
	limit drainLimit
	done  chan error
}

// notNow is the error of a request that the daemon's present state does not
// allow.
type notNow string

// Error returns the text.
func (e notNow) Error() string { return string(e) }

const errDraining = notNow("the daemon is draining")

// launch starts a process for the slot and brings it to the generation in
// force; on success it is the slot's current process and running.
func (d *daemon) launch(ctx context.Context, s *slot) (*process, error) {
	row, err := d.takeRow(s)
	if err != nil {
		return nil, err
	}
	p, err := d.spawn(s, row)
	if err != nil {
		d.giveRow(s, row)
		return nil, err
	}
	if err := d.bringUp(ctx, p); err != nil {
		p.kill()
		<-p.exited
		d.leave(p)
		return nil, fmt.Errorf("pid %d: %w", p.pid, err)
	}
	// What holds for all may have changed since its greeting.
	d.settleAccepting(p)
	d.reportProcess(p)
	return p, nil
}

// bringUp makes the handshake and gives the process the generation in force,
// once more when a reload has replaced it meanwhile.
func (d *daemon) bringUp(ctx context.Context, p *process) error {
	snap := d.acquire()
	defer func() { d.release(snap) }()
	if snap == nil {
		return errDraining
	}
	if err := p.greet(ctx, d, snap.limits); err != nil {
		return err
	}
	for {
		if err := p.prepare(ctx, d, snap); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
		if err := p.commit(ctx, d, snap, false); err != nil {
			return fmt.Errorf("starting to serve: %w", err)
		}
		done, err := d.setRunning(p, snap)
		if done || err != nil {
			return err
		}
		d.release(snap)
		if snap = d.acquire(); snap == nil {
			return errDraining
		}
	}
}

// setRunning makes p the slot's current process if its generation is the one
// in force.
func (d *daemon) setRunning(p *process, snap *snapshot) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false, errDraining
	}
	if snap != d.current {
		return false, nil
	}
	p.state = stateRunning
	s := p.slot
	if old := s.current; old != nil {
		old.state = stateDraining
		s.leaving[old] = true
	}
	s.current, s.state = p, stateRunning
	s.retryAt = time.Time{}
	return true, nil
}

// takeRow returns a row for a process of the slot: one of its own that is
// idle, so that a crash keeps the totals where they were, or a new one.
func (d *daemon) takeRow(s *slot) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range s.rows {
		if !s.busy[row] {
			s.busy[row] = true
			return row, nil
		}
	}
	if d.lent != nil {
		return 0, errUpgrading
	}
	row := d.shm.Rows()
	if row == ipc.MaxRows {
		return 0, fmt.Errorf("%d workers are running or draining, no more can be counted", ipc.MaxRows)
	}
	d.shm.SetRows(row + 1)
	s.rows = append(s.rows, row)
	s.busy[row] = true
	return row, nil
}

func (d *daemon) giveRow(s *slot, row int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(s.busy, row)
}

// leave forgets a process that has ended and takes back what it held.
func (d *daemon) leave(p *process) {
	d.rowsOwner.RLock()
	defer d.rowsOwner.RUnlock()
	s := p.slot
	if p.row != noRow && !d.isReplaced() {
		d.shm.TakeBack(p.row, d.columnsUsed())
		d.shm.SetRowOwner(p.row, s.index, 0)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.state = stateStopped
	delete(s.busy, p.row)
	delete(s.leaving, p)
	if s.current == p {
		s.current, s.state = nil, stateStopped
	}
	if s.retired {
		s.state = stateRetired
	}
	for _, other := range d.slots {
		if other.adopter == p {
			other.adopter, other.adopted = nil, nil
		}
	}
}

// run watches the slot's process p, if there is one, and replaces it whenever
// it ends, until the daemon drains or the slot is retired.
func (s *slot) run(d *daemon, p *process) {
	defer d.slotsDone.Done()
	defer close(s.done)
	for {
		if p == nil {
			p = s.restart(d)
		}
		if p == nil {
			return
		}
		p = s.watch(d, p)
	}
}

// watch returns when the process has ended (nil) or has been replaced, or is
// leaving because the slot is retired (nil).
func (s *slot) watch(d *daemon, p *process) *process {
	for {
		select {
		case <-p.exited:
			d.leave(p)
			s.died(d, p)
			return nil
		case <-s.quit:
			s.dismiss(d, p)
			return nil
		case order := <-s.drains:
			next, err := s.replace(d, p, order.limit)
			order.done <- err
			if err == nil {
				return next
			}
		}
	}
}

// replace starts another process in the slot and drains p.
func (s *slot) replace(d *daemon, p *process, limit drainLimit) (*process, error) {
	next, err := d.launch(d.running, s)
	if err != nil && d.running.Err() != nil {
		return nil, errDraining
	}
	if err != nil {
		return nil, fmt.Errorf("its successor cannot be started, so it goes on: %w", err)
	}
	d.awaitLeaving(p)
	if err := p.drain(context.Background(), d, limit, false); err != nil {
		d.logf("worker %d (pid %d) does not drain: %v; killing it", s.index, p.pid, err)
		p.kill()
	}
	if limit.timeout > 0 {
		d.moveLeaving(s)
	}
	d.kickAdoption()
	return next, nil
}

// awaitLeaving forgets a draining process when it has ended.
func (d *daemon) awaitLeaving(p *process) {
	d.slotsDone.Add(1)
	go func() {
		defer d.slotsDone.Done()
		<-p.exited
		d.leave(p)
		d.logf("worker %d (pid %d) has drained", p.slot.index, p.pid)
	}()
}

// died notes how a process ended and how long to wait before the next.
func (s *slot) died(d *daemon, p *process) {
	d.mu.Lock()
	if d.draining {
		d.mu.Unlock()
		return
	}
	if time.Since(p.started) >= d.timing.stable {
		s.failures = 0
	}
	s.lastExit = p.exitText
	delay := s.backOff(d)
	d.mu.Unlock()
	d.logf("worker %d (pid %d) ended: %s; starting another %s", s.index, p.pid, p.exitText, inTime(delay))
	d.trialFailed(fmt.Errorf("its worker %d (pid %d) ended: %s", s.index, p.pid, p.exitText))
	d.kickAdoption()
}

// failed is died for a process that could not be started.
func (s *slot) failed(d *daemon, err error) {
	d.mu.Lock()
	s.lastExit = "not started: " + err.Error()
	delay := s.backOff(d)
	d.mu.Unlock()
	d.logf("worker %d cannot be started: %v; trying again %s", s.index, err, inTime(delay))
	d.kickAdoption()
}

// backOff counts a failure and sets the time of the next attempt: at once, then
// after 1, 2, 4 ... units, at most the cap. The caller holds daemon.mu.
func (s *slot) backOff(d *daemon) time.Duration {
	s.failures++
	s.restarts++
	delay := backOffDelay(s.failures, d.timing.unit, d.timing.cap)
	s.retryAt = time.Now().Add(delay)
	if delay > 0 {
		s.state = stateBackoff
	}
	return delay
}

func backOffDelay(failures int, unit, limit time.Duration) time.Duration {
	if failures <= 1 {
		return 0
	}
	return min(unit<<min(failures-2, 20), limit)
}

func inTime(delay time.Duration) string {
	if delay == 0 {
		return "at once"
	}
	return "in " + delay.String()
}

// restart starts the slot's next process, waiting as the back-off says. It
// returns nil when the daemon drains or the slot is retired.
func (s *slot) restart(d *daemon) *process {
	for {
		if !s.pause(d) {
			return nil
		}
		p, err := d.launch(d.running, s)
		if err == nil {
			d.logf("worker %d (pid %d) is running", s.index, p.pid)
			d.moveLeaving(s)
			if d.main.Load() {
				d.attract(d.oldGenerations())
			}
			d.kickAdoption()
			return p
		}
		if d.running.Err() != nil {
			return nil
		}
		s.failed(d, err)
	}
}

// pause waits until retryAt, refusing orders to drain; it is false when the
// daemon drains or the slot is retired.
func (s *slot) pause(d *daemon) bool {
	d.mu.Lock()
	delay := time.Until(s.retryAt)
	d.mu.Unlock()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-d.running.Done():
			return false
		case <-s.quit:
			return false
		default:
		}
		select {
		case <-timer.C:
			d.mu.Lock()
			s.state = stateStarting
			d.mu.Unlock()
			return true
		case order := <-s.drains:
			order.done <- errors.New("it is not running")
		case <-d.running.Done():
			return false
		case <-s.quit:
			return false
		}
	}
}
