package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchControl opens the control socket again, until quit is closed, when its
// file has been removed: nobody could reach the daemon any more.
func (d *daemon) watchControl(quit <-chan struct{}) {
	failed := false
	every(d.timing.watch, quit, func(time.Time) {
		if !d.control.isGone() || d.isDraining() || d.isUpgrading() != nil || !d.change.TryLock() {
			return
		}
		defer d.change.Unlock()
		err := d.reopenControl()
		switch {
		case err == nil:
			d.logf("the control socket %s had been removed: it is opened anew", d.control.path)
		case !failed:
			d.logf("warning: the control socket %s has been removed, and cannot be opened anew: %v", d.control.path, err)
		}
		failed = err != nil
	})
}

// isGone says that the file of the socket is not there any more.
func (s *controlServer) isGone() bool {
	if s.path == "" || s.path[0] == '@' {
		return false
	}
	_, err := os.Lstat(s.path)
	return errors.Is(err, fs.ErrNotExist)
}

// reopenControl puts another socket in the place of the present one. The caller
// holds daemon.change.
func (d *daemon) reopenControl() error {
	next, err := openControl(d.startConfig.Control, d.control.path)
	if err != nil {
		return err
	}
	s := d.control
	_ = s.listener.Close()
	_ = unix.Close(s.fd)
	s.file, s.fd, s.listener, s.borrowed = next.file, next.fd, next.listener, false
	go s.answer(s.listener)
	d.syncStore()
	return nil
}
