package supervisor

import (
	"context"
	"time"

	"3proxyd/systemd"
)

// restartPatience bounds the question whether a stop is part of a restart.
const restartPatience = 2 * time.Second

// stopBySignal drains, unless the service manager only restarts the service:
// then the workers go on serving until the next supervisor has taken over.
func (d *daemon) stopBySignal(how string) {
	if d.restarting() && d.handOver() {
		return
	}
	d.logDrain(d.drainInBackground(drainLimit{timeout: d.drainTimeout()}), how)
}

func (d *daemon) restarting() bool {
	if !systemd.Managed() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), restartPatience)
	defer cancel()
	restarting, err := systemd.Restarting(ctx)
	if err != nil {
		d.logf("this may be a restart, but the service manager cannot be asked: %v", err)
	}
	return restarting
}

// handOver makes serve return with the workers left as they are. Nothing can
// change any more. It is false when the daemon drains already, or has been
// replaced by an upgrade.
func (d *daemon) handOver() bool {
	d.change.Lock()
	if d.isDraining() || d.isReplaced() {
		d.change.Unlock()
		return false
	}
	d.logf("restarting: the workers serve until the next supervisor has taken over")
	d.tell(systemd.Stopping, systemd.Status("restarting: the workers serve on"))
	close(d.handedOver)
	return true
}
