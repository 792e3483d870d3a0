package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// pingLoad makes connections to a port for one ping each, from several clients
// at once, until it is ended.
type pingLoad struct {
	t    *testing.T
	quit chan struct{}
	wait sync.WaitGroup
	mu   sync.Mutex
	made int
	errs []error
}

func startPings(t *testing.T, port, clients int) *pingLoad {
	p := &pingLoad{t: t, quit: make(chan struct{})}
	for range clients {
		p.wait.Go(func() { p.run(port) })
	}
	return p
}

func (p *pingLoad) run(port int) {
	for {
		select {
		case <-p.quit:
			return
		default:
		}
		err := pingOnce(port)
		p.mu.Lock()
		p.made++
		if err != nil {
			p.errs = append(p.errs, err)
		}
		p.mu.Unlock()
	}
}

// end stops the load; no connection may have failed. It returns how many there
// were.
func (p *pingLoad) end() int {
	p.t.Helper()
	close(p.quit)
	p.wait.Wait()
	if n := len(p.errs); n > 0 {
		p.t.Errorf("%d of %d connections failed, first: %v", n, p.made, p.errs[0])
	}
	return p.made
}

// awaitWorkers waits until n workers run and nothing else.
func (d *daemon) awaitWorkers(n int) {
	d.t.Helper()
	eventually(d.t, patience, func() string {
		w := d.status().Workers
		for _, one := range w {
			if one.State != "running" {
				return fmt.Sprintf("%+v", w)
			}
		}
		if len(w) != n || len(children(d.pid())) != n {
			return fmt.Sprintf("%d workers, %d processes", len(w), len(children(d.pid())))
		}
		return ""
	})
}

// TestReloadWorkers shrinks and grows the number of workers under load; no
// connection may fail, and the totals stay.
func TestReloadWorkers(t *testing.T) {
	t.Parallel()
	echo, ppm, extra := echoOrigin(t), port(t), port(t)
	config := func(workers int, more string) string {
		return fmt.Sprintf("workers %d\ndrain_timeout 10\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n%s", workers, ppm, echo, more)
	}
	d := start(t, config(2, ""))
	load := startPings(t, ppm, 4)
	sockets := 2
	for i, n := range []int{1, 4, 2, 1, 3, 5, 1, 2} {
		more := ""
		if i%3 == 1 {
			more = fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", extra, echo)
		}
		d.write(config(n, more))
		if out, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload to %d workers: %s%s", n, out, stderr)
		} else if strings.Contains(out+stderr, "warning") && n <= 2 {
			t.Errorf("reload to %d workers: %s%s", n, out, stderr)
		}
		d.awaitWorkers(n)
		sockets = max(sockets, n)
		if now := len(listeners(ppm)); now != sockets {
			t.Errorf("%d workers: %d sockets listen instead of %d", n, now, sockets)
		}
		if more != "" {
			for range 3 * n {
				if err := pingOnce(extra); err != nil {
					t.Error(err)
				}
			}
		}
	}
	made := load.end()
	t.Logf("%d connections", made)
	eventually(t, patience, func() string {
		if n := d.service("tcppm")["accepted"]; n != uint64(made) {
			return fmt.Sprintf("%d sessions were counted, %d made", n, made)
		}
		return ""
	})
	// The sockets of retired workers are kept for their queues.
	d.fds = d.countFDs()
	var sum uint64
	st := d.stats()
	for _, w := range st.Workers {
		sum += w.Counters["accepted"]
	}
	if sum != st.Total["accepted"] {
		t.Errorf("the workers' sessions are %d, the total %d", sum, st.Total["accepted"])
	}
}

// pongAll waits for the answers to clients, in whatever order they come, and
// closes each after its own.
func pongAll(t *testing.T, conns []net.Conn) {
	t.Helper()
	errs := make(chan error)
	for i, c := range conns {
		go func() {
			err := pong(c)
			if err != nil {
				err = fmt.Errorf("client %d of %d: %w", i, len(conns), err)
			}
			c.Close()
			errs <- err
		}()
	}
	for range conns {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestShrinkKeepsQueues fills the queues of two workers, retires one and
// expects the other to serve all that wait, and sessions to go on.
func TestShrinkKeepsQueues(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	config := func(workers int) string {
		return fmt.Sprintf("workers %d\nauth none\ninternal 127.0.0.1\nmaxconn 4\ntcppm %d 127.0.0.1 %d\n", workers, ppm, echo)
	}
	d := start(t, config(2))
	var open []net.Conn
	for range 4 {
		c := dial(t, ppm)
		mustPing(t, c)
		open = append(open, c)
	}
	var queued []net.Conn
	for range 100 {
		c := dial(t, ppm)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		queued = append(queued, c)
	}
	d.write(config(1))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	for _, c := range open {
		mustPing(t, c)
		c.Close()
	}
	pongAll(t, queued)
	d.awaitWorkers(1)
	// The remaining worker dies; what waits in the sockets it has taken over
	// is served by its successor.
	pid := d.worker(0).PID
	freeze(t, pid)
	queued = nil
	for range 40 {
		c := dial(t, ppm)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		queued = append(queued, c)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	pongAll(t, queued)
}

// TestReloadCPUs moves a running worker to another CPU.
func TestReloadCPUs(t *testing.T) {
	t.Parallel()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		skip(t, "%d CPUs may be used, 2 needed", allowed.Count())
	}
	var cpus []int
	for i := 0; len(cpus) < 2; i++ {
		if allowed.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	echo, ppm := echoOrigin(t), port(t)
	config := func(cpu int) string {
		return fmt.Sprintf("workers 1\ncpus %d\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", cpu, ppm, echo)
	}
	d := start(t, config(cpus[0]))
	pid := d.worker(0).PID
	d.write(config(cpus[1]))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	if w := d.worker(0); w.PID != pid || w.CPU != cpus[1] {
		t.Errorf("worker: %+v", w)
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		want := fmt.Sprintf("Cpus_allowed_list:\t%d", cpus[1])
		if lines := strings.Split(string(data), "\n"); !slices.Contains(lines, want) {
			t.Errorf("thread %s is not on CPU %d", task.Name(), cpus[1])
		}
	}
	mustPing(t, dial(t, ppm))
}
