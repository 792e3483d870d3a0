package supervisor

import (
	"os"
	"sort"
	"time"

	"3proxyd/ipc"
)

// status answers PathStatus.
func (d *daemon) status() *ipc.Status {
	current := d.inForce()
	now := time.Now()
	s := &ipc.Status{
		API: ipc.APIVersion, Version: d.options.Version, PID: os.Getpid(),
		Started: d.started, UptimeSec: now.Sub(d.started).Seconds(),
		State:      "running",
		Generation: current.gen, Config: current.cfg.Source,
		Limits: current.limits.Status, Warnings: d.warnings(current),
	}
	s.Services = d.serviceStatus(current)
	for _, o := range d.oldGenerations() {
		s.OldGenerations = append(s.OldGenerations, o.status(d, now))
	}
	sessions := int64(d.openSessions())
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		s.State = "draining"
		s.Drain = &ipc.DrainProgress{Sessions: sessions, SecondsLeft: max(0, d.drainEnd.Sub(now).Seconds())}
	}
	s.LastReload, s.LastUpgrade = d.lastReload, d.lastUpgrade
	if u := d.upgrading; u != nil {
		s.Upgrade = u.status(now)
	}
	for _, slot := range d.slots {
		if slot.retired && len(slot.leaving) == 0 {
			continue
		}
		s.Workers = append(s.Workers, slot.status(d, now)...)
	}
	return s
}

// status describes the slot and the processes that are leaving it. The caller
// holds daemon.mu.
func (s *slot) status(d *daemon, now time.Time) []ipc.WorkerStatus {
	own := ipc.WorkerStatus{
		Slot: s.index, CPU: s.cpu, State: string(s.state),
		Restarts: s.restarts, LastExit: s.lastExit,
	}
	if s.state == stateBackoff {
		own.RetryInSec = max(0, s.retryAt.Sub(now).Seconds())
	}
	if p := s.current; p != nil {
		own = p.status(d, now, own)
	}
	if d.draining && s.current != nil && own.State != string(stateStalled) {
		own.State = string(stateDraining)
	}
	list := []ipc.WorkerStatus{own}
	for p := range s.leaving {
		leaving := ipc.WorkerStatus{Slot: s.index, CPU: s.cpu, State: string(stateDraining)}
		list = append(list, p.status(d, now, leaving))
	}
	sort.Slice(list[1:], func(i, j int) bool { return list[1+i].PID < list[1+j].PID })
	return list
}

func (p *process) status(d *daemon, now time.Time, w ipc.WorkerStatus) ipc.WorkerStatus {
	w.PID, w.Started, w.UptimeSec = p.pid, p.started, now.Sub(p.started).Seconds()
	w.Sessions = d.sessionsOf(p.row)
	if name := p.engine.Load(); name != nil {
		w.Engine = *name
	}
	if end := p.drainDeadline(); !end.IsZero() {
		w.DrainLeftSec = max(0, end.Sub(now).Seconds())
	}
	if p.stalled(d) {
		w.State = string(stateStalled)
	}
	return w
}

func (d *daemon) serviceStatus(current *snapshot) []ipc.ServiceStatus {
	rows := d.shm.Rows()
	list := make([]ipc.ServiceStatus, len(current.cfg.Services))
	for i := range current.cfg.Services {
		s := &current.cfg.Services[i]
		list[i] = ipc.ServiceStatus{
			ID: s.ID, Kind: string(s.Kind), Address: s.Listen.String(),
			MaxConn: current.limits.MaxConn[i], Backlog: s.Backlog,
			Open: int64(d.shm.OpenSum(current.services[i].Column, rows)),
		}
		if s.Target != nil {
			list[i].Target = s.Target.String()
		}
		if list[i].Backlog == 0 || list[i].Backlog > current.limits.Status.Somaxconn {
			list[i].Backlog = current.limits.Status.Somaxconn
		}
	}
	return list
}

type totals [ipc.NumCounters]uint64

func (t *totals) add(c *ipc.Cell) {
	for k := range ipc.NumCounters {
		t[k] += c.Get(k)
	}
}

func (t *totals) values() ipc.CounterValues {
	v := make(ipc.CounterValues, ipc.NumCounters)
	for k := range ipc.NumCounters {
		v[k.String()] = t[k]
	}
	return v
}

// stats answers PathStats.
func (d *daemon) stats() *ipc.Stats {
	// Columns must not be given to other services meanwhile.
	d.columns.mu.Lock()
	defer d.columns.mu.Unlock()
	current := d.inForce()
	s := &ipc.Stats{API: ipc.APIVersion, Time: time.Now()}
	rows, cols := d.shm.Rows(), d.columnsUsed()
	for i, service := range current.services {
		var sum totals
		for row := range rows {
			sum.add(d.shm.Cell(row, service.Column))
		}
		sum[ipc.Open] = d.shm.OpenSum(service.Column, rows)
		s.Services = append(s.Services, ipc.ServiceStats{ID: current.cfg.Services[i].ID, Counters: sum.values()})
	}
	var all totals
	for _, slot := range d.allSlots() {
		s.Workers = append(s.Workers, d.slotStats(slot, cols, &all))
	}
	// Sessions that move meanwhile are counted once.
	all[ipc.Open] = d.openSessions()
	s.Total = all.values()
	return s
}

// slotStats sums up all processes a slot ever had, and adds them to all.
func (d *daemon) slotStats(s *slot, cols int, all *totals) ipc.WorkerStats {
	d.mu.Lock()
	w := ipc.WorkerStats{Slot: s.index, Loop: map[string]uint64{}}
	heartbeatRow := -1
	if s.current != nil {
		w.PID, heartbeatRow = s.current.pid, s.current.row
	}
	rows := append([]int(nil), s.rows...)
	d.mu.Unlock()

	var sum totals
	for _, row := range rows {
		for col := range cols {
			sum.add(d.shm.Cell(row, col))
		}
		if past := d.columns.past[row]; past != nil {
			for k := range past {
				sum[k] += past[k]
			}
		}
		for k := range ipc.NumLoopCounters {
			if k != ipc.Heartbeat || row == heartbeatRow {
				w.Loop[k.String()] += d.shm.Loop(row).Get(k)
			}
		}
	}
	for k := range sum {
		all[k] += sum[k]
	}
	w.Counters = sum.values()
	return w
}
