package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"3proxyd/ipc"
)

// The states of an upgrade, as status shows them.
const (
	upgradeStarting = "starting"
	upgradeTrial    = "trial"
)

const (
	// upgradeTimeout is how long a successor may take until it is ready,
	// unless the request says otherwise.
	upgradeTimeout = 30 * time.Second
	// upgradeCancel is how long what a successor has accepted may go on when
	// the upgrade fails and it does not leave its workers here.
	upgradeCancel = 5 * time.Second
	// cancelGrace is how long it may take to end besides.
	cancelGrace = time.Second
	// takeoverTime bounds the last steps.
	takeoverTime = 10 * time.Second
)

const (
	errUpgrading = notNow("an upgrade is under way")
	errReplaced  = notNow("this daemon has been replaced by an upgrade")
)

// upgradeRequest says what to upgrade to.
type upgradeRequest struct {
	binary string
	// trial is how long the successor must stay up before it takes over,
	// timeout how long it may take until it is ready.
	trial, timeout time.Duration
}

// upgrade is one attempt to hand everything over to another binary.
type upgrade struct {
	d       *daemon
	request upgradeRequest
	begun   time.Time
	// ctx ends when the daemon is told to stop.
	ctx    context.Context
	cancel context.CancelFunc

	conn    *ipc.Conn
	proc    *launched
	replies chan *ipc.Message
	hello   ipc.HandoffHello
	ready   ipc.HandoffReady
	// columns is the number of columns the successor may have used.
	columns int
	// accepts says that the successor may have accepted connections, silent that
	// it has not answered in time.
	accepts, silent bool

	// sendMu keeps the reports of new workers behind the manifest.
	sendMu   sync.Mutex
	reported bool

	// state, version, pid and reloadAsked are guarded by daemon.mu.
	state   string
	version string
	pid     int
	// reloadAsked says that a signal has asked for a reload meanwhile.
	reloadAsked bool
}

// upgradeTo replaces the daemon by the given binary. It returns when the new
// one has taken over, or with the reason why the old one goes on.
func (d *daemon) upgradeTo(r upgradeRequest) (*ipc.UpgradeResult, error) {
	u, err := d.claimUpgrade(r)
	if err != nil {
		d.logf("upgrade refused: %v", err)
		return nil, err
	}
	result, err := u.run()
	d.concludeUpgrade(u, err)
	return result, err
}

// claimUpgrade makes sure that there is one upgrade at a time, and that not too
// many old generations are left.
func (d *daemon) claimUpgrade(r upgradeRequest) (*upgrade, error) {
	if os.Getpid() == 1 {
		return nil, notNow("process 1 cannot be replaced, its end would end all others: start the daemon under an init process")
	}
	limit := d.inForce().cfg.UpgradeOld
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.replaced:
		return nil, errReplaced
	case d.draining:
		return nil, errDraining
	case d.upgrading != nil:
		return nil, errUpgrading
	case len(d.old) >= limit:
		o := d.old[len(d.old)-1]
		return nil, notNow(fmt.Sprintf("%s not gone yet, no more may be left (upgrade_old %d); the latest (pid %d) has %v left",
			count(len(d.old), "old generation is", "old generations are"), limit, o.PID, max(0, time.Until(o.deadline)).Round(time.Second)))
	}
	u := &upgrade{d: d, request: r, begun: time.Now(), replies: make(chan *ipc.Message, 16), state: upgradeStarting}
	u.ctx, u.cancel = context.WithCancel(d.running)
	d.upgrading = u
	return u, nil
}

// isUpgrading refuses what cannot be done during an upgrade.
func (d *daemon) isUpgrading() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.replaced:
		return errReplaced
	case d.upgrading != nil:
		return errUpgrading
	}
	return nil
}

func (d *daemon) concludeUpgrade(u *upgrade, err error) {
	u.cancel()
	outcome := &ipc.UpgradeOutcome{Time: time.Now(), OK: err == nil, Binary: u.request.binary, Version: u.hello.Version}
	if err != nil {
		outcome.Error = err.Error()
	}
	d.mu.Lock()
	d.upgrading, d.lastUpgrade = nil, outcome
	reload := u.reloadAsked
	d.mu.Unlock()
	if reload {
		defer d.reloadAfter(u, err != nil)
	}
	if err == nil {
		d.logf("process %d, version %s, has taken over; %s", u.proc.pid, u.hello.Version, d.leftText())
		return
	}
	d.logf("upgrade to %s failed, this daemon goes on: %v", u.request.binary, err)
	var refused *Refused
	if errors.As(err, &refused) {
		for _, diag := range refused.Diagnostics {
			d.logf("%s", diag)
		}
	}
	d.kickAdoption()
}

func (d *daemon) leftText() string {
	n := d.sessionsLeft()
	if n == 0 {
		return "no session is left here"
	}
	return fmt.Sprintf("%s here to finish", count(n, "session is left", "sessions are left"))
}

// sessionsLeft is the number of open sessions of the own workers.
func (d *daemon) sessionsLeft() int {
	n := 0
	for _, p := range d.allProcesses() {
		n += int(d.sessionsOf(p.row))
	}
	return n
}

func (u *upgrade) run() (*ipc.UpgradeResult, error) {
	d := u.d
	d.change.Lock()
	defer d.change.Unlock()
	if err := u.launch(); err != nil {
		return nil, fmt.Errorf("%s cannot be started: %w", u.request.binary, err)
	}
	defer u.proc.close()
	defer u.conn.Close()
	err := u.handOver()
	if err == nil {
		err = u.commit()
	}
	if err != nil {
		u.rollBack(err)
		return nil, err
	}
	u.retire()
	return u.result(), nil
}

// launch starts the new binary.
func (u *upgrade) launch() error {
	if err := checkBinary(u.request.binary); err != nil {
		return err
	}
	if err := u.d.checkTasks(); err != nil {
		return err
	}
	conn, far, err := ipc.HandoffPair()
	if err != nil {
		return err
	}
	u.proc, err = u.d.launchSuccessor(u.request.binary, far)
	_ = far.Close()
	if err != nil {
		_ = conn.Close()
		return err
	}
	u.conn = conn
	u.note(func() { u.pid = u.proc.pid })
	u.d.logf("upgrade to %s: started as process %d", u.request.binary, u.proc.pid)
	go u.read()
	return nil
}

// checkTasks makes sure that the control group permits the processes of a
// successor beside those there are: one that has no thread left for its runtime
// ends without a word, and so could this one.
func (d *daemon) checkTasks() error {
	need := (2 + d.workers()) * startTasks
	room := d.machine.taskRoom()
	if room.free < 0 || room.free >= need {
		return nil
	}
	return fmt.Errorf("it needs %d tasks beside those there are, but pids.max of the control group is %d and permits %d more: set TasksMax=%d in the unit",
		need, room.limit, room.free, room.limit+need-room.free)
}

// note changes what status shows.
func (u *upgrade) note(change func()) {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	change()
}

// handOver gives the successor everything and returns when it accepts
// connections beside the own workers.
func (u *upgrade) handOver() error {
	d, deadline := u.d, u.begun.Add(u.request.timeout)
	m, err := u.expect(u.ctx, ipc.MsgHandoffHello, time.Until(deadline), "say hello")
	if err != nil {
		return err
	}
	if err := m.Decode(&u.hello); err != nil {
		return err
	}
	u.note(func() { u.version = u.hello.Version })
	version, err := ipc.ChooseHandoffVersion(u.hello)
	if err != nil {
		return fmt.Errorf("%s (version %s): %w", u.request.binary, u.hello.Version, err)
	}
	d.setAccepting(ipc.Accept{Lent: true})
	if err := u.sendAll(version, deadline); err != nil {
		return err
	}
	m, err = u.expect(u.ctx, ipc.MsgHandoffReady, time.Until(deadline), "get ready")
	if err != nil {
		return err
	}
	if err := m.Decode(&u.ready); err != nil {
		return err
	}
	u.columns = min(u.ready.ColumnsUsed, ipc.MaxColumns)
	u.accepts = true
	if err := u.send(ipc.MsgHandoffGo, nil); err != nil {
		return err
	}
	_, err = u.expect(u.ctx, ipc.MsgHandoffServing, d.timing.exchange+time.Second, "accept connections")
	return err
}

// commit pauses the own workers, waits for the trial to pass, and has the
// successor take over.
func (u *upgrade) commit() error {
	d := u.d
	u.note(func() { u.state = upgradeTrial })
	d.setAccepting(ipc.Accept{Paused: true, Lent: true, Keep: u.unusedServices()})
	if err := u.awaitTrial(); err != nil {
		return err
	}
	if err := u.send(ipc.MsgHandoffCheck, nil); err != nil {
		return err
	}
	if _, err := u.expect(u.ctx, ipc.MsgHandoffServing, d.timing.exchange+time.Second, "show that its workers run"); err != nil {
		return err
	}
	if u.ctx.Err() != nil {
		return errDraining
	}
	// The successor takes datagrams when it has taken over.
	d.setAccepting(ipc.Accept{Paused: true, HoldDatagrams: true, Lent: true, Keep: u.unusedServices()})
	left := d.drainTimeout()
	if err := u.send(ipc.MsgHandoffTakeover, ipc.HandoffTakeover{LeftMS: left.Milliseconds()}); err != nil {
		return err
	}
	// From here on a stop cannot be obeyed half: it is passed on.
	_, err := u.expect(context.Background(), ipc.MsgHandoffTakenOver, takeoverTime, "take over")
	return err
}

// awaitTrial waits for the time the successor must stay up.
func (u *upgrade) awaitTrial() error {
	timer := time.NewTimer(u.request.trial)
	defer timer.Stop()
	m, err := u.next(u.ctx, timer.C)
	switch {
	case errors.Is(err, errHandoffEnded):
		return u.endError("outlast its trial")
	case err != nil || m == nil:
		return err
	case m.Type == ipc.MsgHandoffFailed:
		return failureOf(m)
	}
	return fmt.Errorf("the new daemon sends message type %d during its trial", m.Type)
}

// unusedServices are those whose listeners the successor does not have.
func (u *upgrade) unusedServices() []string {
	unused := map[string]bool{}
	for _, key := range u.ready.Unused {
		unused[key] = true
	}
	var ids []string
	current := u.d.inForce()
	for i, l := range current.listeners {
		if unused[l.key] {
			ids = append(ids, current.cfg.Services[i].ID)
		}
	}
	return ids
}

// rollBack makes the daemon what it was before: its workers accept again, then
// the successor is ended. What that one has accepted comes here with its
// workers.
func (u *upgrade) rollBack(why error) {
	d := u.d
	d.setAccepting(ipc.Accept{Lent: true})
	u.endSuccessor(why)
	orphans := u.takeBackWorkers()
	u.proc.kill(pidsOf(orphans)...)
	if readPID(d.startConfig.PIDFile) == u.proc.pid {
		if err := writePIDFile(d.startConfig.PIDFile); err != nil {
			d.logf("%v", err)
		}
	}
	d.takeBackRows(u.columns, orphans)
	u.drainTakenBack(orphans)
	d.setAccepting(ipc.Accept{})
}

// awaitEnd waits for the end of the successor.
func (u *upgrade) awaitEnd(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-u.replies:
			if !ok {
				return
			}
		case <-u.proc.ended:
			return
		case <-timer.C:
			return
		}
	}
}

func (u *upgrade) result() *ipc.UpgradeResult {
	return &ipc.UpgradeResult{
		PID: u.proc.pid, Version: u.hello.Version, Generation: u.ready.Generation,
		Added: u.ready.Added, Removed: u.ready.Removed, Kept: u.ready.Kept, Warnings: u.ready.Warnings,
		Left: u.d.sessionsLeft(), Seconds: time.Since(u.begun).Seconds(),
	}
}

// status describes the upgrade. The caller holds daemon.mu.
func (u *upgrade) status(now time.Time) *ipc.UpgradeStatus {
	return &ipc.UpgradeStatus{State: u.state, Binary: u.request.binary, Version: u.version, PID: u.pid, AgeSec: now.Sub(u.begun).Seconds()}
}

// defaultBinary is the file this process was started from. Later a newer one
// may have taken its place.
func defaultBinary() string {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(path, " (deleted)")
}

// defaultUpgrade is what SIGUSR2 asks for.
func (d *daemon) defaultUpgrade() upgradeRequest {
	trial := time.Duration(d.inForce().cfg.UpgradeTrial) * time.Second
	return upgradeRequest{binary: d.binary, trial: trial, timeout: upgradeTimeout}
}

// cancelUpgrade ends an upgrade under way, if it can still be ended.
func (d *daemon) cancelUpgrade() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.upgrading != nil {
		d.upgrading.cancel()
	}
}

func (d *daemon) isReplaced() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replaced
}
