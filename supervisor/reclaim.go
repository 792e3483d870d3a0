package supervisor

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// orphanSettled is the time within which the ends of processes that have ended
// together are seen.
const orphanSettled = 200 * time.Millisecond

// reclaim takes over the workers of an old generation whose supervisor has died
// before them: they drain, and their sessions move here. It returns when they
// are gone, or when this daemon has been replaced.
func (d *daemon) reclaim(o *oldGeneration) {
	select {
	case <-o.supervisor.exited:
	case <-d.takenOver:
		return
	}
	// Its last worker may have ended just before it.
	settled, cancel := context.WithTimeout(context.Background(), orphanSettled)
	defer cancel()
	for _, w := range o.living() {
		select {
		case <-w.exited:
		case <-settled.Done():
		}
	}
	workers := o.living()
	if len(workers) == 0 || d.isReplaced() {
		return
	}
	d.logf("the supervisor of the old generation (pid %d, version %s) has died before its workers: this daemon takes %s over",
		o.PID, o.Version, count(len(workers), "worker", "workers"))
	for _, w := range workers {
		d.oldDone.Go(func() { d.reclaimWorker(o, w) })
	}
}

// reclaimWorker takes one worker over.
func (d *daemon) reclaimWorker(o *oldGeneration, w *foreignProcess) {
	orphan, err := d.awaitOrphaned(w)
	if orphan == nil {
		if err != nil {
			d.logf("worker pid %d of the old generation (pid %d) is not taken over, and ends by itself: %v", w.worker.PID, o.PID, err)
		}
		return
	}
	proc, err := os.FindProcess(orphan.pid)
	if err != nil {
		_ = orphan.conn.Close()
		return
	}
	if orphan.memory != identity(d.shm.FD()) {
		orphan.Row = noRow
	}
	p := orphan.process(d, proc)
	d.supervise(p)
	o.mu.Lock()
	o.reclaimed = append(o.reclaimed, p)
	o.mu.Unlock()
	go p.readOrphan()
	limit := drainLimit{timeout: max(0, time.Until(o.deadline))}
	if err := p.drain(context.Background(), d, limit, false); err != nil {
		d.logf("worker pid %d of the old generation (pid %d) does not drain: %v; killing it", p.pid, o.PID, err)
		p.kill()
	}
	// Places under maxconn move only within one shared memory.
	if p.row != noRow {
		d.moveAway(p)
	}
	<-p.exited
}

// awaitOrphaned connects to a worker once it has noticed that its supervisor is
// gone. It returns nil without an error for one that has ended, or has found
// another supervisor.
func (d *daemon) awaitOrphaned(w *foreignProcess) (*orphan, error) {
	name := ipc.OrphanName(ipc.Family(d.control.path), w.worker.PID)
	tick := time.NewTicker(orphanRetry)
	defer tick.Stop()
	for deadline := time.Now().Add(orphanPatience); ; {
		o, err := d.meetOrphan(name, deadline, closeFD, func(*ipc.Message) {})
		switch {
		case err == nil:
			return o, nil
		case !errors.Is(err, unix.ECONNREFUSED):
			return nil, err
		case time.Now().After(deadline):
			return nil, nil
		}
		select {
		case <-w.exited:
			return nil, nil
		case <-d.takenOver:
			return nil, nil
		case <-tick.C:
		}
	}
}

func closeFD(fd int) { _ = unix.Close(fd) }
