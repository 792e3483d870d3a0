package supervisor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/systemd"
)

// reload reads the configuration and puts it in force in every worker, or in
// none: then the error says why, a *Refused with the positions when the
// configuration is to blame.
func (d *daemon) reload(force bool) (*ipc.ReloadResult, error) {
	if err := d.isUpgrading(); err != nil {
		d.reloadBegins()
		d.logf("reload refused: %v", err)
		return nil, err
	}
	d.change.Lock()
	defer d.change.Unlock()
	d.reloadBegins()
	if !d.isDraining() {
		d.tell(systemd.Reloading())
	}
	result, err := d.reloadLocked(force)
	if err == nil {
		d.syncStore()
	}
	go debug.FreeOSMemory()
	if !d.isDraining() {
		d.tell(systemd.Ready, systemd.Status(d.statusLine()))
	}
	outcome := &ipc.ReloadOutcome{Time: time.Now(), OK: err == nil}
	if err != nil {
		outcome.Error = err.Error()
	}
	d.mu.Lock()
	d.lastReload = outcome
	d.mu.Unlock()
	d.logReload(result, err)
	d.kickAdoption()
	d.kickRebalance()
	return result, err
}

func (d *daemon) logReload(result *ipc.ReloadResult, err error) {
	var refused *Refused
	switch {
	case err == nil:
		d.logf("generation %d is in force: %s added, %d removed, %d kept",
			result.Generation, count(len(result.Added), "service", "services"), len(result.Removed), len(result.Kept))
		for _, w := range result.Warnings {
			d.logf("%s", w)
		}
	case errors.As(err, &refused):
		d.logf("reload refused, the configuration in force stays: %s", refused.Reason)
		for _, diag := range refused.Diagnostics {
			d.logf("%s", diag)
		}
	default:
		d.logf("reload failed, the configuration in force stays: %v", err)
	}
}

func (d *daemon) reloadLocked(force bool) (*ipc.ReloadResult, error) {
	if d.isDraining() {
		return nil, errDraining
	}
	old := d.inForce()
	d.monitor.noteFiles(old.cfg.Monitor)
	cfg, diags := d.options.Load()
	if cfg == nil {
		return nil, &Refused{"the configuration has errors", diags}
	}
	fixed := d.fixedChanges(cfg)
	next, err := d.build(cfg, append(diags, fixed...))
	if err != nil {
		return nil, err
	}
	if err := d.install(next, force); err != nil {
		d.release(next)
		return nil, err
	}
	late := append(next.startGrowth(), d.updateListeners(next)...)
	if force || asksForce(old.cfg) || asksForce(next.cfg) {
		late = append(late, d.recheckOld(next, force)...)
	}
	d.resize(next.cpus)
	d.retireExcess(next)
	d.kickAdoption()
	d.mu.Lock()
	next.warnings = append(next.warnings, late...)
	d.mu.Unlock()
	return describeReload(old, next), nil
}

// install puts a generation in force in two steps. The caller's reference
// becomes that of the generation in force.
func (d *daemon) install(next *snapshot, force bool) error {
	d.awaitStarting()
	procs := d.runningProcesses()
	raiseWorkers(procs, next.limits.Status.FDsGranted)
	procs, err := d.prepareAll(procs, next)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if d.draining {
		d.mu.Unlock()
		d.abortAll(procs, next)
		return errDraining
	}
	old := d.current
	d.current = next
	prepared := map[*process]bool{}
	for _, p := range procs {
		prepared[p] = true
	}
	var late []*process
	for _, s := range d.slots {
		if p := s.current; p != nil && p.state == stateRunning && !prepared[p] && !p.hung.Load() {
			late = append(late, p)
		}
	}
	d.mu.Unlock()

	d.commitAll(procs, late, next, force)
	if force || asksForce(old.cfg) || asksForce(next.cfg) {
		d.commitLeaving(next, force)
	}
	d.release(old)
	return nil
}

// awaitStarting waits a while for workers that are just being started, so that
// they have a say in whether the generation is good.
func (d *daemon) awaitStarting() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(d.timing.greeting); d.anyStarting() && time.Now().Before(deadline); {
		select {
		case <-tick.C:
		case <-d.running.Done():
			return
		}
	}
}

func (d *daemon) anyStarting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.slots {
		if s.current == nil && s.state != stateBackoff && !s.retired {
			return true
		}
	}
	return false
}

// prepareAll prepares every process and returns those that are prepared; when
// one cannot, all forget the generation again. A worker whose loop does not
// turn has no say: it is ended, and its successor begins with the generation.
func (d *daemon) prepareAll(procs []*process, next *snapshot) ([]*process, error) {
	errs := make([]error, len(procs))
	each(procs, func(i int, p *process) { errs[i] = p.prepare(d.running, d, next) })
	var prepared []*process
	for i, p := range procs {
		err := errs[i]
		if err == nil {
			prepared = append(prepared, p)
			continue
		}
		hangs := errors.Is(err, errNoAnswer) && p.silence(d) > d.timing.quiet
		if errors.Is(err, errNoAnswer) {
			p.endHung(d, d.timing.exchange)
		}
		if hangs {
			continue
		}
		d.abortAll(procs, next)
		return nil, fmt.Errorf("worker %d cannot prepare the new configuration: %w", p.slot.index, err)
	}
	return prepared, nil
}

func (d *daemon) abortAll(procs []*process, next *snapshot) {
	each(procs, func(_ int, p *process) {
		if err := p.abort(next); err != nil {
			p.kill()
		}
	})
}

// commitAll makes the generation current in every process. There is no way
// back: a process that cannot follow is killed, and its successor starts with
// the generation. Late ones began to run after the others had prepared.
func (d *daemon) commitAll(procs, late []*process, next *snapshot, force bool) {
	each(procs, func(_ int, p *process) {
		d.mustFollow(p, p.commit(d.running, d, next, force))
	})
	each(late, func(_ int, p *process) {
		err := p.prepare(d.running, d, next)
		if err == nil {
			err = p.commit(d.running, d, next, force)
		}
		d.mustFollow(p, err)
	})
}

// asksForce says whether a service wants its sessions checked at a reload.
func asksForce(cfg *config.Config) bool {
	return slices.ContainsFunc(cfg.Services, func(s config.Service) bool { return s.Force })
}

// commitLeaving has draining processes check their sessions against the new
// rules. They have stopped accepting, and do so no more.
func (d *daemon) commitLeaving(next *snapshot, force bool) {
	d.commitTo(d.leavingProcesses(), next, force)
}

func (d *daemon) commitTo(procs []*process, next *snapshot, force bool) {
	each(procs, func(_ int, p *process) {
		err := p.prepare(context.Background(), d, next)
		if err == nil {
			err = p.commit(context.Background(), d, next, force)
		}
		if err != nil && !errors.Is(err, errEnded) {
			d.logf("worker %d (pid %d), which drains, does not take the new rules: %v; killing it", p.slot.index, p.pid, err)
			p.kill()
		}
	})
}

func (d *daemon) mustFollow(p *process, err error) {
	if err == nil || errors.Is(err, errEnded) || d.isDraining() {
		return
	}
	d.logf("worker %d (pid %d) does not take the new configuration: %v; killing it", p.slot.index, p.pid, err)
	p.kill()
}

func each(procs []*process, do func(i int, p *process)) {
	var wg sync.WaitGroup
	for i, p := range procs {
		wg.Go(func() { do(i, p) })
	}
	wg.Wait()
}

// raiseWorkers raises the limit of descriptors of running workers. A worker
// whose limit cannot be raised goes on with less and pauses accepting when
// they run out.
func raiseWorkers(procs []*process, granted int) {
	for _, p := range procs {
		if granted <= p.maxFDs {
			continue
		}
		limit := unix.Rlimit{Cur: uint64(granted), Max: uint64(granted)}
		var before unix.Rlimit
		if unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, nil, &before) == nil {
			limit.Max = max(limit.Max, before.Max)
		}
		if unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, &limit, nil) == nil {
			p.maxFDs = granted
		}
	}
}

// updateListeners brings kept listeners to their new backlog and options.
func (d *daemon) updateListeners(next *snapshot) []config.Diagnostic {
	var warnings []config.Diagnostic
	for i, l := range next.listeners {
		s := &next.cfg.Services[i]
		for _, text := range l.update(s) {
			warnings = append(warnings, serviceWarning(s, text))
		}
	}
	return warnings
}

// fixedChanges warns of changes a reload cannot make.
func (d *daemon) fixedChanges(cfg *config.Config) []config.Diagnostic {
	was := d.startConfig
	var warnings []config.Diagnostic
	for _, f := range []struct {
		command  string
		was, now any
	}{
		{"control", was.Control, cfg.Control},
		{"engine", was.Engine, cfg.Engine},
		{"setuid", was.SetUID, cfg.SetUID},
		{"setgid", was.SetGID, cfg.SetGID},
		{"pidfile", was.PIDFile, cfg.PIDFile},
	} {
		if !reflect.DeepEqual(f.was, f.now) {
			warnings = append(warnings, config.Diagnostic{
				Pos:      placeOf(cfg, f.command),
				Severity: config.Warning,
				Text:     f.command + ": the change takes effect when the daemon is restarted",
			})
		}
	}
	return warnings
}

// placeOf is where a command is given, or the beginning of a file that does not
// give it any more.
func placeOf(cfg *config.Config, command string) config.Pos {
	if pos, ok := cfg.Places.Commands[command]; ok {
		return pos
	}
	return config.Pos{File: cfg.Source, Line: 1, Column: 1}
}

func describeReload(old, next *snapshot) *ipc.ReloadResult {
	result := &ipc.ReloadResult{
		Generation: next.gen,
		Changed:    !reflect.DeepEqual(old.cfg, next.cfg),
		Warnings:   next.warnings,
	}
	was, is := old.byService(), next.byService()
	for _, s := range next.cfg.Services {
		if was[s.ID] != nil {
			result.Kept = append(result.Kept, s.ID)
		} else {
			result.Added = append(result.Added, s.ID)
		}
	}
	for _, s := range old.cfg.Services {
		if is[s.ID] == nil {
			result.Removed = append(result.Removed, s.ID)
		}
	}
	return result
}
