package supervisor

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// endSuccessor ends the supervisor of a successor, and leaves its workers: they
// wait for another supervisor then, and serve on.
func (u *upgrade) endSuccessor(why error) {
	var left time.Duration
	if u.accepts && !u.silent {
		left = upgradeCancel
	}
	cancel := ipc.HandoffCancel{Reason: why.Error(), TimeoutMS: left.Milliseconds(), Leave: u.accepts}
	if u.conn.Send(ipc.MsgHandoffCancel, 0, cancel) == nil {
		u.awaitEnd(left + cancelGrace)
	}
	_ = unix.PidfdSendSignal(u.proc.pidfd, unix.SIGKILL, nil, 0)
	u.awaitEnd(cancelGrace)
}

// takeBackWorkers connects to the workers of a successor that has ended, for
// what they have accepted in the trial. Those that do not answer in time are
// left out.
func (u *upgrade) takeBackWorkers() []*orphan {
	if !u.accepts {
		return nil
	}
	d := u.d
	deadline := time.Now().Add(orphanPatience)
	var mu sync.Mutex
	var found []*orphan
	var all sync.WaitGroup
	for _, pid := range d.lentWorkers() {
		all.Go(func() {
			o, err := u.meetWorker(pid, deadline)
			if err != nil {
				d.logf("worker pid %d of the new daemon cannot be taken over; killing it: %v", pid, err)
				return
			}
			if o != nil {
				mu.Lock()
				found = append(found, o)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return found
}

// meetWorker connects to one worker once it has noticed that its supervisor is
// gone; it returns nil for one that has ended.
func (u *upgrade) meetWorker(pid int, deadline time.Time) (*orphan, error) {
	d, name := u.d, ipc.OrphanName(u.family(), pid)
	for isWorker(pid) {
		o, err := d.meetOrphan(name, deadline, closeFD, func(*ipc.Message) {})
		if err == nil && (o.pid != pid || o.memory != identity(d.shm.FD())) {
			_ = o.conn.Close()
			return nil, errors.New("it is a worker of another daemon")
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return o, err
		}
		if time.Now().After(deadline) {
			return nil, errNoAnswer
		}
		time.Sleep(orphanRetry)
	}
	return nil, nil
}

// family is that of the successor's workers: its configuration may have
// another control socket.
func (u *upgrade) family() string {
	if u.ready.Family != "" {
		return u.ready.Family
	}
	return ipc.Family(u.d.control.path)
}

// drainTakenBack has the workers of the successor drain, and hand their sessions
// to this daemon's.
func (u *upgrade) drainTakenBack(orphans []*orphan) {
	u.d.drainOrphans(u.d.watchOrphans(orphans), u.ready.Own...)
}

func pidsOf(orphans []*orphan) []int {
	pids := make([]int, len(orphans))
	for i, o := range orphans {
		pids[i] = o.pid
	}
	return pids
}
