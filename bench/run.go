package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/bench/lab"
	"3proxyd/bench/measure"
	"3proxyd/bench/scenario"
)

func runCommand(ctx context.Context, args []string) error {
	o, err := parseRun(args)
	if err != nil {
		return err
	}
	scenarios, err := scenario.ParseList(o.scenarios)
	if err != nil {
		return err
	}
	for _, sc := range scenarios {
		if sc.TLS() {
			return fmt.Errorf("scenario %s needs TLS, which the load generator and the origin do not speak", sc.Name)
		}
	}
	subjects, err := o.subjects()
	if err != nil {
		return err
	}
	jobs := plan(o.reps, subjects, scenarios)
	if len(jobs) == 0 {
		return errors.New("none of the proxies serves any of the scenarios")
	}
	return o.carryOut(ctx, subjects, func(*lab.Lab) ([]job, error) { return jobs, nil })
}

// carryOut builds the lab and does the jobs that plan makes for it.
func (o *options) carryOut(ctx context.Context, subjects []*subject, plan func(*lab.Lab) ([]job, error)) (err error) {
	cpus, err := lab.DefaultCPUs()
	if err == nil && o.cpus != "" {
		cpus, err = lab.ParseCPUs(o.cpus, cpus)
	}
	if err != nil {
		return err
	}
	link, err := o.parseLink()
	if err != nil {
		return err
	}
	l, remove, err := newLab(ctx, cpus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var wire *child
	if link != nil {
		if wire, err = o.shape(ctx, l, *link); err != nil {
			return err
		}
	}
	if wire != nil {
		defer wire.end()
	}
	if err := build(ctx, l.Dir, subjects); err != nil {
		return err
	}
	if err := lab.Pin(cpus.Client); err != nil {
		return err
	}
	jobs, err := plan(l)
	if err != nil {
		return err
	}
	return o.measureAll(ctx, l, wire, jobs)
}

// job is one run to be made.
type job struct {
	rep     int
	subject *subject
	sc      scenario.Scenario
}

// plan is the list of runs in their order: in each repetition the proxies of a
// scenario start with another one.
func plan(reps int, subjects []*subject, scenarios []scenario.Scenario) []job {
	var jobs []job
	for rep := range reps {
		for _, sc := range scenarios {
			in := slices.DeleteFunc(slices.Clone(subjects), func(s *subject) bool { return !s.takesPart(sc) })
			for i := range in {
				jobs = append(jobs, job{rep: rep + 1, subject: in[(i+rep)%len(in)], sc: sc})
			}
		}
	}
	return jobs
}

func (o *options) measureAll(ctx context.Context, l *lab.Lab, wire *child, jobs []job) error {
	org, err := startOrigin(ctx, l, o.verify)
	if err != nil {
		return err
	}
	defer org.end()
	file, err := openResults(o)
	if err != nil {
		return err
	}
	defer file.close()
	jobs = slices.DeleteFunc(jobs, func(j job) bool { return file.has(o.link, j) })
	r := runner{opt: o, lab: l, origin: org, wire: wire, file: file, total: len(jobs), began: time.Now(), kernel: kernel(), machine: machine()}
	for i, j := range jobs {
		if err := r.job(ctx, i, j); err != nil {
			return errors.Join(err, r.print())
		}
	}
	if err := r.print(); err != nil {
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

// machine returns the CPUs' model and number, from /proc/cpuinfo.
func machine() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	model := "unknown CPU"
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d x %s", runtime.NumCPU(), model)
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
