package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// read passes the successor's messages on until its end.
func (u *upgrade) read() {
	defer close(u.replies)
	for {
		m, err := u.conn.Recv()
		if err != nil {
			return
		}
		m.CloseFDs()
		select {
		case u.replies <- m:
		case <-u.proc.gone:
			return
		}
	}
}

// expect waits for a message of the successor.
func (u *upgrade) expect(ctx context.Context, want ipc.Type, limit time.Duration, what string) (*ipc.Message, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	m, err := u.next(ctx, timer.C)
	switch {
	case errors.Is(err, errHandoffEnded):
		return nil, u.endError(what)
	case err != nil:
		return nil, err
	case m == nil:
		u.silent = true
		return nil, fmt.Errorf("the new daemon did not %s within %v", what, limit.Round(time.Second))
	case m.Type == want:
		return m, nil
	case m.Type == ipc.MsgHandoffFailed:
		return nil, failureOf(m)
	}
	return nil, fmt.Errorf("the new daemon sends message type %d instead of %d", m.Type, want)
}

// errHandoffEnded is the error of next when the successor says nothing more.
var errHandoffEnded = errors.New("the new daemon has ended")

// lastWords is how long the messages of a successor that has ended may take to
// be read.
const lastWords = 200 * time.Millisecond

// next returns the successor's next message, nil when the time is over. The end
// of the successor counts although a process it has left behind may still have
// the handoff socket.
func (u *upgrade) next(ctx context.Context, over <-chan time.Time) (*ipc.Message, error) {
	ended := u.proc.ended
	for {
		select {
		case m, ok := <-u.replies:
			if !ok {
				return nil, errHandoffEnded
			}
			return m, nil
		case <-ended:
			ended, over = nil, time.After(lastWords)
		case <-over:
			if ended == nil {
				return nil, errHandoffEnded
			}
			return nil, nil
		case <-ctx.Done():
			return nil, errDraining
		}
	}
}

// send sends a message. When the successor is gone the error is what it has
// said, or how it has ended.
func (u *upgrade) send(t ipc.Type, body any, fds ...int) error {
	err := u.conn.Send(t, 0, body, fds...)
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	if _, cause := u.expect(u.ctx, t, time.Second, "go on"); cause != nil {
		return cause
	}
	return err
}

// endError says how the successor has ended.
func (u *upgrade) endError(what string) error {
	select {
	case <-u.proc.ended:
		return fmt.Errorf("the new daemon ended before it could %s: %s", what, u.proc.endText)
	case <-time.After(time.Second):
		return fmt.Errorf("the new daemon closed the handoff before it could %s", what)
	}
}

// failureOf turns the successor's message into an error.
func failureOf(m *ipc.Message) error {
	var f ipc.HandoffFailed
	if err := m.Decode(&f); err != nil {
		return fmt.Errorf("the new daemon has failed: %w", err)
	}
	if len(f.Diagnostics) > 0 {
		return &Refused{"the new daemon refuses the configuration: " + f.Reason, f.Diagnostics}
	}
	return errors.New("the new daemon: " + f.Reason)
}

// sendAll sends the manifest and all descriptors.
func (u *upgrade) sendAll(version int, deadline time.Time) error {
	// A worker that begins to run meanwhile is reported after the manifest.
	u.sendMu.Lock()
	defer u.sendMu.Unlock()
	h, err := u.d.prepareHandout()
	if err != nil {
		return err
	}
	defer h.close()
	table, err := h.memfd()
	if err != nil {
		return err
	}
	defer table.Close()
	err = u.send(ipc.MsgHandoffManifest, ipc.HandoffManifest{Version: version}, int(table.Fd()), u.d.shm.FD())
	for first := 0; err == nil && first < len(h.fds); {
		n := min(len(h.fds)-first, ipc.MaxFDs)
		err = u.send(ipc.MsgHandoffFiles, ipc.HandoffFiles{First: first, Count: n}, h.fds[first:first+n]...)
		if err == nil {
			_, err = u.expect(u.ctx, ipc.MsgHandoffAck, time.Until(deadline), "take the sockets")
		}
		first += n
	}
	u.reported = err == nil
	return err
}

// reportProcess tells the successor of a worker that has been started during
// the upgrade.
func (d *daemon) reportProcess(p *process) {
	d.mu.Lock()
	u := d.upgrading
	d.mu.Unlock()
	if u == nil {
		return
	}
	u.sendMu.Lock()
	defer u.sendMu.Unlock()
	if !u.reported {
		return
	}
	pidfd, err := p.pidfd()
	if err != nil {
		return
	}
	defer unix.Close(pidfd)
	if err := u.conn.Send(ipc.MsgHandoffProcess, 0, d.describeWorker(p), pidfd); err != nil {
		d.logf("the new daemon does not take the report of a worker: %v", err)
	}
}
