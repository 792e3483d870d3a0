package supervisor

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// messages writes lines for the operator from a goroutine of its own: when the
// terminal or pipe they go to takes no more, lines are dropped, and nothing
// waits.
type messages struct {
	lines   chan string
	quit    chan struct{}
	done    chan struct{}
	dropped atomic.Int64
}

const (
	messageQueue = 256
	// messageFlush is how long stop waits for what is still queued.
	messageFlush = 2 * time.Second
)

func startMessages(w io.Writer) *messages {
	m := &messages{
		lines: make(chan string, messageQueue),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go m.run(w)
	return m
}

func (m *messages) run(w io.Writer) {
	defer close(m.done)
	for {
		select {
		case line := <-m.lines:
			m.write(w, line)
		case <-m.quit:
			m.flush(w)
			return
		}
	}
}

func (m *messages) flush(w io.Writer) {
	for {
		select {
		case line := <-m.lines:
			m.write(w, line)
		default:
			return
		}
	}
}

func (m *messages) write(w io.Writer, line string) {
	_, _ = io.WriteString(w, line)
	if n := m.dropped.Swap(0); n > 0 {
		fmt.Fprintf(w, "3proxyd: %d messages were dropped\n", n)
	}
}

// logf queues a line.
func (m *messages) logf(format string, args ...any) {
	select {
	case m.lines <- fmt.Sprintf("3proxyd: "+format+"\n", args...):
	default:
		m.dropped.Add(1)
	}
}

// stop writes what is queued; later lines are lost.
func (m *messages) stop() {
	close(m.quit)
	select {
	case <-m.done:
	case <-time.After(messageFlush):
	}
}
