package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"3proxyd/ipc"
)

// beginDrain makes the whole daemon stop accepting; it ends when the last
// session has, or after timeout. Called again, it sets a new timeout. It
// returns the slots that have a worker when they have stopped accepting.
func (d *daemon) beginDrain(timeout time.Duration) []int {
	return d.drainAll(d.markDraining(), timeout)
}

// markDraining ends what would start or change workers; it is true the first
// time.
func (d *daemon) markDraining() (first bool) {
	d.mu.Lock()
	first = !d.draining
	d.draining = true
	d.mu.Unlock()
	d.stopRunning()
	return first
}

func (d *daemon) drainAll(first bool, timeout time.Duration) []int {
	if first {
		d.change.Lock()
		defer d.change.Unlock()
	}
	procs := d.allProcesses()
	each(procs, func(_ int, p *process) {
		if err := p.drain(context.Background(), d, timeout, true); err != nil {
			d.logf("worker %d (pid %d) does not drain: %v; killing it", p.slot.index, p.pid, err)
			p.kill()
		}
	})
	if first {
		d.closeInForce()
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
func (d *daemon) drainWorker(ctx context.Context, index int, timeout time.Duration) error {
	if index < 0 || index >= len(d.slots) {
		return fmt.Errorf("there is no worker %d, only 0 to %d", index, len(d.slots)-1)
	}
	order := drainOrder{timeout: timeout, done: make(chan error, 1)}
	select {
	case d.slots[index].drains <- order:
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
	var sum uint64
	for col := range d.columnsUsed() {
		sum += d.shm.Cell(row, col).Get(ipc.Open)
	}
	return int64(sum)
}
