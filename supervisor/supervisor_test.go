package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/internal/freeport"
	"3proxyd/ipc"
)

// quick are times short enough for tests.
func quick() *timing {
	return &timing{
		greeting: 20 * time.Second, exchange: 2 * time.Second, killGrace: 2 * time.Second,
		stable: 30 * time.Second, unit: 300 * time.Millisecond, cap: 2 * time.Second,
		conns: 10 * time.Second,
		// A fake worker gives no sign of life after its start.
		watch: 50 * time.Millisecond, quiet: time.Hour, silent: time.Hour, dump: 2 * time.Second,
		monitor: 20 * time.Millisecond, logs: 20 * time.Millisecond,
	}
}

// bed is a running daemon with fake workers.
type bed struct {
	t       *testing.T
	signals chan os.Signal
	ended   chan error
	stderr  *os.File
	client  *ipc.Client
	crash   string
	timing  *timing

	mu   sync.Mutex
	next func() (*config.Config, []config.Diagnostic)
}

// testConfig has a service for each port, two workers and a control socket of
// its own.
func testConfig(t *testing.T, ports ...int) *config.Config {
	cfg := &config.Config{
		Source: "test.cfg", Workers: 2, DrainTimeout: 60,
		Control: config.Control{Path: filepath.Join(t.TempDir(), "control.sock")},
	}
	for i, port := range ports {
		cfg.Services = append(cfg.Services, config.Service{
			ID: fmt.Sprintf("proxy@127.0.0.1:%d", port), Kind: config.Proxy,
			Pos:    config.Pos{File: "test.cfg", Line: i + 1, Column: 1},
			Listen: config.Endpoint{Addr: netip.MustParseAddr("127.0.0.1"), Port: uint16(port)},
		})
	}
	return cfg
}

// freePorts returns ports nobody listens on.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		var err error
		if ports[i], err = freeport.Take(); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

func startBed(t *testing.T, cfg *config.Config) *bed {
	t.Helper()
	return startBedWith(t, cfg, quick())
}

func startBedWith(t *testing.T, cfg *config.Config, times *timing) *bed {
	t.Helper()
	b := &bed{timing: times, t: t, signals: make(chan os.Signal), ended: make(chan error, 1)}
	b.next = func() (*config.Config, []config.Diagnostic) { return cfg, nil }
	b.client = ipc.NewClient(cfg.Control.Path)
	b.crash = filepath.Join(t.TempDir(), "crash")
	var err error
	if b.stderr, err = os.Create(filepath.Join(t.TempDir(), "stderr")); err != nil {
		t.Fatal(err)
	}
	checkLeaks(t)
	go func() { b.ended <- Run(context.Background(), b.options(cfg)) }()
	t.Cleanup(b.stop)
	b.eventually("the daemon is up", func() error {
		select {
		case err := <-b.ended:
			b.ended <- err
			t.Fatalf("Run returned %v\n%s", err, b.log())
		default:
		}
		_, err := b.client.Status(t.Context())
		return err
	})
	return b
}

func (b *bed) options(cfg *config.Config) Options {
	return Options{
		Config: cfg, Version: "test", Exe: os.Args[0],
		Env: []string{fakeCrashEnv + "=" + b.crash},
		Load: func() (*config.Config, []config.Diagnostic) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.next()
		},
		Stdout: b.stderr, Stderr: b.stderr, Signals: b.signals, timing: b.timing,
	}
}

// stop ends the daemon at once, unless it has ended.
func (b *bed) stop() {
	for range 2 {
		select {
		case b.signals <- syscall.SIGTERM:
		case err := <-b.ended:
			b.ended <- err
		}
	}
	select {
	case err := <-b.ended:
		if err != nil {
			b.t.Errorf("Run: %v", err)
		}
	case <-time.After(30 * time.Second):
		b.t.Errorf("the daemon does not end")
	}
	if b.t.Failed() {
		b.t.Log(b.log())
	}
	_ = b.stderr.Close()
}

func (b *bed) log() string {
	text, _ := os.ReadFile(b.stderr.Name())
	return string(text)
}

func (b *bed) load(cfg *config.Config, diags ...config.Diagnostic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = func() (*config.Config, []config.Diagnostic) { return cfg, diags }
}

func (b *bed) eventually(what string, try func() error) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s: %v\n%s", what, err, b.log())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bed) status() *ipc.Status {
	b.t.Helper()
	s, err := b.client.Status(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// workerOf returns the slot's worker in its place.
func (b *bed) workerOf(slot int) ipc.WorkerStatus {
	b.t.Helper()
	for _, w := range b.status().Workers {
		if w.Slot == slot {
			return w
		}
	}
	b.t.Fatalf("no worker %d", slot)
	return ipc.WorkerStatus{}
}

// greeting is what a fake worker says to a client.
type greeting struct {
	slot, pid, gen, logs int
	conn                 net.Conn
}

func (b *bed) dial(port int) greeting {
	b.t.Helper()
	g, err := tryDial(port)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.log())
	}
	b.t.Cleanup(func() { _ = g.conn.Close() })
	return g
}

func tryDial(port int) (g greeting, err error) {
	g.conn, err = net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), 10*time.Second)
	if err != nil {
		return g, err
	}
	_ = g.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(g.conn).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &g.slot, &g.pid, &g.gen, &g.logs)
	}
	return g, err
}

// dialSlot connects until the slot's worker answers.
func (b *bed) dialSlot(port, slot int) greeting {
	b.t.Helper()
	for range 200 {
		g := b.dial(port)
		if g.slot == slot {
			return g
		}
		_ = g.conn.Close()
	}
	b.t.Fatalf("worker %d never answers", slot)
	return greeting{}
}

// checkLeaks fails the test if descriptors, goroutines or child processes are
// left after it.
func checkLeaks(t *testing.T) {
	count := func() (int, int) {
		fds, _ := os.ReadDir("/proc/self/fd")
		return len(fds), runtime.NumGoroutine()
	}
	fds, goroutines := count()
	t.Cleanup(func() {
		var nowFDs, nowGoroutines int
		for range 200 {
			nowFDs, nowGoroutines = count()
			if nowFDs <= fds && nowGoroutines <= goroutines && len(children()) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<16)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Errorf("left over: %d descriptors (before %d), %d goroutines (before %d), children %v\n%s",
			nowFDs, fds, nowGoroutines, goroutines, children(), stacks)
	})
}

func children() []string {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	var all []string
	for _, path := range tasks {
		data, _ := os.ReadFile(path)
		all = append(all, strings.Fields(string(data))...)
	}
	return all
}

func TestStartServeStop(t *testing.T) {
	ports := freePorts(t, 2)
	cfg := testConfig(t, ports...)
	cfg.PIDFile = filepath.Join(t.TempDir(), "pid")
	logPath := filepath.Join(t.TempDir(), "access.log")
	for i := range cfg.Services {
		cfg.Services[i].Log = config.Log{Kind: config.LogFile, Path: logPath}
	}
	b := startBed(t, cfg)

	s := b.status()
	if s.State != "running" || s.Generation != 1 || len(s.Workers) != 2 || len(s.Services) != 2 {
		t.Errorf("status %+v", s)
	}
	seen := map[int]bool{}
	for range 64 {
		g := b.dial(ports[0])
		seen[g.slot] = true
		if g.logs != 1 {
			t.Errorf("the worker got %d logs", g.logs)
		}
		_ = g.conn.Close()
	}
	if len(seen) != 2 {
		t.Errorf("only workers %v accept connections", seen)
	}
	for _, w := range s.Workers {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(w.PID, &set); err != nil || set.Count() != 1 || !set.IsSet(w.CPU) {
			t.Errorf("worker %d runs on %v (%v), should on %d", w.Slot, listCPUs(&set), err, w.CPU)
		}
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.PID))
		if want := fmt.Sprintf("3proxyd: worker %d\x00", w.Slot); string(cmdline) != want {
			t.Errorf("command line %q", cmdline)
		}
	}
	stats, err := b.client.Stats(t.Context())
	if err != nil || stats.Total["accepted"] != 64 || stats.Services[0].Counters["accepted"] != 64 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if pid, _ := os.ReadFile(cfg.PIDFile); strings.TrimSpace(string(pid)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("pidfile %q", pid)
	}
	if out := b.log(); !strings.Contains(out, fmt.Sprintf("curl -x http://127.0.0.1:%d ", ports[0])) {
		t.Errorf("start message:\n%s", out)
	}
	b.stop()
	b.ended <- nil
	for _, path := range []string{cfg.PIDFile, cfg.Control.Path} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", ports[0])); err == nil {
		_ = c.Close()
		t.Error("the port is still open")
	}
}

func TestKilledWorkerIsReplaced(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	before := b.workerOf(0)
	b.dialSlot(ports[0], 0)
	kept := b.dialSlot(ports[0], 1)

	stop := make(chan struct{})
	var failures, successes int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			g, err := tryDial(ports[0])
			if g.conn != nil {
				_ = g.conn.Close()
			}
			// Connections the dead worker had accepted are lost; those in its
			// queue are not.
			if err == nil {
				successes++
			} else if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				failures++
			}
		}
	})
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually("a successor runs", func() error {
		if w := b.workerOf(0); w.PID == before.PID || w.State != "running" {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	close(stop)
	wg.Wait()
	if failures > 0 || successes == 0 {
		t.Errorf("%d connections failed, %d succeeded", failures, successes)
	}
	w := b.workerOf(0)
	if w.Restarts != 1 || !strings.Contains(w.LastExit, "signal 9") {
		t.Errorf("worker %+v", w)
	}
	b.eventually("the dead worker's sessions are taken back", func() error {
		if now := b.status().Services[0].Open; now != 1 {
			return fmt.Errorf("%d are open", now)
		}
		return nil
	})
	_ = kept.conn.Close()
}

func TestCrashLoopBacksOffAndSiblingAdopts(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	if err := os.WriteFile(b.crash, []byte("3proxyd: worker 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = unix.Kill(b.workerOf(1).PID, unix.SIGKILL)
	b.eventually("the slot backs off", func() error {
		if w := b.workerOf(1); w.State != "backoff" || w.Restarts < 3 || w.PID != 0 || !strings.Contains(w.LastExit, "exit status 7") {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	// The slot's queue is served by the other worker: every connection gets
	// an answer.
	for range 50 {
		g := b.dial(ports[0])
		if g.slot != 0 {
			t.Fatalf("worker %d answers", g.slot)
		}
		_ = g.conn.Close()
	}
	slot := 1
	_, err := b.client.Drain(t.Context(), ipc.DrainRequest{Worker: &slot})
	if err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("draining a worker in back-off: %v", err)
	}
	if err := os.Remove(b.crash); err != nil {
		t.Fatal(err)
	}
	b.eventually("the slot recovers", func() error {
		if w := b.workerOf(1); w.State != "running" {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	b.dialSlot(ports[0], 1)
}

func TestReload(t *testing.T) {
	ports := freePorts(t, 3)
	cfg := testConfig(t, ports[0], ports[1])
	b := startBed(t, cfg)
	session := b.dial(ports[0])

	next := testConfig(t, ports[1], ports[2])
	next.Control = cfg.Control
	next.PIDFile = "/run/other.pid"
	next.Places.Commands = map[string]config.Pos{"pidfile": {File: "test.cfg", Line: 9, Column: 4}}
	next.Services[0].Backlog = 77
	b.load(next)
	r, err := b.client.Reload(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, b.log())
	}
	if r.Generation != 2 || !r.Changed ||
		strings.Join(r.Added, " ") != next.Services[1].ID ||
		strings.Join(r.Removed, " ") != cfg.Services[0].ID ||
		strings.Join(r.Kept, " ") != next.Services[0].ID {
		t.Errorf("result %+v", r)
	}
	if len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0].String(), "test.cfg:9:4: warning: pidfile: ") {
		t.Errorf("warnings %v", r.Warnings)
	}
	if g := b.dial(ports[2]); g.gen != 2 {
		t.Errorf("generation %d serves the new service", g.gen)
	}
	if g := b.dial(ports[1]); g.gen != 2 {
		t.Errorf("generation %d serves the kept service", g.gen)
	}
	if _, err := tryDial(ports[0]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the removed service: %v", err)
	}
	_ = session.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := session.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the session of the removed service: %v", err)
	}

	b.signals <- syscall.SIGHUP
	b.eventually("SIGHUP reloads", func() error {
		if s := b.status(); s.Generation != 3 || s.LastReload == nil || !s.LastReload.OK {
			return fmt.Errorf("generation %d", s.Generation)
		}
		return nil
	})
}

func TestReloadRefused(t *testing.T) {
	ports := freePorts(t, 3)
	cfg := testConfig(t, ports[0])
	b := startBed(t, cfg)
	taken, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	with := func(change func(*config.Config), ports ...int) *config.Config {
		next := testConfig(t, ports...)
		next.Control = cfg.Control
		change(next)
		return next
	}
	bad := config.Diagnostic{Pos: config.Pos{File: "test.cfg", Line: 7, Column: 3}, Severity: config.Error, Text: "unknown command"}
	behave := func(how string) *config.Config {
		return with(func(c *config.Config) { c.Services[0].LogFormat = how }, ports[0], ports[2])
	}

	for name, c := range map[string]struct {
		next *config.Config
		want string
		// diagnostic is set when the answer must have a position.
		diagnostic string
	}{
		"errors in the file": {nil, "has errors", "test.cfg:7:3: error: unknown command"},
		"port in use": {with(func(*config.Config) {}, ports[0], ports[1]), "cannot listen",
			fmt.Sprintf("test.cfg:2:1: error: proxy: 127.0.0.1:%d is already in use", ports[1])},
		"log not writable": {with(func(c *config.Config) {
			c.Services[0].Log = config.Log{Kind: config.LogFile, Path: "/nonexistent/log"}
		}, ports[0], ports[2]), "cannot open a log", "test.cfg:1:1: error: log: open /nonexistent/log"},
		"a worker refuses": {behave(fakeRefuses), "refused by the test", ""},
		"a worker dies":    {behave(fakeDies), "it ended (exit status 9)", ""},
		"a worker hangs":   {behave(fakeHangs), "no answer in time", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b.load(c.next, bad)
			_, err := b.client.Reload(t.Context())
			var failed *ipc.RequestError
			if !errors.As(err, &failed) || !strings.Contains(failed.Text, c.want) {
				t.Fatalf("error %v", err)
			}
			if c.diagnostic != "" {
				if failed.Status != 422 || len(failed.Diagnostics) != 1 || !strings.HasPrefix(failed.Diagnostics[0].String(), c.diagnostic) {
					t.Errorf("status %d, diagnostics %v", failed.Status, failed.Diagnostics)
				}
			}
			if s := b.status(); s.Generation != 1 || s.LastReload.OK {
				t.Errorf("generation %d, last reload %+v", s.Generation, s.LastReload)
			}
			if _, err := tryDial(ports[2]); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the refused service: %v", err)
			}
			b.eventually("both workers serve", func() error {
				for slot := range 2 {
					if w := b.workerOf(slot); w.State != "running" {
						return fmt.Errorf("%+v", w)
					}
				}
				return nil
			})
			if g := b.dial(ports[0]); g.gen != 1 {
				t.Errorf("generation %d serves", g.gen)
			}
		})
	}
}

func TestWorkerThatDoesNotCommitIsReplaced(t *testing.T) {
	ports := freePorts(t, 1)
	cfg := testConfig(t, ports...)
	b := startBed(t, cfg)
	before := b.workerOf(1)
	next := testConfig(t, ports...)
	next.Control = cfg.Control
	next.Services[0].LogFormat = fakeStalls
	b.load(next)
	if _, err := b.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("a successor runs", func() error {
		if w := b.workerOf(1); w.PID == before.PID || w.State != "running" {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	if g := b.dialSlot(ports[0], 1); g.gen != 2 {
		t.Errorf("generation %d serves", g.gen)
	}
}

func TestDrainWorker(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	before := b.workerOf(0)
	session := b.dialSlot(ports[0], 0)
	slot, timeout := 0, 30.0
	r, err := b.client.Drain(t.Context(), ipc.DrainRequest{Worker: &slot, TimeoutSec: &timeout})
	if err != nil || len(r.Draining) != 1 {
		t.Fatalf("%+v, %v\n%s", r, err, b.log())
	}
	if g := b.dialSlot(ports[0], 0); g.pid == before.PID {
		t.Error("the draining worker accepts")
	}
	var draining []ipc.WorkerStatus
	for _, w := range b.status().Workers {
		if w.State == "draining" {
			draining = append(draining, w)
		}
	}
	if len(draining) != 1 || draining[0].PID != before.PID || draining[0].Sessions != 1 {
		t.Errorf("draining %+v", draining)
	}
	_ = session.conn.Close()
	b.eventually("the drained worker has ended", func() error {
		if n := len(b.status().Workers); n != 2 {
			return fmt.Errorf("%d workers", n)
		}
		return nil
	})
	if w := b.workerOf(0); w.Restarts != 0 {
		t.Errorf("a drain counts as restart: %+v", w)
	}
	slot = 5
	if _, err := b.client.Drain(t.Context(), ipc.DrainRequest{Worker: &slot}); err == nil {
		t.Error("worker 5 was drained")
	}
}

func TestDrainDaemonWaitsForSessions(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	session := b.dial(ports[0])
	b.signals <- syscall.SIGINT
	b.eventually("new connections are refused", func() error {
		g, err := tryDial(ports[0])
		if g.conn != nil {
			_ = g.conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("dial: %v", err)
		}
		return nil
	})
	if s := b.status(); s.State != "draining" {
		t.Errorf("state %s", s.State)
	}
	if _, err := b.client.Reload(t.Context()); err == nil {
		t.Error("a draining daemon reloads")
	}
	if !strings.Contains(b.log(), " open, for up to 1m0s; press Ctrl-C again") {
		t.Errorf("log:\n%s", b.log())
	}
	_ = session.conn.Close()
	select {
	case err := <-b.ended:
		b.ended <- err
	case <-time.After(20 * time.Second):
		t.Errorf("the daemon does not end\n%s", b.log())
	}
}

func TestDrainDeadlineEndsHungWorkers(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, ports...))
	// A stopped worker answers nothing: it is killed after the grace time.
	if err := unix.Kill(b.workerOf(0).PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	timeout := 0.0
	if _, err := b.client.Drain(t.Context(), ipc.DrainRequest{TimeoutSec: &timeout}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-b.ended:
		b.ended <- err
	case <-time.After(20 * time.Second):
		t.Errorf("the daemon does not end\n%s", b.log())
	}
}

func TestSecondInstanceIsRefused(t *testing.T) {
	ports := freePorts(t, 1)
	cfg := testConfig(t, ports...)
	b := startBed(t, cfg)

	other := testConfig(t, ports...)
	o := b.options(other)
	err := Run(t.Context(), o)
	want := fmt.Sprintf("test.cfg:1:1: proxy: 127.0.0.1:%d is already in use by another process", ports[0])
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}

	sameControl := testConfig(t, freePorts(t, 1)...)
	sameControl.Control = cfg.Control
	err = Run(t.Context(), b.options(sameControl))
	if err == nil || !strings.Contains(err.Error(), cfg.Control.Path+" is in use by another daemon") {
		t.Errorf("error %v", err)
	}
	b.status()
}

func TestStartFailureLeavesNothing(t *testing.T) {
	ports := freePorts(t, 1)
	b := startBed(t, testConfig(t, freePorts(t, 1)...))
	had := len(children())
	cfg := testConfig(t, ports...)
	if err := os.WriteFile(b.crash, []byte("3proxyd: worker 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), b.options(cfg))
	if err == nil || !strings.Contains(err.Error(), "worker 1 cannot be started") || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("error %v", err)
	}
	if n := len(children()); n != had {
		t.Errorf("%d children, before %d", n, had)
	}
	if _, err := os.Lstat(cfg.Control.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the control socket is left: %v", err)
	}
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Fatalf("the port is still bound: %v", err)
	}
	_ = l.Close()
}

func TestConns(t *testing.T) {
	b := startBed(t, testConfig(t, freePorts(t, 1)...))
	seen := map[int]int{}
	err := b.client.Conns(t.Context(), func(s ipc.Session) error {
		seen[s.Worker]++
		return nil
	})
	if err != nil || seen[0] != 1 || seen[1] != 1 {
		t.Errorf("sessions %v, %v", seen, err)
	}
}

func TestControlRefuses(t *testing.T) {
	cfg := testConfig(t, freePorts(t, 1)...)
	startBed(t, cfg)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", cfg.Control.Path)
		},
	}}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", "/v1/status", "", 200},
		{"GET", "/v1/nothing", "", 404},
		{"POST", "/v1/status", "", 405},
		{"GET", "/v1/drain", "", 405},
		{"POST", "/v1/drain", "{", 400},
		{"POST", "/v1/drain", `{"timeout_seconds":-1}`, 400},
		{"POST", "/v1/drain", `{"worker":99}`, 409},
		{"POST", "/v1/drain", `null`, 400},
		{"POST", "/v1/drain", `{"worker":99} x`, 400},
		{"POST", "/v1/drain", `{"workers":0}`, 400},
		{"POST", "/v1/reload", `{"dryrun":true}`, 400},
		{"POST", "/v1/drain", strings.Repeat(" ", controlBody+1), 400},
	} {
		r, _ := http.NewRequest(c.method, "http://x"+c.path, strings.NewReader(c.body))
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.code {
			t.Errorf("%s %s: status %d", c.method, c.path, answer.StatusCode)
		}
		if answer.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: type %s", c.method, c.path, answer.Header.Get("Content-Type"))
		}
	}
}
