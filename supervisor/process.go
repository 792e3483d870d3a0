package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// The environment variable that tells the binary which process to be.
const (
	RoleEnv    = "THREEPROXYD_ROLE"
	RoleWorker = "worker"
)

// workerName begins the command line of a worker; its slot follows.
const workerName = "3proxyd: worker "

// keptEnv are the variables of the supervisor a worker is given.
var keptEnv = []string{"TZ", "GOTRACEBACK", "GOCOVERDIR", systemd.JournalEnv}

// workerState is the state of a worker process.
type workerState string

const (
	stateStarting workerState = "starting"
	stateRunning  workerState = "running"
	stateDraining workerState = "draining"
	stateBackoff  workerState = "backoff"
	stateStopped  workerState = "stopped"
	stateRetired  workerState = "retired"
	// stateStalled is shown of a process whose event loop does not turn.
	stateStalled workerState = "stalled"
)

// process is one worker process.
type process struct {
	slot    *slot
	row     int
	pid     int
	started time.Time
	maxFDs  int

	proc    *os.Process
	conn    *ipc.Conn
	replies chan *ipc.Message
	// exited is closed when the process is reaped; exitText may be read then.
	exited   chan struct{}
	exitText string
	// loopThread is the id of the event loop's thread, 0 while it is not
	// known; hung says that the process is being ended for its silence.
	loopThread atomic.Int64
	hung       atomic.Bool
	// engine is the name of the event loop's engine, nil while it is not known.
	engine atomic.Pointer[string]

	// talk is held for an exchange of messages, one at a time. held are the
	// listeners the worker has, by service; gen is its generation.
	talk sync.Mutex
	held map[string]*listener
	gen  uint64

	// accepting is what the worker has been told last; guarded by talk.
	accepting ipc.Accept

	// state is guarded by daemon.mu.
	state workerState

	// moves are the orders to move sessions that wait for their outcome.
	movesMu  sync.Mutex
	moves    map[uint32]chan ipc.Moved
	lastMove uint32

	killMu sync.Mutex
	killAt *time.Timer
	// drainEnd is when the last order to drain ends the sessions.
	drainEnd time.Time
}

// spawn starts a worker process for a slot and row; the handshake is still to
// be made.
func (d *daemon) spawn(s *slot, row int) (*process, error) {
	conn, far, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer null.Close()

	attr := &os.ProcAttr{
		Env:   d.workerEnv(),
		Files: []*os.File{null, d.options.Stdout, d.options.Stderr, far},
		// A group of its own keeps the terminal's Ctrl-C from the worker.
		Sys: &syscall.SysProcAttr{Setpgid: true, Credential: credential(d.startConfig)},
	}
	var proc *os.Process
	err = pinned(d.cpuOf(s), func() error {
		proc, err = os.StartProcess(d.options.Exe, []string{fmt.Sprintf("%s%d", workerName, s.index)}, attr)
		return err
	})
	if proc == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start: %w", err)
	}
	p := &process{
		slot: s, row: row, pid: proc.Pid, proc: proc, conn: conn,
		started: time.Now(), maxFDs: d.nofile(),
		replies: make(chan *ipc.Message, 16),
		exited:  make(chan struct{}),
		held:    map[string]*listener{},
		state:   stateStarting,
	}
	d.shm.SetRowOwner(row, s.index, proc.Pid)
	go p.wait()
	go p.read(d)
	return p, nil
}

func (d *daemon) workerEnv() []string {
	env := []string{RoleEnv + "=" + RoleWorker, "GOMAXPROCS=2", workerDebugEnv(os.Getenv("GODEBUG"))}
	for _, name := range keptEnv {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, d.options.Env...)
}

// workerDebugEnv returns the GODEBUG of the workers: the supervisor's, without
// the signals by which the runtime preempts goroutines, unless it speaks of
// them. They would end the event loop's wait a hundred times a second; the loop
// gives way by itself (relay.Loop).
func workerDebugEnv(own string) string {
	const off = "asyncpreemptoff=1"
	switch {
	case own == "":
		return "GODEBUG=" + off
	case strings.Contains(own, "asyncpreemptoff"):
		return "GODEBUG=" + own
	}
	return "GODEBUG=" + own + "," + off
}

// credential returns the identity of the workers, nil for the supervisor's
// own. Supplementary groups are dropped with the user.
func credential(cfg *config.Config) *syscall.Credential {
	if cfg.SetUID == nil && cfg.SetGID == nil {
		return nil
	}
	c := &syscall.Credential{
		Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()),
		NoSetGroups: os.Geteuid() != 0,
	}
	if cfg.SetUID != nil {
		c.Uid = uint32(cfg.SetUID.ID)
	}
	if cfg.SetGID != nil {
		c.Gid = uint32(cfg.SetGID.ID)
	}
	return c
}

// wait reaps the process.
func (p *process) wait() {
	state, err := p.proc.Wait()
	p.exitText = exitText(state, err)
	close(p.exited)
	_ = p.conn.Close()
	p.stopKillTimer()
}

func exitText(state *os.ProcessState, err error) string {
	if err != nil {
		return err.Error()
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok {
		return waitText(status)
	}
	return state.String()
}

func waitText(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// read passes the worker's messages on until its end of the socket is closed.
// A worker that closes it and does not exit is killed.
func (p *process) read(d *daemon) {
	for {
		m, err := p.conn.Recv()
		if err != nil {
			p.ended(d, err)
			return
		}
		m.CloseFDs()
		if m.Type == ipc.MsgMoved {
			p.onMoved(m)
			continue
		}
		select {
		case p.replies <- m:
		case <-p.exited:
			return
		}
	}
}

func (p *process) ended(d *daemon, err error) {
	if errors.Is(err, ipc.ErrFrame) {
		d.logf("worker %d (pid %d): %v; killing it", p.slot.index, p.pid, err)
		p.kill()
		return
	}
	select {
	case <-p.exited:
	case <-time.After(d.timing.killGrace):
		p.kill()
	}
}

// kill ends the process at once.
func (p *process) kill() { _ = p.proc.Kill() }

// killAfter kills the process if it has not ended in t; a later call replaces
// the time.
func (p *process) killAfter(t time.Duration) {
	p.killMu.Lock()
	defer p.killMu.Unlock()
	if p.killAt != nil {
		p.killAt.Stop()
	}
	p.killAt = time.AfterFunc(t, p.kill)
}

func (p *process) stopKillTimer() {
	p.killMu.Lock()
	defer p.killMu.Unlock()
	if p.killAt != nil {
		p.killAt.Stop()
	}
}

var (
	errNoAnswer = errors.New("no answer in time")
	errEnded    = errors.New("it ended")
)

// answer waits for a message of type want for which match, if given, returns
// true. Messages that answer nothing asked for are dropped. The caller holds
// talk.
func (p *process) answer(ctx context.Context, limit time.Duration, want ipc.Type, match func(*ipc.Message) bool) (*ipc.Message, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case m := <-p.replies:
			if m.Type == ipc.MsgUnrecognized {
				return nil, errors.New("it does not know the message")
			}
			if m.Type == want && (match == nil || match(m)) {
				return m, nil
			}
		case <-p.exited:
			return nil, fmt.Errorf("%w (%s)", errEnded, p.exitText)
		case <-timer.C:
			return nil, errNoAnswer
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// send sends a message; errEnded is the error when the process is gone.
func (p *process) send(t ipc.Type, id uint32, body any, fds ...int) error {
	err := p.conn.Send(t, id, body, fds...)
	if err == nil {
		return nil
	}
	// A process that dies closes its socket before it can be reaped.
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		<-p.exited
	}
	select {
	case <-p.exited:
		return fmt.Errorf("%w (%s)", errEnded, p.exitText)
	default:
		return err
	}
}

// greet makes the handshake with a new process.
func (p *process) greet(ctx context.Context, d *daemon, l Limits) error {
	p.talk.Lock()
	defer p.talk.Unlock()
	m, err := p.answer(ctx, d.timing.greeting, ipc.MsgHello, nil)
	if err != nil {
		return fmt.Errorf("waiting for its greeting: %w", err)
	}
	var hello ipc.Hello
	if err := m.Decode(&hello); err != nil {
		return err
	}
	if hello.Version != ipc.Version {
		return fmt.Errorf("it speaks version %d of the protocol instead of %d", hello.Version, ipc.Version)
	}
	p.loopThread.Store(int64(hello.Thread))
	p.accepting = d.acceptingNow()
	return p.send(ipc.MsgWelcome, 0, ipc.Welcome{
		Version: ipc.Version,
		Slot:    p.slot.index, Row: p.row, Workers: d.workers(), CPU: d.cpuOf(p.slot),
		MaxFDs: p.maxFDs, MaxPipes: l.MaxPipes, PipeSize: l.PipeSize,
		Engine: d.startConfig.Engine,
		Family: ipc.Family(d.control.path), Stored: systemd.Managed(),
		Accept: p.accepting,
	}, d.shm.FD())
}

// prepare sends a generation and waits until the worker has it ready.
func (p *process) prepare(ctx context.Context, d *daemon, s *snapshot) error {
	p.talk.Lock()
	defer p.talk.Unlock()
	id := uint32(s.gen)
	body := ipc.Prepare{
		Gen: s.gen, Services: s.services,
		Pipes: &ipc.PipeShare{Max: s.limits.MaxPipes, Size: s.limits.PipeSize},
	}
	if err := p.send(ipc.MsgPrepare, id, body, int(s.memfd.Fd())); err != nil {
		return err
	}
	if err := p.sendFiles(ipc.MsgFiles, s.gen, p.missing(s)); err != nil {
		return err
	}
	if err := p.send(ipc.MsgPrepareEnd, id, ipc.Generation{Gen: s.gen}); err != nil {
		return err
	}
	var reply ipc.Prepared
	_, err := p.answer(ctx, d.timing.exchange, ipc.MsgPrepared, func(m *ipc.Message) bool {
		reply = ipc.Prepared{}
		return m.Decode(&reply) == nil && reply.Gen == s.gen
	})
	if err == nil && reply.Error != "" {
		return errors.New(reply.Error)
	}
	p.engine.Store(&reply.Engine)
	return err
}

// commit puts a prepared generation in force; with force all sessions are
// checked against its rules.
func (p *process) commit(ctx context.Context, d *daemon, s *snapshot, force bool) error {
	p.talk.Lock()
	defer p.talk.Unlock()
	if err := p.send(ipc.MsgCommit, uint32(s.gen), ipc.Generation{Gen: s.gen, Force: force}); err != nil {
		return err
	}
	_, err := p.answer(ctx, d.timing.exchange, ipc.MsgCommitted, func(m *ipc.Message) bool {
		var reply ipc.Generation
		return m.Decode(&reply) == nil && reply.Gen == s.gen
	})
	if err != nil {
		return err
	}
	p.gen = s.gen
	p.held = s.byService()
	return nil
}

// abort makes the worker forget a generation; there is no answer.
func (p *process) abort(s *snapshot) error {
	p.talk.Lock()
	defer p.talk.Unlock()
	return p.send(ipc.MsgAbort, uint32(s.gen), ipc.Generation{Gen: s.gen})
}

// limitDrain notes an order to drain and returns the time it leaves.
func (p *process) limitDrain(limit drainLimit) time.Duration {
	p.killMu.Lock()
	defer p.killMu.Unlock()
	p.drainEnd = limit.until(p.drainEnd)
	return max(0, time.Until(p.drainEnd))
}

// drainDeadline is when the last order to drain ends the sessions, zero when
// there was none.
func (p *process) drainDeadline() time.Time {
	p.killMu.Lock()
	defer p.killMu.Unlock()
	return p.drainEnd
}

// drain makes the worker stop accepting, and end within the limit; it is killed
// if it does not. final tells that its sockets have no next owner, unowned lists
// services for which that is so when it is not for all.
func (p *process) drain(ctx context.Context, d *daemon, limit drainLimit, final bool, unowned ...string) error {
	timeout := p.limitDrain(limit)
	if !p.hung.Load() {
		p.killAfter(timeout + d.timing.killGrace)
	}
	p.talk.Lock()
	defer p.talk.Unlock()
	err := p.send(ipc.MsgDrain, 0, ipc.Drain{TimeoutMS: timeout.Milliseconds(), Final: final, Unowned: unowned})
	if err == nil {
		_, err = p.answer(ctx, d.timing.exchange, ipc.MsgDraining, nil)
	}
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// disown takes the sockets of a slot away.
func (p *process) disown(ctx context.Context, d *daemon, slot int) error {
	p.talk.Lock()
	defer p.talk.Unlock()
	if err := p.send(ipc.MsgDisown, uint32(slot), ipc.Disown{Slot: slot}); err != nil {
		return err
	}
	_, err := p.answer(ctx, d.timing.exchange, ipc.MsgDisowned, func(m *ipc.Message) bool {
		var reply ipc.Disown
		return m.Decode(&reply) == nil && reply.Slot == slot
	})
	return err
}

// passed is a descriptor to be sent and what it is for.
type passed struct {
	entry ipc.FileEntry
	fd    int
}

// missing lists what the worker needs of a snapshot and does not have: every
// log, and the listeners it does not hold.
func (p *process) missing(s *snapshot) []passed {
	var files []passed
	for i, l := range s.listeners {
		id := s.cfg.Services[i].ID
		if p.held[id] != l {
			files = append(files, listenerFiles(l, id, p.slot.index)...)
		}
	}
	for _, l := range s.logs {
		files = append(files, passed{ipc.FileEntry{Kind: ipc.FileLog, Log: l.path}, l.fd})
	}
	return files
}

// listenerFiles are a slot's sockets of a listener, none when it was opened
// for fewer slots; of sockets of socket units, which only the service manager can
// add to, such a slot shares another's. Shared ones are numbered from -1 down:
// they belong to no slot.
func listenerFiles(l *listener, service string, slot int) []passed {
	if n := l.slots(); l.kept && !l.shared && slot >= n {
		i := slot % n
		fd, _ := l.fd(i)
		entry := ipc.FileEntry{Kind: ipc.FileSharedListener, Service: service, Slot: -1 - i, Kept: true, Unit: l.unitName(i)}
		return []passed{{entry, fd}}
	}
	if !l.shared {
		entry := ipc.FileEntry{Kind: ipc.FileListener, Service: service, Slot: slot, Kept: l.kept, Unit: l.unitName(slot)}
		if fd, ok := l.fd(slot); ok {
			return []passed{{entry, fd}}
		}
		return nil
	}
	var files []passed
	for i, fd := range l.fds {
		entry := ipc.FileEntry{Kind: ipc.FileSharedListener, Service: service, Slot: -1 - i, Kept: l.kept, Unit: l.unitName(i)}
		files = append(files, passed{entry, fd})
	}
	return files
}

// sendFiles sends descriptors in messages that are within the limits of a
// frame.
func (p *process) sendFiles(t ipc.Type, gen uint64, files []passed) error {
	// Names are escaped by at most six bytes for each of theirs.
	const budget = ipc.MaxBody / 8
	for len(files) > 0 {
		n, size := 0, 0
		for n < len(files) && n < ipc.MaxFDs && (n == 0 || size < budget) {
			size += len(files[n].entry.Service) + len(files[n].entry.Log) + 64
			n++
		}
		body := ipc.Files{Gen: gen}
		var fds []int
		for _, f := range files[:n] {
			body.Entries = append(body.Entries, f.entry)
			fds = append(fds, f.fd)
		}
		if err := p.send(t, uint32(gen), body, fds...); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// byService maps each service to its listener.
func (s *snapshot) byService() map[string]*listener {
	m := make(map[string]*listener, len(s.listeners))
	for i, l := range s.listeners {
		m[s.cfg.Services[i].ID] = l
	}
	return m
}
