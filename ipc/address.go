package ipc

import (
	"fmt"
	"path/filepath"
)

// systemControlPath is where the control socket of a daemon started by root
// listens unless the configuration says otherwise.
const systemControlPath = "/run/3proxy/control.sock"

// ControlPaths returns where the control socket of a daemon started by user
// uid may be unless the configuration says otherwise: DefaultControlPath, and
// the user's directory in /tmp, which it falls back to when the directory of
// the first cannot be made.
func ControlPaths(uid int, runtimeDir string) []string {
	first, last := DefaultControlPath(uid, runtimeDir), temporaryControlPath(uid)
	if first == last {
		return []string{first}
	}
	return []string{first, last}
}

func temporaryControlPath(uid int) string {
	return filepath.Join("/tmp", fmt.Sprintf("3proxy-%d", uid), "control.sock")
}

// DefaultControlPath returns where the control socket of a daemon started by
// user uid listens unless the configuration says otherwise: for root
// systemControlPath, else 3proxy/control.sock in runtimeDir (XDG_RUNTIME_DIR),
// else a directory of the user's own in /tmp.
func DefaultControlPath(uid int, runtimeDir string) string {
	switch {
	case uid == 0:
		return systemControlPath
	case filepath.IsAbs(runtimeDir):
		return filepath.Join(runtimeDir, "3proxy", "control.sock")
	}
	return temporaryControlPath(uid)
}
