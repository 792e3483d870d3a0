package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// awaitWorker waits until a worker other than pid runs in a slot.
func (d *daemon) awaitWorker(slot, pid int) int {
	d.t.Helper()
	now := 0
	eventually(d.t, 2*patience, func() string {
		w := d.worker(slot)
		now = w.PID
		if w.State != "running" || w.PID == pid {
			return fmt.Sprintf("worker %d is %s, pid %d", slot, w.State, w.PID)
		}
		return ""
	})
	return now
}

// TestKillUnderLoad kills workers while clients connect. No connection attempt
// may fail; a session that a killed worker had accepted may end, one that
// waited in its queue is served by its successor.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	var tried, served, cut atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				tried.Add(1)
				c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", ppm), 2*patience)
				if err != nil {
					t.Errorf("connecting failed: %v", err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(2 * patience))
				if ping(c) == nil {
					served.Add(1)
				} else {
					cut.Add(1)
				}
				c.Close()
			}
		})
	}
	const kills = 6
	for i := range kills {
		slot := i % 2
		pid := d.awaitWorker(slot, 0)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		d.awaitWorker(slot, pid)
	}
	close(stop)
	clients.Wait()
	t.Logf("%d connections, %d served, %d cut by %d kills", tried.Load(), served.Load(), cut.Load(), kills)
	// Each kill can cost no more than what every client has open.
	if cut.Load() > 8*kills {
		t.Errorf("%d sessions were cut", cut.Load())
	}
	restarts := 0
	for _, w := range d.status().Workers {
		restarts += w.Restarts
		if !strings.Contains(w.LastExit, "killed by signal 9") {
			t.Errorf("worker %d: last exit %q", w.Slot, w.LastExit)
		}
	}
	if restarts != kills {
		t.Errorf("%d restarts instead of %d", restarts, kills)
	}
}

// TestQueueSurvives connects clients to a stopped worker, kills it and expects
// its successor to serve all of them.
func TestQueueSurvives(t *testing.T) {
	t.Parallel()
	echo, ppm, socks := echoOrigin(t), port(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nsocks -p%d\n", ppm, echo, socks))
	pid := d.worker(0).PID
	freeze(t, pid)
	const n = 200
	var conns []net.Conn
	for range n {
		c := dial(t, ppm)
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i, c := range conns {
		if err := pong(c); err != nil {
			t.Fatalf("client %d of %d: %v", i, n, err)
		}
		c.Close()
	}
}

// TestCountersSurvive expects the totals of a killed worker in the statistics.
func TestCountersSurvive(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	for range 10 {
		c := dial(t, ppm)
		mustPing(t, c)
		c.Close()
	}
	open := dial(t, ppm)
	mustPing(t, open)
	before := d.service("tcppm")
	if before["accepted"] != 11 || before["bytes_in"] != 44 || before["open"] != 1 {
		t.Errorf("before: %v", before)
	}
	pid := d.worker(0).PID
	_ = syscall.Kill(pid, syscall.SIGKILL)
	d.awaitWorker(0, pid)
	after := d.service("tcppm")
	if after["accepted"] != 11 || after["bytes_in"] != 44 || after["open"] != 0 {
		t.Errorf("after: %v", after)
	}
	c := dial(t, ppm)
	mustPing(t, c)
	if now := d.service("tcppm"); now["accepted"] != 12 || now["open"] != 1 {
		t.Errorf("at the end: %v", now)
	}
}

// TestCrashLoop kills a worker as soon as it runs and expects the back-off in
// the status, service by the other worker meanwhile, and recovery.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	pid := 0
	for range 3 {
		pid = d.awaitWorker(0, pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, patience, func() string {
		w := d.worker(0)
		if w.State != "backoff" || w.RetryInSec <= 0 {
			return fmt.Sprintf("%+v", w)
		}
		return ""
	})
	text, _, _ := d.ctl("status")
	if !strings.Contains(text, "backoff, next in ") || !strings.Contains(text, "killed by signal 9") {
		t.Errorf("status:\n%s", text)
	}
	// Whatever slot the kernel chooses, the connection is served.
	for range 40 {
		c := dial(t, ppm)
		mustPing(t, c)
		c.Close()
	}
	d.awaitWorker(0, pid)
	for range 20 {
		c := dial(t, ppm)
		mustPing(t, c)
		c.Close()
	}
}

// signalOrphan has a worker without a supervisor drain, once it has noticed.
func signalOrphan(t *testing.T, pid int) {
	t.Helper()
	eventually(t, patience, func() string {
		if !alive(pid) || isOrphan(pid) {
			return ""
		}
		return fmt.Sprintf("worker %d does not notice that its supervisor is gone", pid)
	})
	_ = syscall.Kill(pid, syscall.SIGTERM)
}

// isOrphan says whether a worker waits for a successor of its supervisor.
func isOrphan(pid int) bool {
	table, _ := os.ReadFile("/proc/net/unix")
	return regexp.MustCompile(fmt.Sprintf(`@3proxyd/orphan/[0-9a-f]+/%d\n`, pid)).Match(table)
}

// TestOrphans kills the supervisor under load: its workers go on, another one
// takes over, and they hand their sessions over and end. No connection is refused or lost, and what has
// been counted stays.
func TestOrphans(t *testing.T) {
	t.Parallel()
	echo, ppm, single := echoOrigin(t), port(t), port(t)
	socket := filepath.Join(t.TempDir(), "s")
	text := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n"+
		"tcppm -olSO_REUSEPORT=0 %d 127.0.0.1 %d\ntcppm -iunix:%s 1 127.0.0.1 %d\n", ppm, echo, single, echo, socket, echo)
	d := start(t, text)
	c := dial(t, ppm)
	mustPing(t, c)
	l := newLoad(ppm, 4)
	others := func() {
		t.Helper()
		if err := pingOnce(single); err != nil {
			t.Errorf("the shared socket: %v", err)
		}
		u, err := net.Dial("unix", socket)
		if err != nil {
			t.Errorf("the Unix socket: %v", err)
			return
		}
		defer u.Close()
		_ = u.SetDeadline(time.Now().Add(patience))
		if err := ping(u); err != nil {
			t.Errorf("the Unix socket: %v", err)
		}
	}
	last := d
	for round := range 3 {
		workers := children(last.pid())
		time.Sleep(200 * time.Millisecond)
		last.kill()
		served := l.served.Load()
		eventually(t, patience, func() string {
			if l.served.Load() < served+100 {
				return "no connection is served without a supervisor"
			}
			return ""
		})
		mustPing(t, c)
		others()
		// With one worker less and one more the sockets find their places.
		next := d.restart(strings.Replace(text, "workers 2", fmt.Sprintf("workers %d", 1+2*(round%2)), 1))
		awaitGone(t, workers)
		mustPing(t, c)
		others()
		last = next
	}
	err := l.stop()
	t.Logf("%d served, %d refused, %d failed", l.served.Load(), l.refused.Load(), l.failed.Load())
	if err != nil || l.refused.Load() > 0 {
		t.Errorf("%d connections failed (%v), %d were refused", l.failed.Load(), err, l.refused.Load())
	}
	total := last.stats().Total
	if accepted := total["accepted"]; accepted < uint64(l.served.Load()) {
		t.Errorf("%d connections were counted, %d served", accepted, l.served.Load())
	}
	if open := total["open"]; open < 1 {
		t.Errorf("%d sessions are open", open)
	}
	mustPing(t, c)
	c.Close()
}

// TestOrphansPIDFile starts a supervisor beside orphans where the disk of the
// pidfile is full: that is a warning then.
func TestOrphansPIDFile(t *testing.T) {
	needRoot(t)
	if !inNamespace(t, func() string { return "a file system cannot be mounted" }) {
		return
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		skip(t, "mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	ppm := port(t)
	text := fmt.Sprintf("pidfile %s/pid\nworkers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", dir, ppm, echoOrigin(t))
	d := start(t, text)
	c := dial(t, ppm)
	mustPing(t, c)
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 128<<10), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	workers := children(d.pid())
	d.kill()
	next := d.restart(text)
	awaitGone(t, workers)
	mustPing(t, c)
	c.Close()
	if out := next.out.String(); !strings.Contains(out, "warning: pidfile: ") {
		t.Errorf("no warning:\n%s", out)
	}
}

// TestFrozenOrphan stops a worker before the supervisor is killed: the kernel
// has it go on then, since its process group has become an orphan (setpgid(2)).
func TestFrozenOrphan(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	text := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo)
	d := start(t, text)
	var held []net.Conn
	for range 20 {
		c := dial(t, ppm)
		mustPing(t, c)
		held = append(held, c)
	}
	freeze(t, d.worker(0).PID)
	d.kill()
	d.restart(text)
	for _, c := range held {
		mustPing(t, c)
		c.Close()
	}
	mustPing(t, dial(t, ppm))
}

// TestOrphanSignals ends a worker without a supervisor by signals.
func TestOrphanSignals(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	worker := children(d.pid())[0]
	d.kill()
	signalOrphan(t, worker)
	eventually(t, patience, func() string {
		if listens(ppm) {
			return "the port is still open"
		}
		return ""
	})
	mustPing(t, c)
	eventually(t, patience, func() string {
		_ = syscall.Kill(worker, syscall.SIGTERM)
		if alive(worker) {
			return "the worker goes on"
		}
		return ""
	})
	os.Remove(d.socket)
}

// TestKillGivesBack fills maxconn, kills a worker and expects the places of its
// sessions to be taken by clients that wait.
func TestKillGivesBack(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	const limit = 20
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nmaxconn %d\ntcppm %d 127.0.0.1 %d\n", limit, ppm, echo))
	var open []net.Conn
	for range limit {
		c := dial(t, ppm)
		mustPing(t, c)
		open = append(open, c)
	}
	lost := 0
	for _, s := range d.conns() {
		if s.Worker == 0 {
			lost++
		}
	}
	waiting := make(chan error, limit)
	for range lost {
		c := dial(t, ppm)
		go func() { waiting <- ping(c) }()
	}
	pid := d.worker(0).PID
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for range lost {
		if err := <-waiting; err != nil {
			t.Errorf("a client that waited: %v", err)
		}
	}
	survived := 0
	for _, c := range open {
		if ping(c) == nil {
			survived++
		}
	}
	if survived != limit-lost {
		t.Errorf("%d sessions survived, %d were the killed worker's of %d", survived, lost, limit)
	}
	if n := d.service("tcppm")["open"]; n != limit {
		t.Errorf("%d sessions are open", n)
	}
}
