package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/bench/lab"
	"3proxyd/bench/measure"
	"3proxyd/bench/peer"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// options are those of the run command.
type options struct {
	proxies   string
	scenarios string
	refs      string
	cpus      string
	data      string
	bins      pairs
	services  pairs
	lines     pairs
	reps      int
	attempts  int
	secs      float64
	warm      time.Duration
	quiet     time.Duration
	foreign   float64
	verify    bool
	noTrace   bool
}

// pairs collects LABEL=VALUE options.
type pairs map[string][]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	label, value, ok := strings.Cut(text, "=")
	if !ok || label == "" {
		return fmt.Errorf("expected LABEL=VALUE")
	}
	p[label] = append(p[label], value)
	return nil
}

// last returns the last value given for label.
func (p pairs) last(label string) string {
	if v := p[label]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func parseRun(args []string) (*options, error) {
	o := &options{bins: pairs{}, services: pairs{}, lines: pairs{}}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.StringVar(&o.proxies, "proxy", "3proxyd,nginx,haproxy,haproxy-splice", "proxies, separated by commas; NAME-ANYTHING is NAME with options of its own")
	f.StringVar(&o.scenarios, "scenario", "quick", "scenarios or sets of them, separated by commas")
	f.StringVar(&o.refs, "ref", "nginx,haproxy", "proxies that the tables compare to")
	f.StringVar(&o.cpus, "cpus", "", "CPUs of the roles, such as cli=0,prx=1,srv=0 (default: chosen from the machine)")
	f.StringVar(&o.data, "data", "bench/data", "directory for the CSV file")
	f.Var(o.bins, "bin", "LABEL=PATH: the binary of a proxy; 3proxyd is built from the source if not given")
	f.Var(o.services, "services", "LABEL=OPTIONS: options for every service line of a 3proxyd, such as -s0")
	f.Var(o.lines, "line", "LABEL=LINE: a line for the configuration of a 3proxyd, before its services")
	f.IntVar(&o.reps, "reps", 3, "repetitions")
	f.Float64Var(&o.secs, "secs", 10, "seconds of a measurement")
	f.DurationVar(&o.warm, "warm", time.Second, "time under load before a measurement")
	f.IntVar(&o.attempts, "attempts", 3, "runs made at most where other processes disturb")
	f.DurationVar(&o.quiet, "quiet", 30*time.Second, "how long to wait before a run for other processes to rest")
	f.Float64Var(&o.foreign, "foreign", 0.02, "share of the roles' CPUs that other processes may take")
	f.BoolVar(&o.verify, "verify", false, "compare every byte (costs the client's and the origin's CPU)")
	f.BoolVar(&o.noTrace, "no-strace", false, "do not count system calls")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.reps < 1 || o.attempts < 1:
		return nil, errors.New("--reps and --attempts must be 1 or more")
	case o.secs < 0.1 || o.secs > 3600:
		return nil, errors.New("--secs must be from 0.1 to 3600")
	}
	return o, nil
}

// subjects finds the proxies. Those without a process need no binary; dir is
// for one that is built.
func (o *options) subjects(ctx context.Context, dir string) ([]*subject, error) {
	var list []*subject
	built := ""
	for _, label := range strings.Split(o.proxies, ",") {
		p, err := peer.Find(label)
		if err != nil {
			return nil, err
		}
		s := &subject{label: label, peer: p, options: o.services.last(label), lines: o.lines[label], path: o.bins.last(label)}
		switch {
		case p.Binary == "" || s.path != "":
		case p.Name == "3proxyd":
			if built == "" {
				if built, err = buildDaemon(ctx, dir); err != nil {
					return nil, err
				}
			}
			s.path = built
		default:
			if s.path, err = p.Lookup(); err != nil {
				return nil, fmt.Errorf("%w (see bench deps)", err)
			}
		}
		if s.path != "" {
			if s.path, err = filepath.Abs(s.path); err != nil {
				return nil, fmt.Errorf("proxy %s: %w", label, err)
			}
			s.version = p.VersionOf(s.path)
		}
		list = append(list, s)
	}
	return list, nil
}

func runCommand(ctx context.Context, args []string) (err error) {
	o, err := parseRun(args)
	if err != nil {
		return err
	}
	scenarios, err := scenario.ParseList(o.scenarios)
	if err != nil {
		return err
	}
	cpus, err := lab.DefaultCPUs()
	if err == nil && o.cpus != "" {
		cpus, err = lab.ParseCPUs(o.cpus, cpus)
	}
	if err != nil {
		return err
	}
	l, err := lab.New(ctx, cpus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	subjects, err := o.subjects(ctx, l.Dir)
	if err != nil {
		return err
	}
	if err := lab.Pin(cpus.Client); err != nil {
		return err
	}
	return o.measureAll(ctx, l, subjects, scenarios)
}

// plan is the list of runs in their order: in each repetition the proxies of a
// scenario start with another one.
func plan(reps int, subjects []*subject, scenarios []scenario.Scenario) []job {
	var jobs []job
	for rep := range reps {
		for _, sc := range scenarios {
			for i := range subjects {
				s := subjects[(i+rep)%len(subjects)]
				if s.peer.Serves(sc.Mode) {
					jobs = append(jobs, job{rep: rep + 1, subject: s, sc: sc})
				}
			}
		}
	}
	return jobs
}

type job struct {
	rep     int
	subject *subject
	sc      scenario.Scenario
}

func (o *options) measureAll(ctx context.Context, l *lab.Lab, subjects []*subject, scenarios []scenario.Scenario) error {
	jobs := plan(o.reps, subjects, scenarios)
	if len(jobs) == 0 {
		return errors.New("none of the proxies serves any of the scenarios")
	}
	org, err := startOrigin(ctx, l, o.verify)
	if err != nil {
		return err
	}
	defer org.end()
	file, out, err := o.create()
	if err != nil {
		return err
	}
	r := runner{opt: o, lab: l, origin: org, out: out, total: len(jobs), began: time.Now(), kernel: kernel()}
	defer func() {
		_ = file.Close() // every row has been written and checked
		if len(r.rows) == 0 {
			_ = os.Remove(file.Name())
		}
	}()
	for i, j := range jobs {
		if err := r.job(ctx, i, j); err != nil {
			return errors.Join(err, r.print(file.Name()))
		}
	}
	if err := r.print(file.Name()); err != nil {
		return err
	}
	if r.failed > 0 {
		return fmt.Errorf("%d of %d runs failed", r.failed, len(jobs))
	}
	return nil
}

func startOrigin(ctx context.Context, l *lab.Lab, verify bool) (*child, error) {
	word := "count"
	if verify {
		word = "verify"
	}
	org, err := startSelf(l.Origin, cmdOrigin, lab.OriginAddrPort.String(), word)
	if err != nil {
		return nil, err
	}
	if _, err := org.hear(ctx, 10*time.Second); err != nil {
		org.end()
		return nil, err
	}
	return org, nil
}

func (o *options) create() (*os.File, *result.Writer, error) {
	if err := os.MkdirAll(o.data, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make directory for results: %w", err)
	}
	f, err := os.Create(filepath.Join(o.data, time.Now().Format("20060102-150405")+".csv"))
	if err != nil {
		return nil, nil, fmt.Errorf("create results: %w", err)
	}
	w, err := result.NewWriter(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, w, nil
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// waitQuiet waits until other processes take less than the limit.
func (o *options) waitQuiet(ctx context.Context, cpus int) error {
	const interval = 250 * time.Millisecond
	own := map[int]bool{os.Getpid(): true}
	for deadline := time.Now().Add(o.quiet); time.Now().Before(deadline); {
		before, err := measure.ReadTasks()
		if err != nil {
			return err
		}
		if err := sleep(ctx, interval); err != nil {
			return err
		}
		after, err := measure.ReadTasks()
		if err != nil {
			return err
		}
		// One tick is the resolution of the clocks read.
		if measure.Foreign(before, after, own) <= max(time.Duration(o.foreign*float64(interval)*float64(cpus)), 10*time.Millisecond) {
			return nil
		}
	}
	return nil
}
