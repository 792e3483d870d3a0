package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"3proxyd/bench/load"
	"3proxyd/bench/origin"
)

// child is a role of this program running as a process of its own, led by lines
// on its input and answering by lines on its output.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr *tail
	exited chan struct{}
}

// place starts processes somewhere; a lab.Role is one.
type place interface {
	Start(cmd *exec.Cmd) error
}

// startSelf starts this program as a role.
func startSelf(r place, args ...string) (*child, error) {
	return startSelfWith(r, nil, args...)
}

// startSelfWith starts this program as a role that has files as its descriptors
// from 3 on.
func startSelfWith(r place, files []*os.File, args ...string) (*child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	c := &child{
		cmd: exec.Command(path, args...), stderr: &tail{},
		lines: make(chan string, 64), exited: make(chan struct{}),
	}
	c.cmd.Stderr = c.stderr
	c.cmd.ExtraFiles = files
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	if err := r.Start(c.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	go c.read(out)
	return c, nil
}

func (c *child) read(out io.Reader) {
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		c.lines <- scan.Text()
	}
	close(c.lines)
	_ = c.cmd.Wait() // what it had to say is on its stderr
	close(c.exited)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// say sends a command.
func (c *child) say(line string) error {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return fmt.Errorf("send %q to %s: %w; it wrote: %s", line, c.cmd.Args[1], err, c.stderr)
	}
	return nil
}

// hear returns the next line.
func (c *child) hear(ctx context.Context, wait time.Duration) (string, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case line, ok := <-c.lines:
		if !ok {
			return "", fmt.Errorf("%s ended: %s", c.cmd.Args[1], c.stderr)
		}
		return line, nil
	case <-timer.C:
		return "", fmt.Errorf("%s says nothing for %v", c.cmd.Args[1], wait)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// expect returns the load generator's next event, which must be the named one.
func (c *child) expect(ctx context.Context, name string, wait time.Duration) (load.Event, error) {
	var ev load.Event
	line, err := c.hear(ctx, wait)
	if err != nil {
		return ev, fmt.Errorf("wait for %q: %w", name, err)
	}
	if err := json.Unmarshal([]byte(line), &ev); err != nil {
		return ev, fmt.Errorf("load generator: %w", err)
	}
	if ev.Event == load.Failed {
		return ev, errors.New(ev.Error)
	}
	if ev.Event != name {
		return ev, fmt.Errorf("load generator reports %q instead of %q", ev.Event, name)
	}
	return ev, nil
}

// originStats asks the origin for its totals.
func (c *child) originStats(ctx context.Context) (origin.Stats, error) {
	var st origin.Stats
	return st, c.ask(ctx, &st)
}

// ask puts a role's totals into st.
func (c *child) ask(ctx context.Context, st any) error {
	if err := c.say("stats"); err != nil {
		return err
	}
	line, err := c.hear(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), st); err != nil {
		return fmt.Errorf("totals of %s: %w", c.cmd.Args[1], err)
	}
	return nil
}

// end lets the child finish, and kills it if it does not.
func (c *child) end() {
	_ = c.in.Close()
	select {
	case <-c.exited:
	case <-time.After(3 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// tail keeps the last size bytes written to it, tailSize if that is 0.
type tail struct {
	mu   sync.Mutex
	data []byte
	size int
}

const tailSize = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	size := t.size
	if size == 0 {
		size = tailSize
	}
	if extra := len(t.data) - size; extra > 0 {
		t.data = append([]byte(nil), t.data[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}
