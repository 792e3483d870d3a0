package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchControl opens the control socket again, until quit is closed, when its
// file has been removed: nobody could reach the daemon any more. What has taken its
// place is another's, and only said.
func (d *daemon) watchControl(quit <-chan struct{}) {
	failed, taken := false, false
	every(d.timing.watch, quit, func(time.Time) {
		if was := taken; d.change.TryLock() {
			taken = d.control.isTaken()
			d.change.Unlock()
			if taken && !was && d.main.Load() && !d.isDraining() {
				d.logf("warning: the control socket %s is not this daemon's any more: nobody reaches it until what is there is removed", d.control.path)
			}
		}
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

// isTaken says that something else is at the path of the socket.
func (s *controlServer) isTaken() bool {
	var st unix.Stat_t
	return s.file.path != "" && unix.Lstat(s.file.path, &st) == nil && (uint64(st.Dev) != s.file.dev || st.Ino != s.file.ino)
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
