package supervisor

import (
	"context"
	"errors"
	"slices"

	"3proxyd/ipc"
)

// setAccepting tells every worker, and those that are started from now on,
// whether to accept connections. A worker that does not obey is killed; its
// successor does.
func (d *daemon) setAccepting(a ipc.Accept) {
	d.mu.Lock()
	d.accepting = a
	d.mu.Unlock()
	each(d.runningProcesses(), func(_ int, p *process) { d.settleAccepting(p) })
}

// settleAccepting brings a worker to what holds for all.
func (d *daemon) settleAccepting(p *process) {
	p.talk.Lock()
	defer p.talk.Unlock()
	a := d.acceptingNow()
	if sameAccept(p.accepting, a) {
		return
	}
	err := p.accept(d, a)
	if err == nil || errors.Is(err, errEnded) {
		return
	}
	d.logf("worker %d (pid %d) does not pause or resume accepting: %v; killing it", p.slot.index, p.pid, err)
	p.kill()
}

// accept sends MsgAccept. The caller holds talk.
func (p *process) accept(d *daemon, a ipc.Accept) error {
	if err := p.send(ipc.MsgAccept, 0, a); err != nil {
		return err
	}
	_, err := p.answer(context.Background(), d.timing.exchange, ipc.MsgAccepting, func(m *ipc.Message) bool {
		var reply ipc.Accept
		return m.Decode(&reply) == nil && sameAccept(reply, a)
	})
	if err == nil {
		p.accepting = a
	}
	return err
}

// checkAccepting asks every worker once more and returns the first failure: a
// worker whose event loop does not turn cannot answer.
func (d *daemon) checkAccepting() error {
	procs := d.runningProcesses()
	errs := make([]error, len(procs))
	each(procs, func(i int, p *process) {
		p.talk.Lock()
		defer p.talk.Unlock()
		errs[i] = p.accept(d, d.acceptingNow())
	})
	return errors.Join(errs...)
}

func (d *daemon) acceptingNow() ipc.Accept {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accepting
}

func sameAccept(a, b ipc.Accept) bool {
	return a.Paused == b.Paused && a.HoldDatagrams == b.HoldDatagrams && a.Lent == b.Lent && slices.Equal(a.Keep, b.Keep)
}
