package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"3proxyd/ipc"
)

const (
	// rateSample is over how long the traffic of the workers is measured.
	rateSample = time.Second
	// leastRate is the difference in bytes per second that is worth a move,
	// trafficSlack the part of the mean that always is too little for one.
	leastRate    = 1 << 20
	trafficSlack = 0.1
	// autoSlack is how much more than the mean a worker may have, as a part of
	// it, before an automatic rebalance moves sessions; autoSessions is the
	// least number of sessions that is worth it.
	autoSlack    = 0.2
	autoSessions = 8
)

var (
	errRebalancing = errors.New("a rebalance is under way")
	errOneWorker   = errors.New("there is only one worker")
)

// load is what a worker has to do.
type load struct {
	sessions int
	// rate is in bytes per second.
	rate uint64
}

// shift moves sessions from one worker to another; from and to are indexes of
// loads.
type shift struct {
	from, to int
	order    ipc.MoveOut
}

// rebalance evens out the sessions of the workers, and their traffic. slack is
// the part of the mean that is tolerated.
func (d *daemon) rebalance(ctx context.Context, slack float64, least int) (*ipc.RebalanceResult, error) {
	if !d.rebalancing.TryLock() {
		return nil, errRebalancing
	}
	defer d.rebalancing.Unlock()
	if d.isDraining() {
		return nil, errDraining
	}
	if err := d.isUpgrading(); err != nil {
		return nil, err
	}
	procs := slices.DeleteFunc(d.runningProcesses(), func(p *process) bool { return p.stalled(d) })
	if len(procs) < 2 {
		return nil, errOneWorker
	}
	loads, err := d.measureLoads(ctx, procs)
	if err != nil {
		return nil, err
	}
	result := &ipc.RebalanceResult{Moves: []ipc.RebalanceMove{}}
	d.shiftSessions(ctx, procs, planTraffic(loads, slack), result)
	for i, p := range procs {
		loads[i].sessions = int(d.sessionsOf(p.row))
	}
	// The quietest go first, so that the traffic stays even.
	d.shiftSessions(ctx, procs, planSessions(loads, slack, least), result)
	return result, nil
}

func (d *daemon) shiftSessions(ctx context.Context, procs []*process, shifts []shift, result *ipc.RebalanceResult) {
	for _, s := range shifts {
		from, to := procs[s.from], procs[s.to]
		move := ipc.RebalanceMove{From: from.slot.index, To: to.slot.index}
		moved, err := d.move(ctx, from, to, s.order)
		if err != nil {
			move.Error = err.Error()
		}
		move.Sessions = moved.Sessions
		result.Sessions += moved.Sessions
		result.Moves = append(result.Moves, move)
	}
}

// measureLoads looks at the counters of the workers twice.
func (d *daemon) measureLoads(ctx context.Context, procs []*process) ([]load, error) {
	before := make([]uint64, len(procs))
	for i, p := range procs {
		before[i] = d.bytesOf(p.row)
	}
	start := time.Now()
	select {
	case <-time.After(rateSample):
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.running.Done():
		return nil, errDraining
	}
	loads := make([]load, len(procs))
	for i, p := range procs {
		moved := float64(d.bytesOf(p.row) - before[i])
		loads[i] = load{int(d.sessionsOf(p.row)), uint64(moved / time.Since(start).Seconds())}
	}
	return loads, nil
}

// bytesOf is the number of bytes a worker has relayed.
func (d *daemon) bytesOf(row int) uint64 {
	var sum uint64
	for col := range d.columnsUsed() {
		cell := d.shm.Cell(row, col)
		sum += cell.Get(ipc.BytesIn) + cell.Get(ipc.BytesOut)
	}
	return sum
}

// planTraffic says which workers give how much traffic to which.
func planTraffic(loads []load, slack float64) []shift {
	var rates []float64
	for _, l := range loads {
		rates = append(rates, float64(l.rate))
	}
	var shifts []shift
	for _, e := range evenOut(rates, max(slack, trafficSlack), leastRate) {
		shifts = append(shifts, shift{e.from, e.to, ipc.MoveOut{BytesPerSec: uint64(e.amount)}})
	}
	return shifts
}

// planSessions says which workers give how many sessions to which.
func planSessions(loads []load, slack float64, least int) []shift {
	var sessions []float64
	for _, l := range loads {
		sessions = append(sessions, float64(l.sessions))
	}
	var shifts []shift
	for _, e := range evenOut(sessions, slack, float64(least)) {
		if n := int(e.amount); n > 0 {
			shifts = append(shifts, shift{e.from, e.to, ipc.MoveOut{Sessions: n}})
		}
	}
	return shifts
}

// transfer is an amount that evens two workers out.
type transfer struct {
	from, to int
	amount   float64
}

// evenOut brings all amounts to their mean. Nothing is done when none exceeds
// it by more than slack times the mean and by least.
func evenOut(amounts []float64, slack, least float64) []transfer {
	var mean float64
	for _, a := range amounts {
		mean += a / float64(len(amounts))
	}
	if over := slices.Max(amounts) - mean; over <= slack*mean || over < least {
		return nil
	}
	type surplus struct {
		index  int
		amount float64
	}
	var order []surplus
	for i, a := range amounts {
		order = append(order, surplus{i, a - mean})
	}
	slices.SortStableFunc(order, func(a, b surplus) int { return cmp.Compare(b.amount, a.amount) })
	var list []transfer
	for i, j := 0, len(order)-1; i < j; {
		amount := min(order[i].amount, -order[j].amount)
		if amount > 0 {
			list = append(list, transfer{order[i].index, order[j].index, amount})
		}
		order[i].amount -= amount
		order[j].amount += amount
		if order[i].amount <= -order[j].amount {
			i++
		} else {
			j--
		}
	}
	return list
}

// rebalanceLoop rebalances as often as the configuration in force asks for.
func (d *daemon) rebalanceLoop() {
	for {
		var due <-chan time.Time
		if s := d.inForce().cfg.Rebalance; s > 0 {
			due = time.After(time.Duration(s) * time.Second)
		}
		select {
		case <-d.running.Done():
			return
		case <-d.rebalanceKick:
		case <-due:
			d.rebalanceNow()
		}
	}
}

func (d *daemon) rebalanceNow() {
	result, err := d.rebalance(d.running, autoSlack, autoSessions)
	switch {
	case err != nil:
		// There is nothing to even out, or others are at it.
	case result.Sessions > 0:
		d.logf("rebalanced: %s moved between workers", count(uint64(result.Sessions), "session", "sessions"))
	}
}

// kickRebalance has rebalanceLoop look at the configuration again.
func (d *daemon) kickRebalance() {
	select {
	case d.rebalanceKick <- struct{}{}:
	default:
	}
}
