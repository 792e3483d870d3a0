package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"3proxyd/internal/sys"
)

// countCalls counts the system calls of a process while do runs.
func countCalls(t *testing.T, pid int, do func()) map[string]int {
	t.Helper()
	strace := need(t, "strace")
	path := filepath.Join(t.TempDir(), "calls")
	var out output
	cmd := exec.Command(strace, "-f", "-c", "-o", path, "-p", strconv.Itoa(pid))
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	eventually(t, patience, func() string {
		select {
		case <-exited:
			skip(t, "strace: %s", strings.TrimSpace(out.String()))
		default:
		}
		if !strings.Contains(out.String(), "attached") {
			return "strace has not attached"
		}
		return ""
	})
	do()
	_ = cmd.Process.Signal(syscall.SIGINT)
	<-exited
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if n, err := strconv.Atoi(f[3]); err == nil && f[len(f)-1] != "total" {
			calls[f[len(f)-1]] = n
		}
	}
	return calls
}

// TestCallsPerRequest bounds the system calls of a worker: for a request of 1 KB
// on one of 64 kept-alive connections, and for one with a connection of its own.
func TestCallsPerRequest(t *testing.T) {
	t.Run("epoll", func(t *testing.T) { testCallsPerRequest(t, "epoll", 4.1, 16.5) })
	t.Run("io_uring", func(t *testing.T) {
		if err := sys.ProbeUring(); err != nil {
			skip(t, "%v", err)
		}
		testCallsPerRequest(t, "io_uring", 0, 4)
	})
}

// testCallsPerRequest bounds reads and writes of a request on a kept-alive
// connection, and all calls but waits for one with a connection of its own.
func testCallsPerRequest(t *testing.T, engine string, keptAlive, closed float64) {
	const size, clients = 1024, 64
	answer := make([]byte, size)
	target := tcpOrigin(t, func(c net.Conn) {
		for b := make([]byte, 64); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
	ppm := port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nengine %s\n", ppm, target, engine))
	worker := d.worker(0).PID
	request := func(c net.Conn) {
		b := make([]byte, size)
		if _, err := c.Write([]byte("?")); err != nil {
			t.Error(err)
			return
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Error(err)
		}
	}

	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = dial(t, ppm)
		request(conns[i])
	}
	const each = 50
	calls := countCalls(t, worker, func() {
		var wg sync.WaitGroup
		for _, c := range conns {
			wg.Go(func() {
				for range each {
					request(c)
				}
			})
		}
		wg.Wait()
	})
	checkCalls(t, "kept alive", calls, clients*each, keptAlive, 2.1, 0.1)
	for _, c := range conns {
		c.Close()
	}
	d.checkIdle()

	const single = 500
	calls = countCalls(t, worker, func() {
		for range single {
			c := dial(t, ppm)
			request(c)
			c.Close()
		}
		d.checkIdle()
	})
	checkCalls(t, "closed", calls, single, closed, -1, closed)
}

// checkCalls compares the calls a request took with the bounds: reads and
// writes, waits (-1 is no bound), and all other calls. For connections of their
// own the sum of all but waits has the greater bound.
func checkCalls(t *testing.T, name string, calls map[string]int, requests int, io, waits, others float64) {
	t.Helper()
	var moved, waited, own, other int
	for call, n := range calls {
		switch call {
		case "epoll_wait", "epoll_pwait", "io_uring_enter":
			waited += n
		case "read", "write", "recvfrom", "sendto", "recvmsg", "sendmsg", "readv", "writev":
			moved += n
		case "futex", "nanosleep", "getpid", "tgkill", "rt_sigreturn", "restart_syscall", "sched_yield", "madvise":
			// The runtime's own: of its monitor and of garbage collections.
			own += n
		default:
			other += n
		}
	}
	per := func(n int) float64 { return float64(n) / float64(requests) }
	t.Logf("%s: %.2f reads and writes, %.2f waits, %.2f other calls a request, %.2f of the runtime: %v",
		name, per(moved), per(waited), per(other), per(own), calls)
	if per(moved) > io || waits >= 0 && per(waited) > waits || per(other) > others || per(moved+other) > io+0.1 {
		t.Errorf("%s: too many system calls", name)
	}
}
