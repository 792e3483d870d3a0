package supervisor

import (
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// stalled says that the process has not shown for the watchdog's time that its
// event loop turns.
func (p *process) stalled(d *daemon) bool { return p.silence(d) > d.timing.silent }

// silence is how long ago the process has shown that its event loop turns,
// which it does every five seconds. Its row may still have the heartbeat of a
// predecessor.
func (p *process) silence(d *daemon) time.Duration {
	var now unix.Timespec
	if p.row == noRow {
		return 0
	}
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	beat := d.shm.Loop(p.row).Get(ipc.Heartbeat)
	return silence(time.Duration(now.Nano()), beat, time.Since(p.started))
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
