package supervisor

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"3proxyd/ipc"
)

// The bounds of an upgrade's times.
const (
	maxUpgradeTrial   = 10 * time.Minute
	maxUpgradeTimeout = 10 * time.Minute
)

var errForeignBinary = errors.New("only root and the daemon's user may name another binary than the daemon's own")

// upgrade answers PathUpgrade. The upgrade goes on when the client is gone.
func (a *controlAPI) upgrade(w http.ResponseWriter, r *http.Request) {
	body, err := readBody[ipc.UpgradeRequest](r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body is not an upgrade request: %w", err))
		return
	}
	request, err := a.upgradeRequest(body, r)
	if errors.Is(err, errForeignBinary) {
		fail(w, http.StatusForbidden, err)
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	result, err := a.daemon.upgradeTo(request)
	answerResult(w, result, err)
}

// upgradeRequest checks a request. The owner of the control socket may control
// the daemon, but must not become its user by having it run a file.
func (a *controlAPI) upgradeRequest(body ipc.UpgradeRequest, r *http.Request) (upgradeRequest, error) {
	u := a.daemon.defaultUpgrade()
	if body.Binary != "" && body.Binary != u.binary {
		if !filepath.IsAbs(body.Binary) {
			return u, fmt.Errorf("binary %q is not an absolute path", body.Binary)
		}
		peer, _ := r.Context().Value(peerKey{}).(ipc.Peer)
		if peer.UID != 0 && peer.UID != os.Geteuid() {
			return u, errForeignBinary
		}
		u.binary = body.Binary
	}
	if err := setTime(&u.trial, "trial_seconds", body.TrialSec, maxUpgradeTrial); err != nil {
		return u, err
	}
	return u, setTime(&u.timeout, "timeout_seconds", body.TimeoutSec, maxUpgradeTimeout)
}

// setTime sets t to a number of seconds, if there is one.
func setTime(t *time.Duration, name string, seconds *float64, most time.Duration) error {
	if seconds == nil {
		return nil
	}
	if s := *seconds; !(s >= 0 && s <= most.Seconds()) {
		return fmt.Errorf("%s must be from 0 to %.0f", name, most.Seconds())
	}
	*t = time.Duration(*seconds * float64(time.Second))
	return nil
}
