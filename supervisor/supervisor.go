package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// Options say what Run runs.
type Options struct {
	// Config is the configuration to start with, Warnings what Load said
	// about it.
	Config   *config.Config
	Warnings []config.Diagnostic
	// Load reads the configuration again for a reload; the Config is nil when
	// a diagnostic is an error.
	Load func() (*config.Config, []config.Diagnostic)
	// Version is shown to the operator.
	Version string
	// Exe is the binary workers are started from; "" means the own one.
	Exe string
	// Env is added to the environment of the workers, which is otherwise
	// nearly empty.
	Env []string
	// Stdout and Stderr are those of the workers as well; nil means the own
	// ones. The start message goes to Stdout, every other to Stderr.
	Stdout, Stderr *os.File
	// Signals are acted upon: SIGHUP and SIGUSR1 reload, SIGUSR2 upgrades to
	// the binary at the own path, SIGTERM and SIGINT
	// drain, and end at once when they come again; SIGQUIT ends at once. Nil means those the
	// process receives.
	Signals <-chan os.Signal
	// Successor is what was received from a daemon that is to be replaced; nil
	// for an ordinary start.
	Successor *Successor

	timing  *timing
	machine *machine
}

// timing are the times of the supervisor; tests shorten them.
type timing struct {
	// greeting bounds the start of a worker, exchange its answer to one
	// message.
	greeting, exchange time.Duration
	// killGrace is how long a worker may outlive the end of its drain.
	killGrace time.Duration
	// stable is how long a worker must live for its end not to count as part
	// of a crash loop; unit and cap are the back-off's.
	stable, unit, cap time.Duration
	// undecided is how long a supervisor on trial whose predecessor has died
	// may take to notice that another one has been started in its place.
	undecided time.Duration
	// conns bounds the listing of the sessions.
	conns time.Duration
	// repeat is the least time between two signals to stop: one that comes
	// both from a terminal and from a wrapper must not cut the drain short.
	repeat time.Duration
	// A worker gives a sign of life every five seconds. watch is how often
	// they are looked for, quiet the silence after which another worker helps
	// out, silent that after which the worker is replaced, dump the time it
	// has to print its goroutines then.
	watch, quiet, silent, dump time.Duration
	// monitor is how often monitored files are looked at.
	monitor time.Duration
	// logs is how often the paths of the logs are looked at.
	logs time.Duration
}

var defaultTiming = timing{
	greeting:  10 * time.Second,
	exchange:  10 * time.Second,
	killGrace: 5 * time.Second,
	stable:    30 * time.Second,
	unit:      time.Second,
	cap:       60 * time.Second,
	undecided: 10 * time.Second,
	conns:     10 * time.Second,
	repeat:    500 * time.Millisecond,
	watch:     2 * time.Second,
	quiet:     8 * time.Second,
	silent:    15 * time.Second,
	dump:      3 * time.Second,
	monitor:   time.Second,
	logs:      time.Minute,
}

// daemon is the running supervisor.
type daemon struct {
	options     Options
	timing      timing
	machine     machine
	startConfig *config.Config
	started     time.Time
	slots       []*slot
	monitor     monitor
	shm         *ipc.Shm
	columns     *columns
	control     *controlServer

	// running ends when a drain begins.
	running     context.Context
	stopRunning context.CancelFunc
	// slotsDone counts the slots' goroutines and draining processes.
	slotsDone sync.WaitGroup
	drained   sync.WaitGroup
	adoptKick chan struct{}
	// rebalancing is held while sessions are evened out.
	rebalancing   sync.Mutex
	rebalanceKick chan struct{}
	// stopSignal is when the last signal to stop came; it belongs to serve.
	stopSignal time.Time
	inherited  inheritance
	legacy     legacy
	// succession is nil but in a daemon that has taken over from a running one,
	// or is about to.
	succession *succession
	// binary is the path this daemon was started from, parent the process
	// that started it.
	binary string
	parent int
	// main says that this is the daemon of the service: not one that is still
	// on trial, or has been replaced.
	main atomic.Bool
	// takenOver is closed when the daemon has been replaced. rowsOwner is held
	// for reading to change the shared memory as its owner, which ends then.
	takenOver chan struct{}
	rowsOwner sync.RWMutex
	// oldDone counts what watches old generations.
	oldDone sync.WaitGroup
	// untold says that the service manager could not be notified; alive is
	// received from by serve.
	untold atomic.Bool
	alive  chan struct{}
	// handedOver is closed when the workers are left to the next supervisor.
	handedOver chan struct{}
	// lastGen and store are guarded by change.
	change  sync.Mutex
	lastGen uint64
	store   store

	mu       sync.Mutex
	current  *snapshot
	closed   bool
	draining bool
	// drainEnd is when a drain of the daemon ends the last session.
	drainEnd   time.Time
	lastReload *ipc.ReloadOutcome
	// reloadAsked says that a signal has asked for a reload that has not begun.
	reloadAsked bool
	// accepting holds for all workers.
	accepting ipc.Accept
	// upgrading is the upgrade under way, lent what its successor may use.
	upgrading   *upgrade
	lent        *lentRows
	lastUpgrade *ipc.UpgradeOutcome
	replaced    bool
	// moves is where old generations hand their sessions over.
	moves *ipc.OrphanSocket
	// stopReplaced ends what serveReplaced has begun.
	stopReplaced func()
	// old are the old generations that are not gone.
	old []*oldGeneration

	*messages
}

// Run starts the daemon and returns when it has drained, with nil, or when it
// cannot be started; then no process is left behind. When ctx ends the daemon
// ends at once.
func Run(ctx context.Context, o Options) error {
	d, err := newDaemon(o)
	if err != nil {
		return err
	}
	d.messages = startMessages(d.options.Stderr)
	defer d.messages.stop()
	if err := d.inherit(); err != nil {
		return err
	}
	if err := d.checkPIDFile(); err != nil {
		d.abandonOrphans()
		return err
	}
	signals := d.options.Signals
	if signals == nil {
		received := make(chan os.Signal, 4)
		signal.Notify(received, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
		defer signal.Stop(received)
		signals = received
	}
	if err := d.start(ctx); err != nil {
		d.abandonOrphans()
		d.stopRunning()
		_ = d.shm.Close()
		return err
	}
	if d.succession == nil {
		d.tell(systemd.Ready, systemd.Status(d.statusLine()))
	} else if err := d.prove(ctx, signals); errors.Is(err, errLeft) {
		return nil
	} else if err != nil {
		return err
	}
	d.announce()
	if d.serve(ctx, signals) {
		d.cleanUp()
	}
	return nil
}

// cleanUp removes what a daemon that has drained leaves. After a handover it is
// still in use.
func (d *daemon) cleanUp() {
	d.drained.Wait()
	if d.isReplaced() {
		d.logf("this old generation ends: its last worker has")
	} else {
		d.logf("stopped: the last worker has ended")
	}
	d.endReplaced()
	d.endMoves()
	d.control.close()
	removePIDFile(d.startConfig.PIDFile)
	_ = d.shm.Close()
}

func newDaemon(o Options) (*daemon, error) {
	d := &daemon{
		options: o, timing: defaultTiming, machine: systemMachine(),
		startConfig: o.Config, started: time.Now(),
		adoptKick: make(chan struct{}, 1), rebalanceKick: make(chan struct{}, 1), alive: make(chan struct{}), handedOver: make(chan struct{}),
		takenOver: make(chan struct{}), binary: defaultBinary(), parent: os.Getppid(),
	}
	d.main.Store(o.Successor == nil)
	d.monitor.noteFiles(o.Config.Monitor)
	if o.timing != nil {
		d.timing = *o.timing
	}
	if o.machine != nil {
		d.machine = *o.machine
	}
	if d.options.Exe == "" {
		d.options.Exe = "/proc/self/exe"
	}
	if d.options.Stdout == nil {
		d.options.Stdout = os.Stdout
	}
	if d.options.Stderr == nil {
		d.options.Stderr = os.Stderr
	}
	if err := checkIdentity(o.Config); err != nil {
		return nil, err
	}
	cpus, err := WorkerCPUs(o.Config)
	if err != nil {
		return nil, err
	}
	for i, cpu := range cpus {
		d.slots = append(d.slots, newSlot(i, cpu))
	}
	d.running, d.stopRunning = context.WithCancel(context.Background())
	return d, nil
}

// checkIdentity refuses what only root can do before anything is started.
func checkIdentity(cfg *config.Config) error {
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		return nil
	}
	if cfg.SetUID != nil && cfg.SetUID.ID != uid {
		return fmt.Errorf("setuid %s: only root can change the user", cfg.SetUID.Name)
	}
	if cfg.SetGID != nil && cfg.SetGID.ID != gid {
		return fmt.Errorf("setgid %s: only root can change the group", cfg.SetGID.Name)
	}
	return nil
}

// start opens everything and starts the workers. On failure it leaves nothing
// behind.
func (d *daemon) start(ctx context.Context) (err error) {
	first, err := d.build(d.startConfig, d.options.Warnings)
	if err != nil {
		return err
	}
	d.current = first
	d.retireExcess(first)
	defer func() {
		if err != nil {
			d.closeInForce()
		}
	}()
	d.control, err = listenControl(d.startConfig.Control, &d.inherited)
	if err != nil {
		return err
	}
	d.markBorrowed()
	defer func() {
		if err != nil {
			d.control.close()
		}
	}()
	procs, err := d.startWorkers(ctx)
	if err != nil {
		return err
	}
	if err = d.claimPIDFile(); err != nil {
		d.killAll(procs)
		return err
	}
	for i, s := range d.slots {
		if procs[i] != nil {
			d.slotsDone.Add(1)
			go s.run(d, procs[i])
		}
	}
	go d.adoptLoop()
	go d.rebalanceLoop()
	go debug.FreeOSMemory() // what reading a long configuration took
	if d.succession != nil {
		return nil // the rest follows when it has taken over
	}
	unowned := d.unowned()
	d.own()
	d.kickAdoption()
	d.watchOld()
	d.attract(d.oldGenerations())
	orphans := d.watchOrphans(d.legacy.orphans)
	d.legacy.orphans = nil
	d.drained.Go(func() { d.drainOrphans(orphans, unowned...) })
	go d.control.serve(d)
	return nil
}

// startWorkers starts a worker in each slot, or none.
func (d *daemon) startWorkers(ctx context.Context) ([]*process, error) {
	procs := make([]*process, len(d.slots))
	errs := make([]error, len(d.slots))
	var wg sync.WaitGroup
	for i, s := range d.slots {
		if !s.retired {
			wg.Go(func() { procs[i], errs[i] = d.launch(ctx, s) })
		}
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			d.killAll(procs)
			return nil, fmt.Errorf("worker %d cannot be started: %w", i, err)
		}
	}
	return procs, nil
}

func (d *daemon) killAll(procs []*process) {
	procs = slices.DeleteFunc(slices.Clone(procs), func(p *process) bool { return p == nil })
	each(procs, func(_ int, p *process) {
		p.kill()
		<-p.exited
	})
}

// serve acts on signals until the daemon has drained. It is false when the
// workers are left to the next supervisor.
func (d *daemon) serve(ctx context.Context, signals <-chan os.Signal) bool {
	finished := make(chan struct{})
	go func() {
		<-d.running.Done()
		d.slotsDone.Wait()
		d.oldDone.Wait()
		close(finished)
	}()
	d.drained.Go(func() { d.watch(finished) })
	d.drained.Go(func() { d.monitorFiles(finished) })
	d.drained.Go(func() { d.watchLogs(finished) })
	d.drained.Go(func() { d.watchControl(finished) })
	d.drained.Go(func() { d.reportToManager(finished) })
	done := ctx.Done()
	for {
		select {
		case s := <-signals:
			d.onSignal(s)
		case <-d.alive:
		case <-done:
			done = nil
			d.drainInBackground(drainLimit{explicit: true})
		case <-d.handedOver:
			return false
		case <-finished:
			return true
		}
	}
}

func (d *daemon) onSignal(s os.Signal) {
	switch s {
	case syscall.SIGHUP, syscall.SIGUSR1:
		d.reloadBySignal()
	case syscall.SIGUSR2:
		d.drained.Go(func() { _, _ = d.upgradeTo(d.defaultUpgrade()) })
	case syscall.SIGTERM, syscall.SIGINT:
		d.onStopSignal(s)
	case syscall.SIGQUIT:
		d.stopNow()
	}
}

// onStopSignal drains, and with the second signal ends at once. A drain asked
// for otherwise goes on: the first signal never cuts sessions.
func (d *daemon) onStopSignal(s os.Signal) {
	now := time.Now()
	if !d.stopSignal.IsZero() && now.Sub(d.stopSignal) < d.timing.repeat {
		return
	}
	again := !d.stopSignal.IsZero()
	d.stopSignal = now
	if again {
		d.stopNow()
		return
	}
	how := "send SIGTERM again to stop now"
	if s == syscall.SIGINT {
		how = "press Ctrl-C again to stop now"
	}
	d.cancelUpgrade()
	d.drained.Go(func() { d.stopBySignal(how) })
}

func (d *daemon) stopNow() {
	d.logf("stopping now")
	d.drainInBackground(drainLimit{explicit: true})
}

// logDrain says that a drain is under way, and how to stop at once.
func (d *daemon) logDrain(timeout time.Duration, how string) {
	if n := d.openSessions(); n > 0 {
		d.logf("draining, %s open, for up to %v; %s", count(n, "session is", "sessions are"), timeout.Round(100*time.Millisecond), how)
	} else {
		d.logf("stopping")
	}
}

// drainInBackground returns the time that is left to the sessions.
func (d *daemon) drainInBackground(limit drainLimit) time.Duration {
	first, timeout := d.markDraining(limit)
	limit.timeout = timeout
	d.drained.Go(func() { d.drainAll(first, limit) })
	return timeout
}

// drainTimeout is the drain_timeout in force.
func (d *daemon) drainTimeout() time.Duration {
	return time.Duration(d.inForce().cfg.DrainTimeout) * time.Second
}

func (d *daemon) isDraining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// allSlots are the slots in use and the retired ones.
func (d *daemon) allSlots() []*slot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.slots)
}

// workers is the number of slots in use.
func (d *daemon) workers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.slots {
		if !s.retired {
			n++
		}
	}
	return n
}

func (d *daemon) cpuOf(s *slot) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.cpu
}

// runningProcesses are those that accept connections.
func (d *daemon) runningProcesses() []*process {
	d.mu.Lock()
	defer d.mu.Unlock()
	var procs []*process
	for _, s := range d.slots {
		if s.current != nil && s.current.state == stateRunning {
			procs = append(procs, s.current)
		}
	}
	return procs
}

// allProcesses are the running and the draining ones.
func (d *daemon) allProcesses() []*process {
	d.mu.Lock()
	defer d.mu.Unlock()
	var procs []*process
	for _, s := range d.slots {
		if s.current != nil {
			procs = append(procs, s.current)
		}
		for p := range s.leaving {
			procs = append(procs, p)
		}
	}
	return procs
}

// leavingProcesses are those that drain.
func (d *daemon) leavingProcesses() []*process {
	return slices.DeleteFunc(d.allProcesses(), func(p *process) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return p.slot.current == p
	})
}

// nofile is the limit of descriptors new processes start with.
func (d *daemon) nofile() int { return d.inForce().limits.Status.FDsGranted }

// columnsUsed is the number of columns of the shared memory that may be in
// use.
func (d *daemon) columnsUsed() int { return int(d.columns.used.Load()) }

// IsRefused returns the diagnostics of an error of Run that is about the
// configuration.
func IsRefused(err error) (*Refused, bool) {
	var refused *Refused
	ok := errors.As(err, &refused)
	return refused, ok
}
