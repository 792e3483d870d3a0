package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"3proxyd/ipc"
)

// followEvery is how often the progress of a drain is asked for.
const followEvery = time.Second

// followDrain prints what is left of a drain until it is over: of the daemon,
// which then is gone, or of one worker.
func (s *session) followDrain(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	asked := false
	for {
		st, err := s.client.Status(ctx)
		if errors.Is(err, ipc.ErrNoDaemon) && s.line.worker == nil {
			fmt.Fprintln(s.out, "the daemon has ended")
			return nil
		}
		if brokenOff(err) && !asked {
			// The daemon may have ended while it was asked; then nobody answers
			// the next question.
			asked = true
			continue
		}
		if err != nil {
			return err
		}
		asked = false
		left, ok := drainLeft(st, s.line.worker)
		if !ok {
			fmt.Fprintln(s.out, "the worker has ended")
			return nil
		}
		fmt.Fprintf(s.out, "%s left, %s left\n", count(int(left.Sessions), "session"), duration(left.SecondsLeft))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// brokenOff reports whether the daemon's end of a connection was gone.
func brokenOff(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// drainLeft is what is left of the drain of a worker, or of the daemon; false
// when no worker of the slot drains any more.
func drainLeft(st *ipc.Status, worker *int) (left ipc.DrainProgress, draining bool) {
	if worker == nil {
		if st.Drain != nil {
			left = *st.Drain
		}
		return left, true
	}
	for _, w := range st.Workers {
		if w.Slot == *worker && w.State == "draining" {
			draining = true
			left.Sessions += w.Sessions
			left.SecondsLeft = max(left.SecondsLeft, w.DrainLeftSec)
		}
	}
	return left, draining
}
