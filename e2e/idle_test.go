package e2e

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestIdleCost measures a daemon that nobody uses: processor time and memory
// of the supervisor and one worker. The bounds are generous, the measured
// values are in the test's output.
func TestIdleCost(t *testing.T) {
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\nsocks -p%d\n", port(t), port(t)))
	pids := []int{d.pid(), d.worker(0).PID}
	time.Sleep(500 * time.Millisecond)
	before := cpuTime(t, pids[0]) + cpuTime(t, pids[1])
	const period = 6 * time.Second
	time.Sleep(period)
	used := cpuTime(t, pids[0]) + cpuTime(t, pids[1]) - before
	supervisor, worker := statusKB(t, pids[0], "VmRSS"), statusKB(t, pids[1], "VmRSS")
	t.Logf("idle: %.3f%% of a CPU; resident %d KiB in the supervisor, %d KiB in the worker",
		100*used.Seconds()/period.Seconds(), supervisor, worker)
	if used > period/100 {
		t.Errorf("idle processes used %v of CPU in %v", used, period)
	}
	if supervisor+worker > 30<<10 {
		t.Errorf("%d KiB are resident", supervisor+worker)
	}
}

// TestIdleTunnels measures what 2,000 idle CONNECT tunnels add to a worker.
func TestIdleTunnels(t *testing.T) {
	const n = 2000
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < 2*n+500 {
		skip(t, "%d descriptors are allowed, %d needed", limit.Max, 2*n+500)
	}
	hold, proxy := tcpOrigin(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	worker := d.worker(0).PID
	c := connectVia(t, proxy, hold)
	c.Close()
	d.checkIdle()
	before := statusKB(t, worker, "VmRSS")
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = connectVia(t, proxy, hold)
	}
	eventually(t, patience, func() string {
		if open := d.service("proxy")["open"]; open != n {
			return fmt.Sprintf("%d tunnels are open", open)
		}
		return ""
	})
	added := statusKB(t, worker, "VmRSS") - before
	pipes := d.stats().Workers[0].Loop["pipes_open"]
	t.Logf("%d idle tunnels: %d KiB more resident, %.2f KiB each, %d pipes", n, added, float64(added)/n, pipes)
	if added > 4*n {
		t.Errorf("an idle tunnel takes %.2f KiB", float64(added)/n)
	}
	if pipes > sparePipes {
		t.Errorf("%d pipes are open", pipes)
	}
	for _, c := range conns {
		c.Close()
	}
}

// TestNoLeaks runs load through every service, twice, and compares the
// descriptors after each; then it has the processes print their goroutines.
func TestNoLeaks(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	proxy, socks, ppm := port(t), port(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nnsrecord origin.test 127.0.0.1\nproxy -p%d\nsocks -p%d\ntcppm %d 127.0.0.1 %d\n",
		proxy, socks, ppm, plain.port))
	worker := d.worker(0).PID
	load := func() {
		for range 5 {
			size := "/bytes/3000000"
			curl(t, "-o", "/dev/null", "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), plain.URL+size)
			curl(t, "-o", "/dev/null", "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), "--cacert", secure.cert, secure.URL+size)
			curl(t, "-o", "/dev/null", "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socks), fmt.Sprintf("http://origin.test:%d%s", plain.port, size))
			curl(t, "-o", "/dev/null", fmt.Sprintf("http://127.0.0.1:%d%s", ppm, size))
			curlStatus("-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), "http://127.0.0.1:1/")
			if _, stderr, code := d.ctl("reload"); code != 0 {
				t.Fatalf("reload: %s", stderr)
			}
			d.conns()
		}
		// What is left then are pipes; idle connections to servers are not.
		plain.CloseClientConnections()
		secure.CloseClientConnections()
		d.checkIdle()
	}
	load()
	first := map[int]int{d.pid(): openFDs(t, d.pid()), worker: openFDs(t, worker)}
	load()
	for pid, was := range first {
		eventually(t, patience, func() string {
			// The number of spare pipes may vary.
			if now := openFDs(t, pid); now > was+4 {
				return fmt.Sprintf("process %d has %d descriptors after as much load again, %d before:\n%s",
					pid, now, was, strings.Join(fdTargets(pid), "\n"))
			}
			return ""
		})
	}
	d.checkGoroutines(worker)
}

// checkGoroutines has the runtime print the goroutines of both processes
// (SIGABRT), which ends them.
func (d *daemon) checkGoroutines(worker int) {
	t := d.t
	t.Helper()
	d.dumped = true
	mark := len(d.out.String())
	_ = syscall.Kill(worker, syscall.SIGABRT)
	d.awaitWorker(0, worker)
	text := d.out.String()[mark:]
	inWorker := countGoroutines(text)
	if inWorker < 1 || inWorker > 4 {
		t.Errorf("the worker has %d goroutines:\n%s", inWorker, text)
	}
	mark = len(d.out.String())
	next := children(d.pid())
	// Its workers go on, and keep the output open.
	d.cmd.WaitDelay = time.Second
	_ = d.cmd.Process.Signal(syscall.SIGABRT)
	if !d.waitExit(patience) {
		t.Fatal("SIGABRT does not end the supervisor")
	}
	text = d.out.String()[mark:]
	inSupervisor := countGoroutines(text)
	if inSupervisor < 1 || inSupervisor > 14 {
		t.Errorf("the supervisor has %d goroutines:\n%s", inSupervisor, text)
	}
	t.Logf("%d goroutines in the worker, %d in the supervisor", inWorker, inSupervisor)
	// Without a supervisor workers obey SIGTERM themselves.
	for _, pid := range next {
		signalOrphan(t, pid)
	}
	awaitGone(t, next)
	os.Remove(d.socket)
}

// countGoroutines counts those of the daemon in a dump, not the runtime's own.
func countGoroutines(dump string) int {
	n := 0
	for _, stack := range regexp.MustCompile(`(?m)^goroutine \d+ `).Split(dump, -1)[1:] {
		if strings.Contains(stack, "\n3proxyd/") || strings.Contains(stack, "created by 3proxyd/") {
			n++
		}
	}
	return n
}
