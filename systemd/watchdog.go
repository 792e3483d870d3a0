package systemd

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// WatchdogLimit returns the time within which the manager expects Watchdog
// again and again (WatchdogSec=), 0 when it does not or watches another
// process.
func WatchdogLimit() (time.Duration, error) { return daemon.SdWatchdogEnabled(false) }
