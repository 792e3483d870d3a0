package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"3proxyd/internal/freeport"
	"3proxyd/ipc"
)

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// output collects what a daemon and its workers print.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// daemon is one running 3proxyd.
type daemon struct {
	t      *testing.T
	cmd    *exec.Cmd
	dir    string
	config string
	socket string
	out    output
	exited chan struct{}
	// fds are the descriptors of each process after the start.
	fds map[int]int
	// dumped says that the test had the processes print their goroutines.
	dumped bool
	// inherited are sockets that startUpgradable passes on.
	inherited []*os.File
}

// start runs a daemon with the configuration and waits until it answers. A
// command line in wrap runs it. It is ended and checked with the test.
func start(t *testing.T, config string, wrap ...string) *daemon {
	t.Helper()
	d := newDaemon(t, config)
	d.launch(wrap...)
	d.await()
	return d
}

// engine is the engine of the daemons whose configuration names none.
var engine = flag.String("engine", "", "engine of the workers: auto, epoll or io_uring")

// newDaemon writes the configuration, with a control socket of its own.
func newDaemon(t *testing.T, config string) *daemon {
	t.Helper()
	// The path of a Unix socket must be short, which t.TempDir is not.
	dir, err := os.MkdirTemp("", "3p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &daemon{t: t, dir: dir, exited: make(chan struct{})}
	d.config, d.socket = filepath.Join(dir, "3proxy.cfg"), filepath.Join(dir, "c.sock")
	d.write(config)
	return d
}

// write replaces the configuration file.
func (d *daemon) write(config string) {
	d.t.Helper()
	text := "control " + d.socket + "\n" + config
	if *engine != "" && !strings.Contains(config, "engine ") {
		text = strings.TrimSuffix(text, "\n") + "\nengine " + *engine + "\n"
	}
	if err := os.WriteFile(d.config, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// launch starts the process.
func (d *daemon) launch(wrap ...string) {
	d.t.Helper()
	args := append(wrap[:len(wrap):len(wrap)], daemonBin, "-c", d.config)
	d.run(exec.Command(args[0], args[1:]...))
}

// run starts a command that is, or becomes, the daemon.
func (d *daemon) run(cmd *exec.Cmd) {
	d.t.Helper()
	d.cmd = cmd
	cmd.Stdout, cmd.Stderr = &d.out, &d.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A worker left behind would keep the output open.
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(d.exited)
	}()
	d.t.Cleanup(d.finish)
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) hasExited() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// finish checks the daemon, ends it and checks that nothing is left of it.
func (d *daemon) finish() {
	t := d.t
	defer func() {
		if t.Failed() {
			t.Logf("the daemon printed:\n%s", d.out.String())
		}
	}()
	if !d.hasExited() && !t.Failed() {
		d.checkIdle()
	}
	d.stop(syscall.SIGTERM)
	for _, word := range []string{"panic", "fatal error", "goroutine "} {
		if !d.dumped && strings.Contains(d.out.String(), word) {
			t.Errorf("the daemon printed %q", word)
		}
	}
	if _, err := os.Lstat(d.socket); err == nil {
		t.Errorf("the control socket is left behind")
	}
}

// stop ends the daemon with a signal and checks its end.
func (d *daemon) stop(sig syscall.Signal) {
	t := d.t
	t.Helper()
	if d.hasExited() {
		return
	}
	pids := append(children(d.pid()), d.pid())
	_ = d.cmd.Process.Signal(sig)
	if !d.waitExit(patience) {
		t.Errorf("the daemon does not end after %v", sig)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-d.exited
		return
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d (%v)", code, d.cmd.ProcessState)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is left behind", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// kill kills the supervisor and leaves its workers, which keep the output open.
func (d *daemon) kill() {
	d.cmd.WaitDelay = time.Millisecond
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// restart starts another supervisor with the control socket of d and a
// configuration, and waits until it answers.
func (d *daemon) restart(config string) *daemon {
	d.t.Helper()
	next := newDaemon(d.t, "")
	next.socket = d.socket
	next.write(config)
	next.launch()
	next.await()
	return next
}

func (d *daemon) waitExit(limit time.Duration) bool {
	select {
	case <-d.exited:
		return true
	case <-time.After(limit):
		return false
	}
}

func (d *daemon) countFDs() map[int]int {
	counts := map[int]int{}
	for _, pid := range append(children(d.pid()), d.pid()) {
		counts[pid] = openFDs(d.t, pid)
	}
	return counts
}

// sparePipes are the pipes a worker keeps ready.
const sparePipes = 8

// checkIdle waits until no session is open and checks that the processes that
// have lived all the time have no more descriptors than at the start, but for
// what they may keep for reuse: pipes and idle connections to servers.
func (d *daemon) checkIdle() {
	t := d.t
	t.Helper()
	eventually(t, patience, func() string {
		if n := d.stats().Total["open"]; n != 0 {
			conns, _, _ := d.ctl("conns")
			return fmt.Sprintf("%d sessions are open:\n%s", n, conns)
		}
		return ""
	})
	pooled := d.pooled()
	eventually(t, patience, func() string {
		for pid, now := range d.countFDs() {
			allowed, old := d.fds[pid]
			if pid != d.pid() {
				allowed += 2*sparePipes + pooled
			}
			if old && now > allowed {
				return fmt.Sprintf("process %d has %d descriptors, %d after the start:\n%s",
					pid, now, d.fds[pid], strings.Join(fdTargets(pid), "\n"))
			}
		}
		return ""
	})
}

// pooled bounds the idle connections the HTTP proxy may keep: one for each
// request it has had.
func (d *daemon) pooled() int {
	n := uint64(0)
	for _, s := range d.stats().Services {
		if strings.HasPrefix(s.ID, "proxy@") || strings.HasPrefix(s.ID, "auto@") {
			n += s.Counters["requests"]
		}
	}
	return int(min(n, 64))
}

// ctl runs 3proxyctl.
func (d *daemon) ctl(args ...string) (stdout, stderr string, code int) {
	d.t.Helper()
	return command(d.t, ctlBin, append([]string{"-s", d.socket}, args...)...)
}

// command runs a program to its end.
func command(t *testing.T, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", name, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// ask runs a command of 3proxyctl and decodes its JSON.
func ask[T any](d *daemon, args ...string) T {
	d.t.Helper()
	stdout, stderr, code := d.ctl(append([]string{"-o", "json"}, args...)...)
	if code != 0 {
		d.t.Fatalf("3proxyctl %v: exit code %d: %s", args, code, stderr)
	}
	var v T
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		d.t.Fatalf("3proxyctl %v: %v in %s", args, err, stdout)
	}
	return v
}

func (d *daemon) status() ipc.Status { d.t.Helper(); return ask[ipc.Status](d, "status") }
func (d *daemon) stats() ipc.Stats   { d.t.Helper(); return ask[ipc.Stats](d, "stats") }

// conns lists the live sessions.
func (d *daemon) conns() []ipc.Session {
	d.t.Helper()
	stdout, stderr, code := d.ctl("-o", "json", "conns")
	if code != 0 {
		d.t.Fatalf("3proxyctl conns: exit code %d: %s", code, stderr)
	}
	var list []ipc.Session
	for line := range strings.Lines(stdout) {
		var s ipc.Session
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			d.t.Fatalf("3proxyctl conns: %v in %s", err, line)
		}
		list = append(list, s)
	}
	return list
}

// worker returns the status of a slot: of the process in its place.
func (d *daemon) worker(slot int) ipc.WorkerStatus {
	d.t.Helper()
	for _, w := range d.status().Workers {
		if w.Slot == slot {
			return w
		}
	}
	d.t.Fatalf("there is no worker %d", slot)
	return ipc.WorkerStatus{}
}

// service returns the counters of the only service of a kind.
func (d *daemon) service(kind string) ipc.CounterValues {
	d.t.Helper()
	for _, s := range d.stats().Services {
		if strings.HasPrefix(s.ID, kind+"@") {
			return s.Counters
		}
	}
	d.t.Fatalf("no service %s", kind)
	return nil
}

// port returns a free port of 127.0.0.1 that no other test is given.
func port(t *testing.T) int {
	t.Helper()
	p, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
