package supervisor

import (
	"errors"

	"golang.org/x/sys/unix"
)

// reloadBySignal reloads, once for all the signals that come before the
// configuration is read. In an upgrade it follows at the end, in the daemon that
// goes on: the new one has read the configuration before.
func (d *daemon) reloadBySignal() {
	d.mu.Lock()
	u := d.upgrading
	waits := d.reloadAsked || u != nil && u.reloadAsked
	if u != nil {
		u.reloadAsked = true
	} else {
		d.reloadAsked = true
	}
	d.mu.Unlock()
	switch {
	case waits:
	case u != nil:
		d.logf("the configuration is read again when the upgrade has ended")
	default:
		d.drained.Go(func() {
			if _, err := d.reload(false); errors.Is(err, errUpgrading) {
				d.reloadBySignal() // the upgrade has begun in between
			}
		})
	}
}

// reloadBegins says that signals from now on ask for another reload.
func (d *daemon) reloadBegins() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reloadAsked = false
}

// reloadAfter does what signals during an upgrade have asked for.
func (d *daemon) reloadAfter(u *upgrade, failed bool) {
	if failed {
		d.reloadBySignal()
		return
	}
	_ = unix.Kill(u.proc.pid, unix.SIGHUP)
}
