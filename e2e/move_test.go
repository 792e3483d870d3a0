package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// moveBed is a daemon with streams through all of its services.
type moveBed struct {
	*daemon
	ports    [3]int // tcppm, proxy, socks
	origin   int
	log      string
	streams  []*tunnel
	services []string // of the streams, as in the log
	quit     chan struct{}
}

// startMoveBed starts a daemon with n streams.
func startMoveBed(t *testing.T, n int, more string) *moveBed {
	t.Helper()
	return startMoveBedWith(t, n, more, func(config string) *daemon { return start(t, config) })
}

func startMoveBedWith(t *testing.T, n int, more string, start func(config string) *daemon) *moveBed {
	t.Helper()
	b := &moveBed{quit: make(chan struct{}), log: filepath.Join(t.TempDir(), "log")}
	b.origin = streamOrigin(t, b.quit)
	for i := range b.ports {
		b.ports[i] = port(t)
	}
	b.daemon = start(fmt.Sprintf("%s\nlog %s\nlogformat \"G%%E %%N %%I %%O %%D %%C:%%c\"\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nproxy -p%d\nsocks -p%d\n",
		more, b.log, b.ports[0], b.origin, b.ports[1], b.ports[2]))
	for i := range n {
		var c net.Conn
		switch i % 3 {
		case 0:
			c = dial(t, b.ports[0])
			b.services = append(b.services, "TCPPM")
		case 1:
			c = connectVia(t, b.ports[1], b.origin)
			b.services = append(b.services, "PROXY")
		case 2:
			c = socksVia(t, b.ports[2], b.origin)
			b.services = append(b.services, "SOCKS")
		}
		b.streams = append(b.streams, startStream(t, uint64(i), paceOf(i), c))
	}
	return b
}

// paceOf has most streams chat; few go as fast as they can.
func paceOf(i int) pace {
	switch {
	case i == 7 || i == 8:
		return paceBulk
	case i%10 == 1:
		return paceSlow
	case i%10 == 2:
		return paceHalf
	case i%10 > 5:
		return paceIdle
	}
	return paceChat
}

// endStreams ends all streams and returns the errors of those that failed.
func (b *moveBed) endStreams() []error {
	close(b.quit)
	errs := make([]error, len(b.streams))
	var wg sync.WaitGroup
	for i, s := range b.streams {
		wg.Go(func() { errs[i] = s.end() })
	}
	wg.Wait()
	var failed []error
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// awaitMoved waits until no process drains beside its successor.
func (b *moveBed) awaitMoved() {
	b.t.Helper()
	eventually(b.t, patience, func() string {
		for _, w := range b.status().Workers {
			if w.State == "draining" {
				return fmt.Sprintf("worker %d (pid %d) still drains %d sessions", w.Slot, w.PID, w.Sessions)
			}
		}
		return ""
	})
}

func (b *moveBed) open() uint64 {
	var n uint64
	for _, s := range b.stats().Services {
		n += s.Counters["open"]
	}
	return n
}

// checkLog expects one line for each stream and the other sessions, with all
// of its bytes and at least the given duration, and the same in the counters.
func (b *moveBed) checkLog(least time.Duration, others int) {
	t := b.t
	t.Helper()
	byClient := map[string][]string{}
	var lines int
	eventually(t, patience, func() string {
		data, err := os.ReadFile(b.log)
		if err != nil {
			return err.Error()
		}
		clear(byClient)
		lines = 0
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			byClient[f[1]+f[5]] = f
			lines++
		}
		if lines < len(b.streams)+others {
			return fmt.Sprintf("%d lines for %d streams", lines, len(b.streams))
		}
		return ""
	})
	if lines != len(b.streams)+others || len(byClient) != lines {
		t.Errorf("%d lines of %d clients in the log, %d streams", lines, len(byClient), len(b.streams))
	}
	var in, out uint64
	for i, s := range b.streams {
		f := byClient[b.services[i]+s.conn.LocalAddr().String()]
		if f == nil {
			t.Errorf("stream %d has no line", s.id)
			continue
		}
		gotIn, _ := strconv.ParseUint(f[2], 10, 64)
		gotOut, _ := strconv.ParseUint(f[3], 10, 64)
		ms, _ := strconv.Atoi(f[4])
		in, out = in+gotIn, out+gotOut
		if f[0] != "00000" || int64(gotIn) != s.got.Load() || int64(gotOut) != s.sent.Load()+streamHello {
			t.Errorf("stream %d: line %q, %d bytes came, %d went", s.id, f, s.got.Load(), s.sent.Load()+streamHello)
		}
		if time.Duration(ms)*time.Millisecond < least {
			t.Errorf("stream %d lasted %d ms by its line, more than %v by the clock", s.id, ms, least)
		}
	}
	total := b.stats().Total
	if total["bytes_in"] != in || total["bytes_out"] != out || total["accepted"] != uint64(lines) || total["open"] != 0 {
		t.Errorf("counters %v; the log has %d bytes in, %d out of %d streams", total, in, out, len(b.streams))
	}
}

// moves is how often the sessions of each worker are moved.
func moves(t *testing.T) int {
	if s := os.Getenv("E2E_MOVES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if testing.Short() {
		return 4
	}
	return 10
}

// TestMoveStreams drains workers again and again under 200 streams of all
// kinds: not one byte may be lost or repeated, not one session counted or
// logged twice, and never may there be more than maxconn.
func TestMoveStreams(t *testing.T) {
	t.Parallel()
	const n = 200
	b := startMoveBed(t, n, "workers 2\nmaxconn 67\nrebalance 1")
	// A connection that comes later to another worker may be accepted before.
	eventually(t, patience, func() string {
		if open := b.open(); open != n {
			return fmt.Sprintf("%d sessions are open", open)
		}
		return ""
	})
	// This one waits for a place that is not there.
	waiting := dial(t, b.ports[0])
	_ = waiting.SetDeadline(time.Time{})
	stop := make(chan struct{})
	var most atomic.Uint64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, s := range b.stats().Services {
				most.Store(max(most.Load(), s.Counters["open"]))
			}
		}
	})
	first := time.Now()
	for i := range moves(t) {
		if _, stderr, code := b.ctl("drain", "--worker", strconv.Itoa(i%2), "--timeout", "60"); code != 0 {
			t.Fatalf("drain: %s", stderr)
		}
		b.awaitMoved()
	}
	lasted := time.Since(first)
	close(stop)
	watcher.Wait()
	t.Logf("%d moves of half of the sessions in %v", moves(t), lasted)
	waiting.Close()
	if open := b.open(); open < n || open > n+1 {
		t.Errorf("%d sessions are open, want %d", open, n)
	}
	if most.Load() > 67 {
		t.Errorf("%d sessions of a service were open, maxconn is 67", most.Load())
	}
	for _, err := range b.endStreams() {
		t.Error(err)
	}
	eventually(t, patience, func() string {
		if n := b.open(); n != 0 {
			return fmt.Sprintf("%d sessions are open", n)
		}
		return ""
	})
	b.checkLog(lasted, 1)
}

// TestMoveThousands moves many idle tunnels at once.
func TestMoveThousands(t *testing.T) {
	t.Parallel()
	const n = 2000
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	var conns []net.Conn
	for range n {
		c := dial(t, ppm)
		mustPing(t, c)
		conns = append(conns, c)
	}
	b := &moveBed{daemon: d}
	began := time.Now()
	if _, stderr, code := d.ctl("drain", "--worker", "0", "--timeout", "60"); code != 0 {
		t.Fatalf("drain: %s", stderr)
	}
	b.awaitMoved()
	t.Logf("%d tunnels have moved after %v", n, time.Since(began))
	for _, c := range conns {
		mustPing(t, c)
		c.Close()
	}
}

// TestUpgradeMovesStreams upgrades under streams of all kinds: the old
// generation is gone at once, and each stream is whole, counted and logged once.
func TestUpgradeMovesStreams(t *testing.T) {
	t.Parallel()
	const upgrades = 3
	b := startMoveBedWith(t, 100, "workers 2\nupgrade_trial 0\nupgrade_old 8", func(config string) *daemon {
		return startUpgradable(t, config)
	})
	began := time.Now()
	for range upgrades {
		b.upgrade()
		b.awaitOldGone()
	}
	lasted := time.Since(began)
	if open := b.open(); open != uint64(len(b.streams)) {
		t.Errorf("%d sessions are open, want %d", open, len(b.streams))
	}
	for _, err := range b.endStreams() {
		t.Error(err)
	}
	b.awaitOpen(0)
	b.checkLog(lasted, 0)
}

// TestMoveTargetKilled kills the successor that takes sessions over. Those it
// had are lost, all others go on where they were, and follow to the next.
func TestMoveTargetKilled(t *testing.T) {
	t.Parallel()
	b := startMoveBed(t, 120, "workers 1")
	old := b.worker(0).PID
	if _, stderr, code := b.ctl("drain", "--worker", "0", "--timeout", "60"); code != 0 {
		t.Fatalf("drain: %s", stderr)
	}
	next := b.worker(0).PID
	if next == old {
		t.Fatal("there is no successor")
	}
	_ = syscall.Kill(next, syscall.SIGKILL)
	b.awaitWorker(0, next)
	b.awaitMoved()
	if alive(old) {
		t.Errorf("worker %d is still there", old)
	}
	b.checkSurvivors()
}

// TestMoveSourceKilled kills a worker while it hands its sessions over.
func TestMoveSourceKilled(t *testing.T) {
	t.Parallel()
	b := startMoveBed(t, 120, "workers 1")
	pid := b.worker(0).PID
	if _, stderr, code := b.ctl("drain", "--worker", "0", "--timeout", "60"); code != 0 {
		t.Fatalf("drain: %s", stderr)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	b.awaitMoved()
	b.checkSurvivors()
}

// checkSurvivors expects that streams were cut, but not spoiled, and that what
// is counted as open is what is left.
func (b *moveBed) checkSurvivors() {
	t := b.t
	t.Helper()
	var alive uint64
	eventually(t, patience, func() string {
		alive = 0
		for _, s := range b.streams {
			if s.alive() {
				alive++
			}
		}
		if open := b.open(); open != alive {
			return fmt.Sprintf("%d sessions are open, %d streams alive", open, alive)
		}
		return ""
	})
	t.Logf("%d of %d streams have survived", alive, len(b.streams))
	cut := 0
	for _, err := range b.endStreams() {
		if errors.Is(err, errCorrupt) {
			t.Error(err)
		}
		cut++
	}
	if uint64(len(b.streams)-cut) < alive {
		t.Errorf("%d streams failed, but %d of %d were alive", cut, alive, len(b.streams))
	}
}

// TestRebalance makes workers uneven by long tunnels and evens them out.
func TestRebalance(t *testing.T) {
	t.Parallel()
	b := startMoveBed(t, 40, "workers 2")
	if _, stderr, code := b.ctl("drain", "--worker", "0", "--timeout", "60"); code != 0 {
		t.Fatalf("drain: %s", stderr)
	}
	b.awaitMoved()
	uneven := func() int64 {
		ws := b.status().Workers
		return max(ws[0].Sessions, ws[1].Sessions) - min(ws[0].Sessions, ws[1].Sessions)
	}
	stdout, stderr, code := b.ctl("rebalance")
	if code != 0 {
		t.Fatalf("rebalance: %s", stderr)
	}
	t.Logf("rebalance: %s", stdout)
	if d := uneven(); d > 1 {
		t.Errorf("the workers differ by %d sessions", d)
	}
	for _, err := range b.endStreams() {
		t.Error(err)
	}
}

// TestRebalanceByItself adds a worker and expects that half of the sessions move
// to it.
func TestRebalanceByItself(t *testing.T) {
	t.Parallel()
	b := startMoveBed(t, 40, "workers 1")
	b.rewrite("workers 1", "workers 2\nrebalance 1")
	if _, stderr, code := b.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	eventually(t, patience, func() string {
		if ws := b.status().Workers; len(ws) != 2 || min(ws[0].Sessions, ws[1].Sessions) < 15 {
			return fmt.Sprintf("workers %+v", ws)
		}
		return ""
	})
	for _, err := range b.endStreams() {
		t.Error(err)
	}
	b.checkLog(0, 0)
	b.fds = b.countFDs() // the other worker's sockets have come
}

// rewrite replaces a part of the configuration.
func (b *moveBed) rewrite(old, now string) {
	b.t.Helper()
	text, err := os.ReadFile(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	b.write(strings.Replace(rest, old, now, 1))
}

// TestFewerWorkers has a reload take workers away: their sessions move to the
// others, long before drain_timeout.
func TestFewerWorkers(t *testing.T) {
	t.Parallel()
	b := startMoveBed(t, 60, "workers 3")
	b.rewrite("workers 3", "workers 1")
	if _, stderr, code := b.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	b.awaitMoved()
	if open := b.open(); open != uint64(len(b.streams)) {
		t.Errorf("%d sessions are open, want %d", open, len(b.streams))
	}
	for _, err := range b.endStreams() {
		t.Error(err)
	}
	b.checkLog(0, 0)
}
