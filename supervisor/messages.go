package supervisor

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"3proxyd/config"
	"3proxyd/systemd"
)

// messages writes lines for the operator from a goroutine of its own: when the
// terminal, pipe or journal they go to takes no more, lines are dropped, and
// nothing waits.
type messages struct {
	lines   chan message
	quit    chan struct{}
	done    chan struct{}
	dropped atomic.Int64
	// journal says that they go to the journal, with their fields.
	journal bool
}

// message is one line and what it is about.
type message struct {
	text     string
	priority systemd.Priority
	fields   map[string]string
}

const (
	messageQueue = 256
	// messageFlush is how long stop waits for what is still queued.
	messageFlush = 2 * time.Second
)

func startMessages(w io.Writer) *messages {
	f, isFile := w.(*os.File)
	m := &messages{
		lines:   make(chan message, messageQueue),
		quit:    make(chan struct{}),
		done:    make(chan struct{}),
		journal: isFile && systemd.JournalAt(f),
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

func (m *messages) write(w io.Writer, line message) {
	m.put(w, line)
	if n := m.dropped.Swap(0); n > 0 {
		m.put(w, message{text: fmt.Sprintf("%d messages were dropped", n), priority: systemd.Warning})
	}
}

func (m *messages) put(w io.Writer, line message) {
	if m.journal && systemd.Journal(line.text, line.priority, line.fields) == nil {
		return
	}
	_, _ = io.WriteString(w, "3proxyd: "+line.text+"\n")
}

// logf queues a line.
func (m *messages) logf(format string, args ...any) {
	line := message{text: fmt.Sprintf(format, args...)}
	if m.journal {
		line.priority, line.fields = priorityOf(line.text), fieldsOf(format, args)
	}
	select {
	case m.lines <- line:
	default:
		m.dropped.Add(1)
	}
}

// priorityOf tells warnings and errors by how their text begins.
func priorityOf(text string) systemd.Priority {
	switch {
	case strings.HasPrefix(text, "warning: ") || strings.Contains(text, ": warning: "):
		return systemd.Warning
	case strings.HasPrefix(text, "reload refused") || strings.HasPrefix(text, "reload failed") || strings.Contains(text, ": error: "):
		return systemd.Error
	}
	return systemd.Info
}

// aboutWorker begins the format of a message about a worker, whose slot and
// process are the first arguments.
const aboutWorker = "worker %d (pid %d)"

// fieldsOf are the fields of a message in the journal: the worker or the place
// in the configuration that it is about.
func fieldsOf(format string, args []any) map[string]string {
	fields := map[string]string{"THREEPROXYD_PROCESS": "supervisor"}
	if strings.HasPrefix(format, aboutWorker) && len(args) >= 2 {
		fields["THREEPROXYD_WORKER"] = fmt.Sprint(args[0])
		fields["THREEPROXYD_WORKER_PID"] = fmt.Sprint(args[1])
	}
	for _, arg := range args {
		if diag, ok := arg.(config.Diagnostic); ok {
			fields["THREEPROXYD_FILE"] = diag.Pos.File
			fields["THREEPROXYD_LINE"] = strconv.Itoa(diag.Pos.Line)
			fields["THREEPROXYD_COLUMN"] = strconv.Itoa(diag.Pos.Column)
		}
	}
	return fields
}

// stop writes what is queued; later lines are lost.
func (m *messages) stop() {
	close(m.quit)
	select {
	case <-m.done:
	case <-time.After(messageFlush):
	}
}
