package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"3proxyd/bench/lab"
)

// cleaner is a process that removes what this one has made, should it be killed.
type cleaner struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startCleaner starts it before anything is made. Ctrl-C does not reach it.
func startCleaner() (*cleaner, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	c := &cleaner{cmd: exec.Command(path, cmdClean, strconv.Itoa(os.Getpid()))}
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start cleaner: %w", err)
	}
	return c, nil
}

// end tells it that there is nothing left to do.
func (c *cleaner) end() error {
	_, err := io.WriteString(c.in, allClean)
	if err := errors.Join(err, c.in.Close(), c.cmd.Wait()); err != nil {
		return fmt.Errorf("cleaner: %w", err)
	}
	return nil
}

// allClean is what the cleaner reads when its parent has cleaned up itself.
const allClean = "clean\n"

// cleanCommand waits for the parent's end.
func cleanCommand(args []string) error {
	if len(args) != 1 {
		return errors.New("expected a process")
	}
	parent, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("process: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, int64(len(allClean))))
	if err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", parent, err)
	}
	if string(text) == allClean {
		return nil
	}
	// Its descriptors are closed a moment before it is gone.
	for deadline := time.Now().Add(10 * time.Second); lab.Alive(parent) && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	return lab.RemoveStale()
}

// newLab makes a lab that is removed even if this process is killed. The function
// returned removes it.
func newLab(ctx context.Context, cpus lab.CPUs) (l *lab.Lab, remove func() error, err error) {
	c, err := startCleaner()
	if err != nil {
		return nil, nil, err
	}
	if l, err = lab.New(ctx, cpus); err != nil {
		return nil, nil, errors.Join(err, c.end())
	}
	return l, func() error { return errors.Join(l.Close(), c.end()) }, nil
}
