package worker

import (
	"log/slog"
	"time"

	"3proxyd/ipc"
)

// How sessions move is described with the messages (ipc/move.go). The channel
// is read and written by a goroutine, moveOut in the source and moveIn in the
// target; sessions are touched on the loop only.

// moveTimeout bounds the wait for each step of the other worker; tests shorten
// it.
var moveTimeout = 5 * time.Second

const (
	// moveBatch and moveBatchBytes bound what is on the way at once, in
	// sessions and in bytes that wait for peers: those sessions stand still.
	moveBatch      = 32
	moveBatchBytes = 4 << 20
	// maxMoveIns bounds the channels on which sessions may come.
	maxMoveIns = 64
)

// moves is what a worker has to do with sessions on their way.
type moves struct {
	// out is the move away that is under way, next the order that waits for
	// its end.
	out  *moveOut
	next *moveOut
	// leaving are the sessions that stand still until the target has answered.
	leaving map[*session]bool
	// arriving counts the sessions whose descriptors have come and that are
	// not this worker's yet.
	arriving int
	ins      map[*moveIn]bool
	// over is closed when the loop ends.
	over chan struct{}
}

func newMoves() moves {
	return moves{leaving: map[*session]bool{}, ins: map[*moveIn]bool{}, over: make(chan struct{})}
}

// isOver reports whether the loop has ended.
func (m *moves) isOver() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

// startMoveOut carries out MsgMoveOut.
func (w *Worker) startMoveOut(m *ipc.Message) {
	id := m.ID
	out, err := newMoveOut(w, m)
	if err != nil {
		slog.Error("moving sessions away", "error", err)
		w.reply(ipc.MsgMoved, id, ipc.Moved{Error: err.Error()})
		return
	}
	w.loop.Post(func() { w.orderMoveOut(out) })
}

// orderMoveOut starts a move, once the one under way has ended: one that only
// follows sessions up ends at once.
func (w *Worker) orderMoveOut(out *moveOut) {
	switch {
	case w.moves.out == nil:
		w.moves.out = out
		go out.run()
	case w.moves.next == nil:
		w.moves.next = out
		w.moves.out.endFollowing()
	default:
		go out.refuse("another move waits already")
	}
}

// moveOutEnded is called when a move is over. settle says that the target may
// have died before it took over the places of sessions it owns.
func (w *Worker) moveOutEnded(out *moveOut, settle bool) {
	if settle {
		w.settlePlaces(out.columns)
	}
	w.moves.out = nil
	if next := w.moves.next; next != nil {
		w.moves.next = nil
		w.orderMoveOut(next)
	}
	w.stopWhenIdle()
}

// settlePlaces makes the own counts of open connections those of the sessions
// that are here.
func (w *Worker) settlePlaces(columns map[int]bool) {
	open := map[int]uint64{}
	for s := w.sessions.head; s != nil; s = s.next {
		open[s.svc.column]++
	}
	for s := range w.moves.leaving {
		open[s.svc.column]++
	}
	for col := range columns {
		w.shm.Settle(w.row, col, open[col])
	}
}

// startMoveIn carries out MsgMoveIn.
func (w *Worker) startMoveIn(m *ipc.Message) {
	in, err := newMoveIn(w, m)
	if err != nil {
		slog.Error("taking sessions in", "error", err)
		return
	}
	w.loop.Post(func() {
		if len(w.moves.ins) >= maxMoveIns {
			in.conn.Close()
			return
		}
		w.moves.ins[in] = true
		go in.run()
	})
}

func (w *Worker) moveInEnded(in *moveIn) {
	delete(w.moves.ins, in)
	w.stopWhenIdle()
}

// busyMoving reports whether the worker must not end for the sake of sessions
// on their way.
func (w *Worker) busyMoving() bool {
	return w.moves.out != nil || w.moves.arriving > 0 || len(w.moves.leaving) > 0
}

// stopWhenIdle stops a draining worker that has no session left.
func (w *Worker) stopWhenIdle() {
	if !w.draining || w.sessions.count > 0 || w.dnsRunning > 0 && !w.ended {
		return
	}
	if w.busyMoving() {
		w.followUp()
		return
	}
	w.stop()
}

// followUp has the move under way look again for sessions to move, or for its
// end.
func (w *Worker) followUp() {
	if out := w.moves.out; out != nil {
		out.kick()
	}
}

// onLoop has fn called on the loop and waits for what it returns; ok is false
// when the loop has ended.
func onLoop[T any](w *Worker, fn func(give func(T))) (v T, ok bool) {
	c := make(chan T, 1)
	w.loop.Post(func() { fn(func(v T) { c <- v }) })
	select {
	case v = <-c:
		return v, true
	case <-w.moves.over:
		return v, false
	}
}
