package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const dantedConf = `logoutput: /dev/null
internal: 127.0.0.1 port = %d
external: 127.0.0.1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`

// startDanted starts dante with a SOCKS service and returns its port and its
// first process.
func startDanted(t *testing.T) (socks, pid int) {
	t.Helper()
	needRoot(t)
	danted, socks, dir := need(t, "danted"), port(t), t.TempDir()
	conf := filepath.Join(dir, "danted.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, dantedConf, socks), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(danted, "-N", "1", "-f", conf, "-p", filepath.Join(dir, "pid"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	eventually(t, patience, func() string {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", socks))
		if err != nil {
			return err.Error()
		}
		c.Close()
		return ""
	})
	return socks, cmd.Process.Pid
}

// treeCPUTime is the CPU time of a process and those it has started.
func treeCPUTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	sum := cpuTime(t, pid)
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		data, _ := os.ReadFile(f)
		for _, child := range strings.Fields(string(data)) {
			n, _ := strconv.Atoi(child)
			sum += treeCPUTime(t, n)
		}
	}
	return sum
}

// TestAssociationsAndDante passes the same datagrams through associations of one
// worker and of dante, and says what arrives and what one costs: 100 bytes each,
// E2E_RATE a second (5,000 if it is not set) through E2E_ASSOCIATIONS (10).
func TestAssociationsAndDante(t *testing.T) {
	rate, n, lasting := 5000, 10, time.Second
	if text := os.Getenv("E2E_RATE"); text != "" {
		rate, _ = strconv.Atoi(text)
		lasting = 5 * time.Second
	}
	if text := os.Getenv("E2E_ASSOCIATIONS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	t.Run("dante", func(t *testing.T) {
		socks, pid := startDanted(t)
		comparePassing(t, socks, pid, n, rate, lasting)
	})
	t.Run("3proxyd", func(t *testing.T) {
		d, socks, _ := startAssociating(t, "")
		comparePassing(t, socks, d.worker(0).PID, n, rate, lasting)
	})
}

// comparePassing sends datagrams through n associations of a proxy.
func comparePassing(t *testing.T, socks, pid, n, rate int, lasting time.Duration) {
	t.Helper()
	origin, sink, me := newUDPOrigin(t, "127.0.0.1:0"), newUDPSink(t), localUDP(t)
	var ats []net.Addr
	for range n {
		control, at := associate(t, socks)
		defer control.Close()
		if err := askThrough(me, at, origin.port(), "word"); err != nil {
			t.Fatal(err)
		}
		ats = append(ats, at)
	}
	before := treeCPUTime(t, pid)
	sent, _, took := sendThrough(me, ats, datagramTo(sink.port, strings.Repeat("x", 100)), rate, lasting)
	var last int64 = -1
	for last != sink.count.Load() {
		last = sink.count.Load()
		time.Sleep(200 * time.Millisecond)
	}
	cpu := treeCPUTime(t, pid) - before
	t.Logf("%d associations: %.0f datagrams a second, %.1f %% lost, %.1f us of CPU time each, %.0f %% of a CPU",
		n, float64(sent)/took.Seconds(), 100*float64(int64(sent)-last)/float64(sent),
		float64(cpu.Microseconds())/float64(max(1, last)), 100*cpu.Seconds()/took.Seconds())
	if last == 0 {
		t.Error("nothing has arrived")
	}
}
