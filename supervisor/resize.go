package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
)

// growth are sockets for slots that a new generation adds to listeners it
// keeps. Bound, but not listening, they take no connection until the
// generation is in force. Those for datagrams would take some at once; they are
// only bound then: late is how many.
type growth struct {
	listener *listener
	fds      []int
	late     int
}

// grow binds the sockets that the listener lacks for a number of slots.
func (l *listener) grow(slots int) (growth, error) {
	g := growth{listener: l}
	if l.datagrams() {
		g.late = max(0, slots-l.slots())
		return g, nil
	}
	for range slots - l.slots() {
		fd, err := l.bindIP(true)
		if err != nil {
			g.close()
			return growth{}, err
		}
		g.fds = append(g.fds, fd)
	}
	return g, nil
}

func (g growth) close() {
	for _, fd := range g.fds {
		_ = unix.Close(fd)
	}
}

// start has the sockets listen and gives them to the listener. Each is kept
// once it listens, since it may have connections in its queue.
func (g growth) start() error {
	for range g.late {
		fd, err := g.listener.bindIP(true)
		if err != nil {
			return err
		}
		g.listener.add(fd)
	}
	for i, fd := range g.fds {
		if err := g.listener.listen(fd); err != nil {
			growth{fds: g.fds[i:]}.close()
			return err
		}
		g.listener.add(fd)
	}
	return nil
}

// fillGrowth binds what kept listeners lack for the slots of the generation.
func (n *snapshot) fillGrowth() []config.Diagnostic {
	var failed []config.Diagnostic
	for i, l := range n.listeners {
		s := &n.cfg.Services[i]
		if !l.grouped() || l.kept {
			continue // one socket serves all workers, or only the manager can make one
		}
		g, err := l.grow(len(n.cpus))
		switch {
		case err != nil:
			failed = append(failed, serviceError(s, fmt.Sprintf("a socket for another worker: %v", err)))
		case len(g.fds) > 0 || g.late > 0:
			n.growth = append(n.growth, g)
		}
	}
	return failed
}

// startGrowth is called when the generation is in force. A slot that lacks a
// socket is not an error: the group's other sockets get all connections.
func (n *snapshot) startGrowth() []config.Diagnostic {
	var warnings []config.Diagnostic
	for _, g := range n.growth {
		if err := g.start(); err != nil {
			text := fmt.Sprintf("%s: a socket for another worker: %v", g.listener.endpoint, err)
			warnings = append(warnings, config.Diagnostic{Pos: placeOf(n.cfg, "workers"), Severity: config.Warning, Text: text})
		}
	}
	n.growth = nil
	return warnings
}

// resize brings the slots to the CPUs of the generation in force, one for each
// worker: it starts workers, retires others, and moves those whose CPU has
// changed. The caller holds daemon.change.
func (d *daemon) resize(cpus []int) {
	slots := d.allSlots()
	d.retire(slots[min(len(slots), len(cpus)):])
	for i, s := range slots[:min(len(slots), len(cpus))] {
		switch {
		case d.isRetired(s):
			d.revive(s, cpus[i])
		default:
			d.repin(s, cpus[i])
		}
	}
	for i := len(slots); i < len(cpus); i++ {
		s := newSlot(i, cpus[i])
		d.mu.Lock()
		d.slots = append(d.slots, s)
		d.mu.Unlock()
		d.startSlot(s)
	}
}

// retireExcess makes retired slots for sockets for datagrams of more slots than
// there are workers, which an earlier daemon or the service manager had: other
// workers serve them.
func (d *daemon) retireExcess(s *snapshot) {
	most := 0
	for _, l := range s.listeners {
		if l.datagrams() {
			most = max(most, l.slots())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.slots); i < most; i++ {
		d.slots = append(d.slots, newRetiredSlot(i, s.cpus[i%len(s.cpus)]))
	}
}

// newRetiredSlot returns a slot that has never been in use.
func newRetiredSlot(index, cpu int) *slot {
	s := newSlot(index, cpu)
	s.retired, s.state = true, stateRetired
	close(s.quit)
	close(s.done)
	return s
}

// startSlot has the slot's goroutine start a worker.
func (d *daemon) startSlot(s *slot) {
	d.slotsDone.Add(1)
	go s.run(d, nil)
}

func (d *daemon) isRetired(s *slot) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.retired
}

// retire takes slots out of use: other workers serve their sockets, which are
// kept, since closing them would lose their queues, and their own drain.
func (d *daemon) retire(slots []*slot) {
	var retired []*slot
	d.mu.Lock()
	for _, s := range slots {
		if !s.retired {
			s.retired = true
			retired = append(retired, s)
		}
	}
	d.mu.Unlock()
	for _, s := range retired {
		d.logf("worker %d is not configured any more and drains", s.index)
		d.settleAdoption(s)
		close(s.quit)
	}
}

// revive puts a retired slot into use again. Its goroutine has been told to
// end and may still be starting a process.
func (d *daemon) revive(s *slot, cpu int) {
	<-s.done
	d.mu.Lock()
	s.retired, s.cpu, s.state = false, cpu, stateStarting
	s.failures, s.retryAt = 0, time.Time{}
	s.quit, s.done = make(chan struct{}), make(chan struct{})
	d.mu.Unlock()
	d.startSlot(s)
}

// dismiss drains the process of a retired slot.
func (s *slot) dismiss(d *daemon, p *process) {
	d.mu.Lock()
	p.state = stateDraining
	s.leaving[p] = true
	s.current, s.state = nil, stateRetired
	d.mu.Unlock()
	d.awaitLeaving(p)
	if err := p.drain(context.Background(), d, drainLimit{timeout: d.drainTimeout()}, false); err != nil {
		d.logf("worker %d (pid %d) does not drain: %v; killing it", s.index, p.pid, err)
		p.kill()
	}
	d.moveLeaving(s)
	d.kickAdoption()
}

// repin moves the slot's worker to another CPU.
func (d *daemon) repin(s *slot, cpu int) {
	d.mu.Lock()
	p := s.current
	same := s.cpu == cpu
	s.cpu = cpu
	d.mu.Unlock()
	if same || p == nil {
		return
	}
	if err := pinProcess(p.pid, cpu); err != nil {
		d.logf("worker %d (pid %d) cannot be moved to CPU %d: %v", s.index, p.pid, cpu, err)
	}
}

// pinProcess pins every thread of a process. A thread that is created
// meanwhile may have inherited the old CPU, so it looks again until there is
// none it has not seen.
func pinProcess(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	seen := map[string]bool{}
	for before := -1; before < len(seen); {
		before = len(seen)
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || seen[task.Name()] {
				continue
			}
			seen[task.Name()] = true
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}
