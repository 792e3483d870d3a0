package supervisor

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/systemd"
)

// retire makes this daemon an old generation: nothing is accepted any more, and
// it ends with its last session or at drain_timeout.
func (u *upgrade) retire() {
	d := u.d
	d.rowsOwner.Lock()
	d.mu.Lock()
	d.replaced = true
	d.main.Store(false)
	stopping := d.draining
	d.mu.Unlock()
	d.rowsOwner.Unlock()
	close(d.takenOver)
	unused := u.unusedServices()
	d.lendListeners(u.ready.Unused)
	u.proc.release()
	if err := systemd.Notify(systemd.MainPID(u.proc.pid)); err != nil {
		d.logf("warning: the service manager cannot be told of the new main process: %v", err)
	}
	if err := u.conn.Send(ipc.MsgHandoffReleased, 0, nil); err != nil {
		d.logf("process %d has taken over, but does not answer: %v", u.proc.pid, err)
	}
	d.serveReplaced()
	if stopping {
		_ = unix.PidfdSendSignal(u.proc.pidfd, unix.SIGTERM, nil, 0)
	}
	d.drainReplaced(unused)
	for _, p := range d.allProcesses() {
		if err := d.handSessionsOver(u.conn, p); err != nil {
			d.logf("worker %d (pid %d) keeps its sessions: %v", p.slot.index, p.pid, err)
		}
	}
}

// lendListeners marks the sockets the successor has, so that closing them here
// does not end listening.
func (d *daemon) lendListeners(unused []string) {
	left := map[string]bool{}
	for _, key := range unused {
		left[key] = true
	}
	for _, l := range d.inForce().listeners {
		l.borrowed = !left[l.key]
	}
	d.control.borrowed = !left[controlStoreName]
	d.control.stopAccepting()
}

// drainReplaced drains every worker; those of services that nobody has any more
// empty their queues first.
func (d *daemon) drainReplaced(unused []string) {
	_, left := d.markDraining(drainLimit{timeout: d.drainTimeout()})
	limit := drainLimit{timeout: left}
	each(d.allProcesses(), func(_ int, p *process) {
		if err := p.drain(context.Background(), d, limit, false, unused...); err != nil {
			d.logf("worker %d (pid %d) does not drain: %v; killing it", p.slot.index, p.pid, err)
			p.kill()
		}
	})
	d.closeInForce()
}

// handSessionsOver has a worker hand its sessions to the worker of the same slot of
// the daemon at the other end, in the background. Those that cannot move yet follow
// when they can; what cannot move at all drains.
func (d *daemon) handSessionsOver(conn *ipc.Conn, p *process) error {
	out, in, err := ipc.MovePair()
	if err != nil {
		return err
	}
	err = conn.Send(ipc.MsgHandoffMove, 0, ipc.HandoffMove{Slot: p.slot.index}, int(in.Fd()))
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return err
	}
	d.drained.Go(func() {
		defer out.Close()
		moved, err := p.moveOut(context.Background(), ipc.MoveOut{Follow: true}, out)
		if err != nil && !errors.Is(err, errEnded) {
			d.logf("worker %d (pid %d) hands its sessions over: %v", p.slot.index, p.pid, err)
		}
		if moved.Sessions > 0 {
			d.logf("worker %d (pid %d) has handed %s to the new daemon", p.slot.index, p.pid, count(uint64(moved.Sessions), "session", "sessions"))
		}
	})
	return nil
}
