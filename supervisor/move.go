package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"3proxyd/ipc"
)

// moveLimit bounds the moving of a worker's sessions.
const moveLimit = 2 * time.Minute

// moveIn has the worker take sessions in that come over end, which remains the
// caller's.
func (p *process) moveIn(end *os.File) error {
	return p.send(ipc.MsgMoveIn, 0, nil, int(end.Fd()))
}

// moveOut has the worker move sessions to the one that got the other end of
// the channel, and waits for the outcome. end remains the caller's.
func (p *process) moveOut(ctx context.Context, order ipc.MoveOut, end *os.File) (ipc.Moved, error) {
	id, outcome := p.expectMoved()
	defer p.forgetMoved(id)
	if err := p.send(ipc.MsgMoveOut, id, order, int(end.Fd())); err != nil {
		return ipc.Moved{}, err
	}
	ctx, stop := context.WithTimeout(ctx, moveLimit)
	defer stop()
	select {
	case moved := <-outcome:
		if moved.Error != "" {
			return moved, errors.New(moved.Error)
		}
		return moved, nil
	case <-p.exited:
		// A draining worker ends as soon as its last session has gone.
		select {
		case moved := <-outcome:
			return moved, nil
		default:
			return ipc.Moved{}, fmt.Errorf("%w (%s)", errEnded, p.exitText)
		}
	case <-ctx.Done():
		return ipc.Moved{}, errNoAnswer
	}
}

func (p *process) expectMoved() (uint32, chan ipc.Moved) {
	p.movesMu.Lock()
	defer p.movesMu.Unlock()
	p.lastMove++
	outcome := make(chan ipc.Moved, 1)
	if p.moves == nil {
		p.moves = map[uint32]chan ipc.Moved{}
	}
	p.moves[p.lastMove] = outcome
	return p.lastMove, outcome
}

func (p *process) forgetMoved(id uint32) {
	p.movesMu.Lock()
	defer p.movesMu.Unlock()
	delete(p.moves, id)
}

// onMoved passes MsgMoved on to who waits for it.
func (p *process) onMoved(m *ipc.Message) {
	var moved ipc.Moved
	if m.Decode(&moved) != nil {
		moved.Error = "its answer cannot be read"
	}
	p.movesMu.Lock()
	defer p.movesMu.Unlock()
	if outcome := p.moves[m.ID]; outcome != nil {
		outcome <- moved
		delete(p.moves, m.ID)
	}
}

// move has sessions of one worker move to another and waits for the outcome.
func (d *daemon) move(ctx context.Context, from, to *process, order ipc.MoveOut) (ipc.Moved, error) {
	out, in, err := ipc.MovePair()
	if err != nil {
		return ipc.Moved{}, err
	}
	err = to.moveIn(in)
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return ipc.Moved{}, fmt.Errorf("worker %d: %w", to.slot.index, err)
	}
	defer out.Close()
	return from.moveOut(ctx, order, out)
}

// moveLeaving has the processes that are leaving a slot hand their sessions to
// others, in the background.
func (d *daemon) moveLeaving(s *slot) {
	d.mu.Lock()
	var leaving []*process
	for p := range s.leaving {
		leaving = append(leaving, p)
	}
	d.mu.Unlock()
	for _, p := range leaving {
		d.slotsDone.Go(func() { d.moveAway(p) })
	}
}

// moveAway moves the sessions of a draining process to its successor, or when
// its slot has none, in equal parts to all others. Sessions that cannot move
// yet follow when they can. What cannot move drains.
func (d *daemon) moveAway(p *process) {
	targets := d.successors(p)
	for i, to := range targets {
		order := ipc.MoveOut{Follow: true}
		if rest := len(targets) - i; rest > 1 {
			order = ipc.MoveOut{Sessions: int(d.sessionsOf(p.row)) / rest}
			if order.Sessions == 0 {
				continue
			}
		}
		moved, err := d.move(d.running, p, to, order)
		switch {
		case errors.Is(err, errEnded) || d.running.Err() != nil:
			return
		case err != nil:
			d.logf("worker %d (pid %d) hands its sessions to worker %d (pid %d): %v",
				p.slot.index, p.pid, to.slot.index, to.pid, err)
		}
		if moved.Sessions > 0 {
			d.logf("worker %d (pid %d) has handed %s to worker %d (pid %d)", p.slot.index, p.pid,
				count(uint64(moved.Sessions), "session", "sessions"), to.slot.index, to.pid)
		}
	}
}

// successors are the processes that take the sessions of a leaving one.
func (d *daemon) successors(p *process) []*process {
	if to := d.currentOf(p.slot); to != nil {
		return []*process{to}
	}
	procs := d.runningProcesses()
	return slices.DeleteFunc(procs, func(p *process) bool { return d.isRetired(p.slot) })
}

// currentOf returns the process in the place of a slot if it is running.
func (d *daemon) currentOf(s *slot) *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := s.current; p != nil && p.state == stateRunning {
		return p
	}
	return nil
}
