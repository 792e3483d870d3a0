package relay

import (
	"sync"

	"3proxyd/internal/sys"
)

// inbox holds the functions that other goroutines hand to the loop.
type inbox struct {
	mu     sync.Mutex
	fns    []func()
	closed bool
}

// Post has fn called on the loop's thread. It may be called from any
// goroutine, never blocks and keeps the order of calls from one goroutine.
// After the loop has ended it does nothing.
func (l *Loop) Post(fn func()) {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if l.inbox.closed {
		return
	}
	l.inbox.fns = append(l.inbox.fns, fn)
	if len(l.inbox.fns) == 1 {
		sys.Wake(l.wakefd)
	}
}

// runPosted calls what has been posted; it runs when the eventfd says so.
func (l *Loop) runPosted() {
	l.inbox.mu.Lock()
	fns := l.inbox.fns
	l.inbox.fns = nil
	l.inbox.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

// closeInbox makes Post do nothing, so that it cannot write to a descriptor
// that has been closed.
func (l *Loop) closeInbox() {
	l.inbox.mu.Lock()
	l.inbox.closed = true
	l.inbox.fns = nil
	l.inbox.mu.Unlock()
}
