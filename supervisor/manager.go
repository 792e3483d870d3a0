package supervisor

import (
	"fmt"
	"time"

	"3proxyd/systemd"
)

// statusEvery is how often the service manager is told how things are.
const statusEvery = 5 * time.Second

// tell sends the service manager what happens. A manager that cannot be told
// is reported once.
func (d *daemon) tell(state ...string) {
	if !d.main.Load() {
		return
	}
	if err := systemd.Notify(state...); err != nil && d.untold.CompareAndSwap(false, true) {
		d.logf("warning: the service manager cannot be notified: %v", err)
	}
}

// reportToManager sends the status line, signs of life and, in a drain, the
// wish for more time, until quit is closed. A sign of life is given only when
// the loop that acts on signals turns and the state is not locked up.
func (d *daemon) reportToManager(quit <-chan struct{}) {
	if !systemd.Managed() {
		return
	}
	every, watched := d.watchdogInterval()
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-tick.C:
		case <-quit:
			return
		}
		if watched {
			select {
			case d.alive <- struct{}{}:
				d.tell(systemd.Watchdog)
			case <-quit:
				return
			}
		}
		if line := d.statusLine(); line != last {
			last = line
			d.tell(systemd.Status(line))
		}
		if d.isDraining() {
			d.tell(d.moreTime())
		}
	}
}

// moreTime asks for more time for a drain, well until the next report.
func (d *daemon) moreTime() string { return systemd.ExtendTimeout(3*statusEvery + d.timing.killGrace) }

// watchdogInterval returns the time between two reports, and whether signs of
// life are wanted.
func (d *daemon) watchdogInterval() (time.Duration, bool) {
	limit, err := systemd.WatchdogLimit()
	if err != nil {
		d.logf("warning: no signs of life are given to the service manager: %v", err)
	}
	if limit <= 0 {
		return statusEvery, false
	}
	return max(time.Millisecond, min(statusEvery, limit/3)), true
}

// statusLine is what systemctl status shows.
func (d *daemon) statusLine() string {
	sessions := count(int(d.openSessions()), "session", "sessions")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return fmt.Sprintf("draining: %s left, %d s left", sessions, int(max(0, time.Until(d.drainEnd)).Seconds()))
	}
	running, wanted := 0, 0
	for _, s := range d.slots {
		if !s.retired {
			wanted++
		}
		if s.current != nil && s.current.state == stateRunning {
			running++
		}
	}
	workers := count(running, "worker", "workers")
	if running < wanted {
		workers = fmt.Sprintf("%d of %d workers", running, wanted)
	}
	return fmt.Sprintf("%s, %s, generation %d", sessions, workers, d.current.gen)
}
