package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// A daemon that an upgrade has replaced answers at a socket of its own, an
// abstract one: the daemon of the day asks there for its sessions, and has it
// apply new rules to them. Only the daemon's user and root are answered.

// serveReplaced answers until endReplaced.
func (d *daemon) serveReplaced() {
	name := ipc.ReplacedName(ipc.Family(d.control.path), os.Getpid())
	listener, err := net.Listen("unix", name)
	if err != nil {
		d.logf("warning: the new daemon cannot ask for the sessions that are left here: %v", err)
		return
	}
	own := func(uid int) bool { return uid == 0 || uid == os.Geteuid() }
	server := http.Server{
		Handler:           &replacedAPI{controlAPI{d, own}},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withPeer,
	}
	go func() { _ = server.Serve(newLimitListener(listener, own)) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopReplaced = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	}
}

func (d *daemon) endReplaced() {
	d.mu.Lock()
	stop := d.stopReplaced
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// replacedAPI is what a replaced daemon answers.
type replacedAPI struct{ controlAPI }

// ServeHTTP answers one request.
func (a *replacedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.mayChange(r) {
		fail(w, http.StatusForbidden, errors.New("only root and the daemon's user may ask a replaced daemon"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, controlBody)
	switch r.Method + " " + r.URL.Path {
	case http.MethodGet + " " + ipc.PathConns:
		a.conns(w, r)
	case http.MethodPost + " " + ipc.PathReload:
		request, err := readBody[ipc.ReloadRequest](r.Body)
		if err == nil {
			err = a.daemon.recheckReplaced(request.Force)
		}
		answerResult(w, ipc.ReloadResult{}, err)
	case http.MethodPost + " " + ipc.PathHandOver:
		a.handOver(w, r)
	default:
		fail(w, http.StatusNotFound, fmt.Errorf("a replaced daemon has no %s %s", r.Method, r.URL.Path))
	}
}

// recheckReplaced has the workers of a replaced daemon check their sessions
// against the rules of the configuration as it is now.
func (d *daemon) recheckReplaced(force bool) error {
	d.change.Lock()
	defer d.change.Unlock()
	cfg, diags := d.options.Load()
	if cfg == nil {
		return &Refused{"the configuration has errors for the old daemon", diags}
	}
	next, err := d.rulesOnly(cfg)
	if err != nil {
		return err
	}
	defer d.release(next)
	d.commitTo(d.allProcesses(), next, force)
	return nil
}

// rulesOnly makes a generation for workers that accept nothing any more: of the
// services only those that sessions may have, and no sockets. The caller holds
// daemon.change.
func (d *daemon) rulesOnly(cfg *config.Config) (*snapshot, error) {
	known, _, _ := d.columns.export()
	cfg.Services = slices.DeleteFunc(cfg.Services, func(s config.Service) bool {
		_, ok := known[s.ID]
		return !ok
	})
	current := d.inForce()
	next := &snapshot{gen: d.lastGen + 1, cfg: cfg, limits: current.limits, refs: 1}
	maxConn := measure(d.machine, cfg, len(current.cpus), false).MaxConn
	for i, s := range cfg.Services {
		next.services = append(next.services, ipc.ServiceSlot{Column: known[s.ID], MaxConn: maxConn[i]})
	}
	var failed []config.Diagnostic
	if next.logs, failed = openLogs(cfg); len(failed) > 0 {
		d.release(next)
		return nil, &Refused{"cannot open a log", failed}
	}
	data, err := json.Marshal(cfg)
	if err == nil {
		next.memfd, err = ipc.WriteMemfd("3proxyd-config", data)
	}
	if err != nil {
		d.release(next)
		return nil, fmt.Errorf("configuration: %w", err)
	}
	d.lastGen++
	return next, nil
}

// askTime bounds what a replaced daemon is asked at a reload.
const askTime = 10 * time.Second

// recheckOld has the old generations check their sessions against the new rules,
// and returns a warning for each that does not.
func (d *daemon) recheckOld(next *snapshot, force bool) []config.Diagnostic {
	olds := d.oldGenerations()
	errs := make([]error, len(olds))
	done := make(chan struct{})
	for i, o := range olds {
		go func() {
			errs[i] = d.recheckOne(o, next, force)
			done <- struct{}{}
		}()
	}
	for range olds {
		<-done
	}
	var warnings []config.Diagnostic
	for i, err := range errs {
		if err != nil && len(olds[i].living()) > 0 {
			text := fmt.Sprintf("the sessions of the old generation (pid %d) keep their rules: %v", olds[i].PID, err)
			warnings = append(warnings, config.Diagnostic{Pos: placeOf(next.cfg, "force"), Severity: config.Warning, Text: text})
		}
	}
	return warnings
}

func (d *daemon) recheckOne(o *oldGeneration, next *snapshot, force bool) error {
	d.commitTo(o.own(), next, force)
	if o.supervisor.hasExited() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	return d.askOld(o, func(c *ipc.Client) error {
		ask := c.Reload
		if force {
			ask = c.ReloadForce
		}
		_, err := ask(ctx)
		return err
	})
}

// replacedSoon is how long a daemon that has just been replaced may take until it
// answers.
const replacedSoon = 2 * time.Second

// replacedEnds is how long a daemon that does not answer any more may take to end.
const replacedEnds = time.Second

// askOld asks the supervisor of an old generation. One that ends meanwhile has
// nothing left to be asked for.
func (d *daemon) askOld(o *oldGeneration, ask func(*ipc.Client) error) error {
	name := ipc.ReplacedName(ipc.Family(d.control.path), o.PID)
	client := ipc.NewClientOf(name, func(p ipc.Peer) bool { return p.PID == o.PID && (p.UID == 0 || p.UID == os.Geteuid()) })
	for {
		err := ask(client)
		if err == nil {
			return nil
		}
		wait := replacedEnds
		starting := errors.Is(err, ipc.ErrNoDaemon) && time.Since(o.Replaced) < replacedSoon
		if starting {
			wait = 20 * time.Millisecond
		}
		select {
		case <-o.supervisor.exited:
			return nil
		case <-time.After(wait):
		}
		if !starting {
			return err
		}
	}
}

// own are the workers of the generation that this daemon supervises.
func (o *oldGeneration) own() []*process {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.reclaimed), (*process).hasExited)
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// oldConns writes the sessions of an old generation, each with its process.
func (d *daemon) oldConns(o *oldGeneration, w io.Writer, deadline time.Time) error {
	marked := json.NewEncoder(w)
	mark := func(s ipc.Session) error {
		s.OldPID = o.PID
		return marked.Encode(s)
	}
	for _, p := range o.own() {
		if err := d.reclaimedConns(p, mark, deadline); err != nil {
			return err
		}
	}
	if o.supervisor.hasExited() {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return d.askOld(o, func(c *ipc.Client) error { return c.Conns(ctx, mark) })
}

// reclaimedConns lists the sessions of one worker.
func (d *daemon) reclaimedConns(p *process, visit func(ipc.Session) error, deadline time.Time) error {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(d.workerConns(p, w, deadline)) }()
	defer r.Close()
	for lines := json.NewDecoder(r); ; {
		var s ipc.Session
		err := lines.Decode(&s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(s)
		}
		if err != nil {
			return err
		}
	}
}
