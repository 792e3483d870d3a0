package supervisor

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// watchLogs looks once in a while, until quit is closed, whether the logs are
// still found at their paths: lines go on into a file that has been removed,
// where nobody will read them.
func (d *daemon) watchLogs(quit <-chan struct{}) {
	every(d.timing.logs, quit, func(time.Time) {
		snap := d.acquire()
		if snap == nil {
			return
		}
		for _, l := range snap.logs {
			if err := l.misplaced(); err != nil {
				d.logf("warning: the access log %s: %v; a reload opens it anew", l.path, err)
			}
		}
		d.release(snap)
	})
}

// misplaced says why the open log is not the file at its path. A log that is
// not a regular file may be a pipe or a terminal, and is left alone.
func (l logFile) misplaced() error {
	var open, now unix.Stat_t
	if unix.Fstat(l.fd, &open) != nil || open.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	err := unix.Stat(l.path, &now)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return errors.New("the file is gone, its lines are lost")
	case err != nil:
		return fmt.Errorf("the file cannot be found: %w", err)
	case open.Dev != now.Dev || open.Ino != now.Ino:
		return errors.New("another file has taken its place, lines go on into the old one")
	}
	return nil
}
