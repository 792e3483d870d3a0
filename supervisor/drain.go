package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"3proxyd/ipc"
	"3proxyd/systemd"
)

// drainLimit is how long sessions may go on after a drain has begun.
type drainLimit struct {
	timeout time.Duration
	// explicit says that somebody asked for this time: it replaces that of an
	// earlier drain, where the default one never prolongs it.
	explicit bool
}

// until returns the end of a drain that would have ended at end, which is zero
// when there was none.
func (l drainLimit) until(end time.Time) time.Time {
	now := time.Now().Add(l.timeout)
	if l.explicit || end.IsZero() || now.Before(end) {
		return now
	}
	return end
}

// beginDrain makes the whole daemon stop accepting; it ends when the last
// session has, or after the limit. It returns the slots that have a worker when
// they have stopped accepting, and the time that was left.
func (d *daemon) beginDrain(limit drainLimit) ([]int, time.Duration) {
	first, timeout := d.markDraining(limit)
	d.logDrain(timeout, "send SIGTERM twice to stop now")
	limit.timeout = timeout
	return d.drainAll(first, limit), timeout
}

// markDraining ends what would start or change workers; first is true the
// first time. The timeout is what is left to the sessions.
func (d *daemon) markDraining(limit drainLimit) (first bool, timeout time.Duration) {
	d.mu.Lock()
	first = !d.draining
	d.draining = true
	d.drainEnd = limit.until(d.drainEnd)
	timeout = max(0, time.Until(d.drainEnd))
	end := d.drainEnd
	d.mu.Unlock()
	if first {
		d.tell(systemd.Stopping, d.moreTime(), systemd.Status(d.statusLine()))
	}
	d.stopRunning()
	if !d.isReplaced() {
		d.endOld(end)
	}
	return first, timeout
}

func (d *daemon) drainAll(first bool, limit drainLimit) []int {
	if first {
		d.change.Lock()
		defer d.change.Unlock()
	}
	procs := d.allProcesses()
	// The successor of an upgrade goes on with the sockets.
	final := !d.isReplaced()
	each(procs, func(_ int, p *process) {
		if err := p.drain(context.Background(), d, limit, final); err != nil {
			d.logf("worker %d (pid %d) does not drain: %v; killing it", p.slot.index, p.pid, err)
			p.kill()
		}
	})
	if first && final {
		d.closeInForce()
		d.emptyStore()
	}
	var slots []int
	for _, p := range procs {
		slots = append(slots, p.slot.index)
	}
	return slots
}

// closeInForce closes the daemon's own duplicates of the listening sockets:
// with no worker left that accepts, a client is better refused than kept
// waiting.
func (d *daemon) closeInForce() {
	d.mu.Lock()
	current := d.current
	d.closed = true
	d.mu.Unlock()
	if current != nil {
		d.release(current)
	}
}

// drainWorker replaces the worker of a slot and drains it. It returns when its
// successor runs and it has stopped accepting.
func (d *daemon) drainWorker(ctx context.Context, index int, limit drainLimit) error {
	if n := d.workers(); index < 0 || index >= n {
		return fmt.Errorf("there is no worker %d, only 0 to %d", index, n-1)
	}
	if d.isDraining() {
		return errDraining
	}
	if err := d.isUpgrading(); err != nil {
		return err
	}
	order := drainOrder{limit: limit, done: make(chan error, 1)}
	select {
	case d.allSlots()[index].drains <- order:
	case <-d.running.Done():
		return errDraining
	case <-ctx.Done():
		return errors.New("the worker is busy being started or replaced")
	}
	select {
	case err := <-order.done:
		if err != nil {
			return fmt.Errorf("worker %d: %w", index, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openSessions is the number of open sessions of all workers.
func (d *daemon) openSessions() uint64 {
	var sum uint64
	for col := range d.columnsUsed() {
		sum += d.shm.OpenSum(col, d.shm.Rows())
	}
	return sum
}

// sessionsOf is the number of open sessions in one row.
func (d *daemon) sessionsOf(row int) int64 {
	if row == noRow {
		return 0
	}
	var sum uint64
	for col := range d.columnsUsed() {
		sum += d.shm.Cell(row, col).Get(ipc.Open)
	}
	return int64(sum)
}
