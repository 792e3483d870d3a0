package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"3proxyd/ipc"
)

const (
	// maxSessionLine bounds the JSON of one session in bytes.
	maxSessionLine = 64 << 10
	// connsLeast is the time a worker has at least to list its sessions.
	connsLeast = time.Second
)

// conns streams the live sessions of every worker, one after the other, and then
// those of old generations. When a worker does not answer in time a line says which, and the answer breaks
// off, so that the client does not take it for complete.
func (a *controlAPI) conns(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	stream := &streamWriter{w: w, control: http.NewResponseController(w)}
	if stream.flush() != nil {
		return
	}
	deadline := time.Now().Add(a.daemon.timing.conns)
	complete := true
	for _, p := range a.daemon.allProcesses() {
		err := errNoAnswer
		if !p.stalled(a.daemon) {
			// One that is silent does not use up the time of the next.
			err = a.daemon.workerConns(p, stream, later(deadline, time.Now().Add(connsLeast)))
		}
		if err == nil {
			continue
		}
		complete = false
		if stream.failed || stream.silent(p, err) != nil {
			break
		}
	}
	for _, o := range a.daemon.oldGenerations() {
		if stream.failed {
			break
		}
		if err := a.daemon.oldConns(o, stream, later(deadline, time.Now().Add(connsLeast))); err != nil {
			complete = false
			_ = json.NewEncoder(stream).Encode(ipc.APIError{
				Error: fmt.Sprintf("the old generation (pid %d) does not list its sessions: %v", o.PID, err),
			})
		}
	}
	if !complete {
		_ = stream.flush()
		panic(http.ErrAbortHandler) // net/http's way to break off an answer
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// streamWriter gives the client controlWrite for each part of an answer.
type streamWriter struct {
	w       io.Writer
	control *http.ResponseController
	// failed says that the client is gone or does not read.
	failed bool
}

// Write writes a part of the answer.
func (s *streamWriter) Write(b []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(controlWrite))
	n, err := s.w.Write(b)
	s.failed = s.failed || err != nil
	return n, err
}

func (s *streamWriter) flush() error {
	_ = s.control.SetWriteDeadline(time.Now().Add(controlWrite))
	return s.control.Flush()
}

// silent writes a line about a worker whose sessions are missing.
func (s *streamWriter) silent(p *process, err error) error {
	text := "does not list its sessions: " + err.Error()
	if errors.Is(err, errNoAnswer) || errors.Is(err, os.ErrDeadlineExceeded) {
		text = "does not answer"
	}
	return json.NewEncoder(s).Encode(ipc.APIError{Error: fmt.Sprintf("worker %d (pid %d) %s", p.slot.index, p.pid, text)})
}

// workerConns copies the sessions of one worker to w. A worker that ends
// meanwhile has no sessions any more.
func (d *daemon) workerConns(p *process, w io.Writer, deadline time.Time) error {
	r, end, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.SetReadDeadline(deadline); err != nil {
		_ = end.Close()
		return err
	}
	// No reply follows, so that the worker's exchanges are not in the way.
	err = p.conn.Send(ipc.MsgConns, 0, nil, int(end.Fd()))
	_ = end.Close()
	if err != nil {
		return nil
	}
	return copyLines(w, r)
}

// copyLines copies complete lines only: a worker may be killed while it
// writes.
func copyLines(w io.Writer, r io.Reader) error {
	lines := bufio.NewReaderSize(r, maxSessionLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}
