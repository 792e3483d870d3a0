package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"3proxyd/config"
	"3proxyd/ipc"
)

// snapshot is one generation of the daemon: everything a worker is given.
type snapshot struct {
	gen uint64
	cfg *config.Config
	// services, listeners have an entry for each service of cfg.
	services  []ipc.ServiceSlot
	listeners []*listener
	logs      []logFile
	// cpus has the CPU of each worker; growth are sockets for workers there
	// were not before.
	cpus   []int
	growth []growth
	memfd  *os.File
	limits Limits
	// warnings are those of the configuration.
	warnings []config.Diagnostic
	// refs counts the generation in force and every process it is being sent
	// to; guarded by daemon.mu.
	refs int
}

// Refused is the error of a configuration that cannot be put in force.
type Refused struct {
	Reason      string
	Diagnostics []config.Diagnostic
}

// Error names the first diagnostic and says how many there are.
func (r *Refused) Error() string {
	for i, d := range r.Diagnostics {
		if d.Severity != config.Error {
			continue
		}
		if rest := errorCount(r.Diagnostics[i+1:]); rest > 0 {
			return fmt.Sprintf("%s: %s: %s (and %d more)", r.Reason, d.Pos, d.Text, rest)
		}
		return fmt.Sprintf("%s: %s: %s", r.Reason, d.Pos, d.Text)
	}
	return r.Reason
}

func errorCount(diags []config.Diagnostic) int {
	n := 0
	for _, d := range diags {
		if d.Severity == config.Error {
			n++
		}
	}
	return n
}

// build makes the next generation of cfg: it opens what is new and shares the
// listeners of the generation in force, changing nothing that is in force. It
// is called under daemon.change.
func (d *daemon) build(cfg *config.Config, warnings []config.Diagnostic) (*snapshot, error) {
	next := &snapshot{gen: d.lastGen + 1, cfg: cfg, warnings: slices.Clone(warnings), refs: 1}
	if err := d.fill(next); err != nil {
		d.release(next)
		return nil, err
	}
	d.lastGen++
	return next, nil
}

func (d *daemon) fill(next *snapshot) error {
	var failed []config.Diagnostic
	var err error
	if next.cpus, err = d.placeWorkers(next.cfg); err != nil {
		return err
	}
	if problem := checkEngine(d.machine, next.cfg); problem != nil {
		return &Refused{"the workers cannot have the engine", []config.Diagnostic{*problem}}
	}
	next.limits = measure(d.machine, next.cfg, len(next.cpus), true)
	if fatal := next.limits.Fatal; fatal != "" {
		return &Refused{Reason: fatal}
	}
	if failed = d.fillListeners(next); len(failed) > 0 {
		return &Refused{"cannot listen", failed}
	}
	if failed = next.fillGrowth(); len(failed) > 0 {
		return &Refused{"cannot listen", failed}
	}
	if next.logs, failed = openLogs(next.cfg); len(failed) > 0 {
		return &Refused{"cannot open a log", failed}
	}
	cols, err := d.columns.assign(serviceIDs(next.cfg), d.idsInForce())
	if err != nil {
		return &Refused{Reason: err.Error()}
	}
	for i, col := range cols {
		next.services = append(next.services, ipc.ServiceSlot{Column: col, MaxConn: next.limits.MaxConn[i]})
	}
	data, err := json.Marshal(next.cfg)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	next.memfd, err = ipc.WriteMemfd("3proxyd-config", data)
	return err
}

// placeWorkers returns the CPU of each worker.
func (d *daemon) placeWorkers(cfg *config.Config) ([]int, error) {
	cpus, err := WorkerCPUs(cfg)
	if err != nil {
		return nil, &Refused{"cannot place the workers", []config.Diagnostic{
			{Pos: placeOf(cfg, "cpus"), Severity: config.Error, Text: err.Error()},
		}}
	}
	return cpus, nil
}

func serviceIDs(cfg *config.Config) []string {
	ids := make([]string, len(cfg.Services))
	for i, s := range cfg.Services {
		ids[i] = s.ID
	}
	return ids
}

func (d *daemon) idsInForce() map[string]bool {
	ids := map[string]bool{}
	if current := d.inForce(); current != nil {
		for _, id := range serviceIDs(current.cfg) {
			ids[id] = true
		}
	}
	return ids
}

// fillListeners finds or opens the listener of each service.
func (d *daemon) fillListeners(next *snapshot) []config.Diagnostic {
	have, lost := map[string]*listener{}, map[string]bool{}
	if current := d.inForce(); current != nil {
		for _, l := range current.listeners {
			if l.lostFile() {
				lost[l.key] = true
				continue
			}
			have[l.key] = l
		}
	}
	var failed []config.Diagnostic
	owner := map[string]*config.Service{}
	for i := range next.cfg.Services {
		s := &next.cfg.Services[i]
		key := s.Listen.Key()
		if first := owner[key]; first != nil {
			text := fmt.Sprintf("%s is already the address of the %s at %s", s.Listen.String(), first.Kind, first.Pos)
			failed = append(failed, serviceError(s, text))
			continue
		}
		if s.Listen.Unix != "" && d.isControl(s.Listen.Unix) {
			failed = append(failed, controlConflict(s))
			continue
		}
		owner[key] = s
		l := have[key]
		if l == nil {
			var diag *config.Diagnostic
			if l, diag = d.newListener(s, next, overlaps(have, s.Listen)); diag != nil {
				failed = append(failed, *diag)
				continue
			}
		}
		if lost[key] {
			next.warnings = append(next.warnings, serviceWarning(s, lostFileText))
		}
		s.Listen = l.endpoint
		next.hold(d, l)
	}
	return failed
}

// newListener makes the listener of a service of inherited sockets, or opens
// them.
func (d *daemon) newListener(s *config.Service, next *snapshot, ours bool) (*listener, *config.Diagnostic) {
	if l := d.handedListener(s); l != nil {
		return l, nil
	}
	l, err := d.inherited.listener(s, next.cfg.Services, len(next.cpus))
	if err == nil && l != nil {
		if text := familyWarning(l); text != "" {
			next.warnings = append(next.warnings, serviceWarning(s, text))
		}
		return l, nil
	}
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	default:
		other, _ := d.inherited.overlapping(s.Listen)
		if l, err = listen(s, len(next.cpus), ours || other.ReusePort); err == nil {
			return l, nil
		}
		reason = d.listenReason(s.Listen, err, ours)
	}
	diag := serviceError(s, reason)
	return nil, &diag
}

// isControl says whether the control socket is, or will be, at path.
func (d *daemon) isControl(path string) bool {
	if d.control != nil {
		return samePath(path, d.control.path)
	}
	return samePath(path, controlPaths(d.startConfig.Control)[0])
}

func controlConflict(s *config.Service) config.Diagnostic {
	return serviceError(s, s.Listen.Unix+" is the path of the control socket: name another for one of them")
}

func samePath(a, b string) bool {
	if strings.HasPrefix(a, "@") || strings.HasPrefix(b, "@") {
		return a == b
	}
	return filepath.Clean(a) == filepath.Clean(b)
}

func (n *snapshot) hold(d *daemon, l *listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.refs++
	n.listeners = append(n.listeners, l)
}

// overlaps reports whether a wildcard makes the address overlap with one of
// the daemon's own.
func overlaps(have map[string]*listener, e config.Endpoint) bool {
	if e.Unix != "" {
		return false
	}
	for _, l := range have {
		if wildcardOverlap(l.endpoint, e) {
			return true
		}
	}
	return false
}

// wildcardOverlap reports whether one of two addresses is a wildcard that has
// the other.
func wildcardOverlap(a, b config.Endpoint) bool {
	sameFamily := a.Unix == "" && a.Network == b.Network && a.Addr.Unmap().Is4() == b.Addr.Unmap().Is4()
	return sameFamily && a.Port == b.Port && (a.Addr.IsUnspecified() || b.Addr.IsUnspecified())
}

// inForce returns the generation in force, nil before the first.
func (d *daemon) inForce() *snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

// acquire returns the generation in force, kept alive until release; nil when
// its sockets have been closed by a drain.
func (d *daemon) acquire() *snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.current.refs++
	return d.current
}

// release gives up a reference to a snapshot, and with the last one its logs,
// and the listeners no other snapshot has.
func (d *daemon) release(s *snapshot) {
	if s == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.refs--
	if s.refs > 0 {
		return
	}
	for _, g := range s.growth {
		g.close()
	}
	closeLogs(s.logs)
	if s.memfd != nil {
		_ = s.memfd.Close()
	}
	for _, l := range s.listeners {
		l.refs--
		if l.refs > 0 {
			continue
		}
		if l.kept && !d.closed {
			d.inherited.giveBack(l.units)
			continue
		}
		l.close()
	}
}
