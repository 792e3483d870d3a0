package supervisor

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"3proxyd/ipc"
)

// maxSessionLine bounds the JSON of one session in bytes.
const maxSessionLine = 64 << 10

// conns streams the live sessions of every worker, one after the other. When
// a worker does not answer in time the answer breaks off, so that the client
// does not take it for complete.
func (a *controlAPI) conns(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jsonl")
	deadline := time.Now().Add(a.daemon.timing.conns)
	for _, p := range a.daemon.allProcesses() {
		if err := a.daemon.workerConns(p, w, deadline); err != nil {
			panic(http.ErrAbortHandler) // net/http's way to break off an answer
		}
	}
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
