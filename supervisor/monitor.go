package supervisor

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// monitor reloads when a file named by the monitor command changes. It looks at
// what stat(2) says about them, which works on every file system and for files
// that are replaced by renaming.
type monitor struct {
	mu sync.Mutex
	// loaded is what the files were when the configuration was last read, last
	// what they were when last looked at; gone are those reported as missing.
	loaded, last map[string]fileState
	gone         map[string]bool
	// retryAt is when a reload that failed for another reason than the
	// configuration is tried again.
	retryAt time.Time
}

// fileState tells one content of a path from another; the zero value is no
// file.
type fileState struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stateOf(path string) fileState {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return fileState{}
	}
	return fileState{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

// monitorRetry is the time to the next attempt after a failed one.
const monitorRetry = 10 * time.Second

// noteFiles is called before the configuration is read, so that a change that
// this reading sees makes no second one.
func (m *monitor) noteFiles(paths []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded, m.last = map[string]fileState{}, map[string]fileState{}
	m.retryAt = time.Time{}
	for _, path := range paths {
		m.loaded[path] = stateOf(path)
		m.last[path] = m.loaded[path]
	}
}

// look says whether a file has changed and all of them have settled: a file
// that is just being written is different the next time. A missing file is
// waited for. vanished are files that were there the last time.
func (m *monitor) look(paths []string, now time.Time) (changed bool, vanished []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	settled := now.After(m.retryAt)
	gone := map[string]bool{}
	for _, path := range paths {
		state := stateOf(path)
		loaded, known := m.loaded[path]
		if !known {
			loaded = state
			m.loaded[path], m.last[path] = state, state
		}
		settled = settled && state == m.last[path]
		m.last[path] = state
		switch {
		case state == fileState{}:
			gone[path] = true
			if !m.gone[path] {
				vanished = append(vanished, path)
			}
		case state != loaded:
			changed = true
		}
	}
	m.gone = gone
	return changed && settled, vanished
}

func (m *monitor) retryLater(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = map[string]fileState{}
	for path := range m.last {
		m.loaded[path] = fileState{}
	}
	m.retryAt = now.Add(monitorRetry)
}

// monitorFiles looks at the files until quit is closed.
func (d *daemon) monitorFiles(quit <-chan struct{}) {
	every(d.timing.monitor, quit, func(now time.Time) {
		files := d.inForce().cfg.Monitor
		if len(files) == 0 || d.isDraining() {
			return
		}
		changed, vanished := d.monitor.look(files, now)
		for _, path := range vanished {
			d.logf("monitored file %s is gone; the configuration in force stays until it is back", path)
		}
		if changed {
			d.reloadChanged()
		}
	})
}

// reloadChanged reloads; what is wrong with the configuration is the
// operator's to mend, what failed otherwise is tried again.
func (d *daemon) reloadChanged() {
	d.logf("a monitored file has changed")
	_, err := d.reload(false)
	var refused *Refused
	if err != nil && !errors.As(err, &refused) {
		d.monitor.retryLater(time.Now())
	}
}
