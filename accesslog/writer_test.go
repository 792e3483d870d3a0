package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 20 * time.Second

// appendLine does what Log does with the line of a record.
func (w *Writer) appendLine(line string) {
	if w.room() {
		w.finish(append(w.current, line...))
	}
}

func TestWriterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(file, path, func(err error) { t.Errorf("error callback: %v", err) })
	f, err := Compile("G%E %n")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for i := range 5000 {
		w.Log(f, &Record{Code: i, Host: "a.test"})
		fmt.Fprintf(&want, "%05d a.test\n", i)
		if i%700 == 0 {
			w.Flush()
		}
	}
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes in the file, want %d", len(got), want.Len())
	}
	if w.Dropped() != 0 {
		t.Errorf("%d lines dropped", w.Dropped())
	}
	if err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file was not closed: %v", err)
	}
}

// gate is a file that can be held up and made to fail.
type gate struct {
	mu     sync.Mutex
	open   *sync.Cond
	locked bool
	closed bool
	err    error
	take   int // bytes taken by a failing write
	data   bytes.Buffer
	writes int
}

func newGate(locked bool) *gate {
	g := &gate{locked: locked}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(locked bool, take int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.locked, g.take, g.err = locked, take, err
	g.open.Broadcast()
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes++
	g.open.Broadcast()
	for g.locked && !g.closed {
		g.open.Wait()
	}
	if g.closed {
		return 0, os.ErrClosed
	}
	if g.err != nil {
		n := min(g.take, len(p))
		g.data.Write(p[:n])
		return n, g.err
	}
	return g.data.Write(p)
}

func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.open.Broadcast()
	return nil
}

// await waits for the n-th write to begin.
func (g *gate) await(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.writes < n {
		g.open.Wait()
	}
}

func TestWriterSlowFile(t *testing.T) {
	g := newGate(true)
	w := NewWriter(g, "slow", nil)
	w.appendLine("first")
	w.Flush()
	g.await(1)

	text := strings.Repeat("x", 99)
	const total = 100_000 // 10 MB
	for i := range total {
		w.appendLine(text)
		if i%100 == 0 {
			w.Flush()
		}
	}
	queued := 0
	for range len(w.full) {
		buf := <-w.full
		queued += cap(buf)
		w.full <- buf
	}
	if queued += cap(w.current); queued > 4<<20 {
		t.Errorf("%d bytes of buffers wait", queued)
	}
	dropped := w.Dropped()
	if dropped == 0 || dropped == total {
		t.Fatalf("%d of %d lines dropped", dropped, total)
	}
	g.set(false, 0, nil)
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
	written := bytes.Count(g.data.Bytes(), []byte{'\n'})
	if uint64(written) != total+1-dropped {
		t.Errorf("%d lines written, %d dropped of %d", written, dropped, total+1)
	}
	if g.data.Len() != 6+100*(written-1) {
		t.Error("torn lines")
	}
}

func TestWriterCloseLimit(t *testing.T) {
	g := newGate(true)
	w := NewWriter(g, "stuck", nil)
	w.appendLine("x")
	w.Flush()
	g.await(1)
	w.appendLine("y")
	if err := w.Close(10 * time.Millisecond); err == nil {
		t.Fatal("no error from a file that takes nothing")
	}
	<-w.done
	if w.Dropped() != 2 {
		t.Errorf("%d lines dropped, want 2", w.Dropped())
	}
}

func TestWriterErrors(t *testing.T) {
	g := newGate(false)
	calls := make(chan error, 10)
	w := NewWriter(g, "full", func(err error) { calls <- err })
	write := func(n int, s string) {
		w.appendLine(s)
		for w.Buffered() > 0 {
			w.Flush()
		}
		g.await(n)
	}
	g.set(false, 2, syscall.ENOSPC)
	write(1, "lost1")
	if err := <-calls; !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "full") {
		t.Errorf("callback: %v", err)
	}
	g.set(false, 0, syscall.ENOSPC)
	write(2, "lost2")
	write(3, "lost3")
	// The third write must have returned before the file works again.
	for deadline := time.Now().Add(20 * time.Second); w.Dropped() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d lines are lost, want 3", w.Dropped())
		}
	}
	g.set(false, 0, nil)
	write(4, "kept")
	if err := <-calls; err != nil {
		t.Errorf("callback after recovery: %v", err)
	}
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
	if got := g.data.String(); got != "lo\nkept\n" {
		t.Errorf("file: %q", got)
	}
	if w.Dropped() != 3 || len(calls) != 0 {
		t.Errorf("%d lines dropped, %d more calls", w.Dropped(), len(calls))
	}
}

func TestWriterDiskFull(t *testing.T) {
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	calls := make(chan error, 10)
	w := NewWriter(file, "/dev/full", func(err error) { calls <- err })
	w.appendLine("x")
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
	if err := <-calls; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("callback: %v", err)
	}
	if w.Dropped() != 1 {
		t.Errorf("%d lines dropped", w.Dropped())
	}
}

func TestWriterAllocates(t *testing.T) {
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(file, os.DevNull, nil)
	f, err := Compile(defaultFormat)
	if err != nil {
		t.Fatal(err)
	}
	r := testRecord()
	w.Log(f, r)
	if n := testing.AllocsPerRun(100, func() { w.Log(f, r) }); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
	if err := w.Close(patience); err != nil {
		t.Fatal(err)
	}
}
