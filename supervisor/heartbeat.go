package supervisor

import (
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// silentAfter is the age of a heartbeat, which a worker gives every five
// seconds, that shows that its event loop does not turn.
const silentAfter = 15 * time.Second

// stalled says that the process has not shown for a while that its event loop
// turns. Its row may still have the heartbeat of a predecessor.
func (p *process) stalled(d *daemon) bool {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return false
	}
	beat := d.shm.Loop(p.row).Get(ipc.Heartbeat)
	return silence(time.Duration(now.Nano()), beat, time.Since(p.started)) > silentAfter
}

// silence is the age of a heartbeat at beatMS milliseconds, at most that of
// the process.
func silence(now time.Duration, beatMS uint64, age time.Duration) time.Duration {
	nowMS := uint64(now.Milliseconds())
	if beatMS >= nowMS {
		return 0
	}
	return min(time.Duration(nowMS-beatMS)*time.Millisecond, age)
}
