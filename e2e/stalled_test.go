package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watchdogTime is the silence after which a worker is replaced.
const watchdogTime = 15 * time.Second

// TestStalledWorker stops a worker: new connections are served meanwhile, even
// those in its queue, and it is replaced after it has printed its goroutines.
func TestStalledWorker(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nmaxconn 100\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	d.dumped = true
	var before []net.Conn
	for range 20 {
		c := dial(t, ppm)
		mustPing(t, c)
		before = append(before, c)
	}
	pid, other := d.worker(0).PID, d.worker(1).PID
	lost := 0
	for _, s := range d.conns() {
		if s.Worker == 0 {
			lost++
		}
	}
	freeze(t, pid)
	began := time.Now()
	var queued []net.Conn
	for range 50 {
		c := dial(t, ppm)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		queued = append(queued, c)
	}
	for i, c := range queued {
		if err := pong(c); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
	}
	if waited := time.Since(began); waited > watchdogTime-time.Second {
		t.Errorf("the queue was served after %v", waited)
	}
	if !alive(pid) {
		t.Error("the stopped worker ended too early")
	}
	d.awaitWorker(0, pid)
	if waited := time.Since(began); waited < watchdogTime-6*time.Second {
		t.Errorf("the worker was replaced after %v", waited)
	}
	if d.worker(1).PID != other {
		t.Error("the other worker was replaced")
	}
	text := d.out.String()
	for _, want := range []string{
		fmt.Sprintf("worker 0 (pid %d) has not answered for", pid),
		"SIGABRT", "relay.(*Loop).Run",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output does not have %q", want)
		}
	}
	survived := 0
	for _, c := range before {
		if ping(c) == nil {
			survived++
		}
	}
	if survived != len(before)-lost {
		t.Errorf("%d of %d sessions survived, %d were the stopped worker's", survived, len(before), lost)
	}
	for range 20 {
		mustPing(t, dial(t, ppm))
	}
}

// TestGroupSignals sends every signal the supervisor acts upon, or a terminal
// sends, to the workers alone: they go on.
func TestGroupSignals(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	pids := []int{d.worker(0).PID, d.worker(1).PID}
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH, syscall.SIGCONT,
	} {
		for i, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			if err := ping(c); err != nil {
				t.Fatalf("after %v: %v", sig, err)
			}
			if w := d.worker(i); w.PID != pid || w.State != "running" {
				t.Fatalf("after %v: %+v", sig, w)
			}
		}
	}
}
