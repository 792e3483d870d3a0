package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flushSize is the number of bytes at which lines are handed over without
	// a Flush.
	flushSize = 32 << 10
	// bufferSize is the size of one buffer, queueLength how many of them may
	// wait: together 4 MiB.
	bufferSize  = 64 << 10
	queueLength = 4<<20/bufferSize - 1
	// fullSize leaves room for one more line of the usual kind.
	fullSize = bufferSize - 8<<10
	// sayEvery is the least time between two reports of a failure.
	sayEvery = time.Minute
	// spareBuffers is how many unused buffers are kept.
	spareBuffers = 4
)

// Writer takes lines to one log file. Append, Log, Flush, Buffered and Close
// belong to one goroutine, an event loop, and but for Close they never wait:
// lines gather in a buffer of the loop, full buffers go to a goroutine that
// writes them, each with one write(2) so that several processes may append to
// the same file. When the queue is full (4 MiB of buffers), further lines are
// dropped and counted.
type Writer struct {
	current []byte
	full    chan []byte
	spare   chan []byte
	done    chan struct{}
	dropped atomic.Uint64

	// The rest belongs to the writing goroutine.
	out     io.WriteCloser
	name    string
	onError func(error)
	failing bool
	// said is when the last failure was reported, reported says that no
	// success has been since.
	said     time.Time
	reported bool
	// torn is set when the file may end inside a line.
	torn bool

	closeOnce sync.Once
}

// NewWriter starts a writer to out, which it closes in the end; name is for
// messages. A write that fails (disk full) loses its lines, which are counted,
// and writing goes on with the next: onError, when it is not nil, is called
// with the error, once a minute while writes fail, and with nil when writing
// works again, from a goroutine of its own.
func NewWriter(out io.WriteCloser, name string, onError func(error)) *Writer {
	w := &Writer{
		full:    make(chan []byte, queueLength),
		spare:   make(chan []byte, spareBuffers),
		done:    make(chan struct{}),
		out:     out,
		name:    name,
		onError: onError,
	}
	if w.onError == nil {
		w.onError = func(error) {}
	}
	go w.run()
	return w
}

// Log appends the line of a record.
func (w *Writer) Log(f *Format, r *Record) {
	if w.room() {
		w.finish(f.Append(w.current, r))
	}
}

// room makes room for a line, or counts it as dropped.
func (w *Writer) room() bool {
	if len(w.current) >= flushSize {
		w.handOver()
	}
	if len(w.current) >= fullSize {
		w.dropped.Add(1)
		return false
	}
	if w.current != nil {
		return true
	}
	select {
	case w.current = <-w.spare:
	default:
		w.current = make([]byte, 0, bufferSize)
	}
	return true
}

func (w *Writer) finish(line []byte) {
	w.current = append(line, '\n')
	if len(w.current) >= flushSize {
		w.handOver()
	}
}

// Buffered is the number of bytes that a Flush would hand over.
func (w *Writer) Buffered() int { return len(w.current) }

// Flush hands over what has been appended. While earlier lines still wait to
// be written it does nothing, so that a slow disk sees few large writes: call
// it again while Buffered is not 0. It wakes a goroutine, so an event loop
// calls it every few milliseconds rather than for every line.
func (w *Writer) Flush() {
	if len(w.current) > 0 && len(w.full) == 0 {
		w.handOver()
	}
}

func (w *Writer) handOver() {
	select {
	case w.full <- w.current:
		w.current = nil
	default:
	}
}

// Dropped is the number of lines lost so far, because the queue was full or a
// write failed. It may be called from any goroutine.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

// Close writes what is left, waiting no longer than the limit, and closes the
// file. The Writer cannot be used any more.
func (w *Writer) Close(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	late := false
	if len(w.current) > 0 {
		select {
		case w.full <- w.current:
		case <-timer.C:
			late = true
			w.dropped.Add(lines(w.current))
		}
		w.current = nil
	}
	close(w.full)
	if !late {
		select {
		case <-w.done:
			return nil
		case <-timer.C:
		}
	}
	w.closeFile()
	return fmt.Errorf("access log %s: not written within %v", w.name, limit)
}

func (w *Writer) closeFile() {
	w.closeOnce.Do(func() {
		if err := w.out.Close(); err != nil {
			w.onError(fmt.Errorf("close access log %s: %w", w.name, err))
		}
	})
}

func (w *Writer) run() {
	defer close(w.done)
	defer w.closeFile()
	for buf := range w.full {
		w.write(buf)
		if cap(buf) > 2*bufferSize {
			continue
		}
		select {
		case w.spare <- buf[:0]:
		default:
		}
	}
}

func (w *Writer) write(buf []byte) {
	whole := lines(buf)
	// While writes fail another process may have torn a line of the same
	// file: an empty line is better than two lines in one.
	if w.torn || w.failing {
		buf = append([]byte{'\n'}, buf...)
	}
	n, err := w.out.Write(buf)
	n = max(0, min(n, len(buf)))
	if n > 0 {
		w.torn = buf[n-1] != '\n'
	}
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil {
		w.recovered()
		return
	}
	w.dropped.Add(min(whole, lines(buf[n:])))
	w.failing = true
	if time.Since(w.said) >= sayEvery {
		w.said, w.reported = time.Now(), true
		w.onError(fmt.Errorf("write access log %s: %w", w.name, err))
	}
}

func (w *Writer) recovered() {
	w.failing = false
	if w.reported {
		w.reported = false
		w.onError(nil)
	}
}

func lines(buf []byte) uint64 { return uint64(bytes.Count(buf, []byte{'\n'})) }
