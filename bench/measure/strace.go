package measure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Trace counts the system calls of processes by strace(1).
type Trace struct {
	cmd *exec.Cmd
	out string
}

// ErrNoStrace means that system calls cannot be counted on this machine.
var ErrNoStrace = errors.New("strace is not installed")

// StartTrace attaches to pids and their threads, and returns once that is done.
// out is a file for strace's result.
func StartTrace(ctx context.Context, pids []int, out string) (*Trace, error) {
	path, err := exec.LookPath("strace")
	if err != nil {
		return nil, ErrNoStrace
	}
	args := []string{"-f", "-c", "-S", "calls", "-o", out}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	t := &Trace{cmd: exec.Command(path, args...), out: out}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start strace: %w", err)
	}
	if err := t.waitAttached(ctx, pids); err != nil {
		_, stopErr := t.Stop()
		return nil, errors.Join(err, stopErr)
	}
	return t, nil
}

// waitAttached waits until every thread of pids has a tracer.
func (t *Trace) waitAttached(ctx context.Context, pids []int) error {
	for {
		if allTraced(pids) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("strace does not attach: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func allTraced(pids []int) bool {
	for _, pid := range pids {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue // it has ended
		}
		for _, task := range tasks {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
			if err == nil && bytes.Contains(text, []byte("\nTracerPid:\t0\n")) {
				return false
			}
		}
	}
	return true
}

// Stop detaches and returns the number of calls by name.
func (t *Trace) Stop() (map[string]int64, error) {
	_ = t.cmd.Process.Signal(syscall.SIGINT)
	timer := time.AfterFunc(5*time.Second, func() { _ = t.cmd.Process.Kill() })
	_ = t.cmd.Wait() // strace ends by the signal it was sent
	timer.Stop()
	text, err := os.ReadFile(t.out)
	if err != nil {
		return nil, fmt.Errorf("read strace's result: %w", err)
	}
	return parseTrace(text)
}

// parseTrace reads the table that strace -c writes: calls are the fourth
// column and the name is the last one.
func parseTrace(text []byte) (map[string]int64, error) {
	calls := make(map[string]int64)
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		f := strings.Fields(scan.Text())
		if len(f) < 5 || f[0] == "%" || strings.HasPrefix(f[0], "-") || f[len(f)-1] == "total" {
			continue
		}
		n, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("strace's line %q is not understood", scan.Text())
		}
		calls[f[len(f)-1]] += n
	}
	return calls, nil
}
