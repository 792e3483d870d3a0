package relay

import "3proxyd/internal/sys"

// task is a function handed to the loop by another goroutine.
type task struct {
	fn   func()
	next *task
}

// Post has fn called on the loop's thread. It may be called from any
// goroutine, never blocks and keeps the order of calls from one goroutine.
func (l *Loop) Post(fn func()) {
	t := &task{fn: fn}
	for {
		head := l.posted.Load()
		t.next = head
		if l.posted.CompareAndSwap(head, t) {
			if head == nil {
				sys.Wake(l.wakefd)
			}
			return
		}
	}
}

func (l *Loop) runPosted() {
	var first *task
	for t := l.posted.Swap(nil); t != nil; {
		next := t.next
		t.next = first
		first, t = t, next
	}
	for t := first; t != nil; t = t.next {
		t.fn()
	}
}
