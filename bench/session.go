package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/load"
	"3proxyd/bench/measure"
	"3proxyd/bench/origin"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
	"3proxyd/bench/wire"
)

const (
	setUpWait = 60 * time.Second // for all connections to open
	replyWait = 20 * time.Second // for the load generator to answer
	traceTime = time.Second      // load while system calls are counted
	// manyConns is the number of connections from which they are not: under the
	// tracer it takes long until all of their requests are served.
	manyConns = 1000
)

// session is one run of one scenario through one proxy.
type session struct {
	lab     *lab.Lab
	origin  *child
	wire    *child // nil if there is none
	subject *subject
	sc      scenario.Scenario
	opt     *options
	proxy   *process
	load    *child
	row     result.Row
	// probe, if set, is called with the proxy's processes when the measurement
	// begins. It must not wait.
	probe func(pids []int)
}

// snapshot is the state of clocks at one moment.
type snapshot struct {
	at     time.Time
	cpus   map[int]measure.CPUTime
	proxy  time.Duration
	client time.Duration
	origin time.Duration
	self   time.Duration // and the wire's
}

// run measures; count tells whether to count system calls afterwards.
func (s *session) run(ctx context.Context, count bool) (row result.Row, err error) {
	if s.proxy, err = s.subject.launch(ctx, s.lab, s.sc.Mode); err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.proxy.stop(s.lab)) }()
	before, err := s.origin.originStats(ctx)
	if err != nil {
		return row, err
	}
	if s.row.MemoryBase, err = s.memory(); err != nil {
		return row, err
	}
	if err := s.startLoad(ctx); err != nil {
		return row, err
	}
	defer s.load.end()
	if err := s.waitAccepted(ctx, before.Accepted); err != nil {
		return row, err
	}
	linkBefore, err := s.wire.wireStats(ctx)
	if err != nil {
		return row, err
	}
	res, err := s.measure(ctx)
	if err != nil {
		return row, s.explain(err)
	}
	linkAfter, err := s.wire.wireStats(ctx)
	if err != nil {
		return row, err
	}
	s.fillLink(linkBefore, linkAfter)
	if s.sc.Requests() && res.Requests == 0 {
		return row, s.explain(fmt.Errorf("no request was served; errors: %v", res.Errors))
	}
	if count && s.sc.Requests() && s.sc.Open() < manyConns {
		if err := s.countCalls(ctx); err != nil {
			if ctx.Err() != nil || s.proxy.ended() {
				return row, s.explain(fmt.Errorf("count system calls: %w", err))
			}
			// The figures taken before are right all the same.
			s.row.SyscallsBy = "not counted: " + err.Error()
		}
	}
	after, err := s.origin.originStats(ctx)
	if err != nil {
		return row, err
	}
	s.fill(res, before, after)
	return s.row, nil
}

// explain adds what the proxy wrote when it has ended by itself.
func (s *session) explain(err error) error {
	if s.proxy.ended() {
		return fmt.Errorf("%w; the proxy ended and wrote: %s", err, s.proxy.stderr)
	}
	return err
}

func (s *session) memory() (int64, error) {
	pids, err := s.proxy.pids(s.lab)
	if err != nil {
		return 0, err
	}
	return measure.PSS(pids)
}

func (s *session) startLoad(ctx context.Context) error {
	cfg, err := json.Marshal(load.Config{
		Scenario: s.sc, Proxy: s.subject.addr(s.sc.Mode), Origin: lab.OriginAddrPort, Verify: s.opt.verify,
	})
	if err != nil {
		return fmt.Errorf("encode load: %w", err)
	}
	if s.load, err = startSelf(s.lab.Client, cmdLoad, string(cfg)); err != nil {
		return err
	}
	if _, err := s.load.expect(ctx, load.Ready, setUpWait); err != nil {
		s.load.end()
		return s.explain(err)
	}
	return nil
}

// acceptWait is how long a relay has for taking its clients from the queue.
const acceptWait = 10 * time.Second

// waitAccepted waits until a relay has reached the origin for every client. To
// the client a connection is open when the kernel has queued it. A relay that
// connects later than that is not waited for any longer than acceptWait.
func (s *session) waitAccepted(ctx context.Context, before int64) error {
	if s.sc.Mode != scenario.Relay || s.sc.Kind == scenario.Close {
		return nil
	}
	for deadline := time.Now().Add(acceptWait); time.Now().Before(deadline); {
		st, err := s.origin.originStats(ctx)
		if err != nil || st.Accepted-before >= int64(s.sc.Open()) {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// measure warms the proxy up and takes the figures of one measurement. Memory
// is read under load, outside of the measured time, since reading it stops the
// proxy for a moment.
func (s *session) measure(ctx context.Context) (*load.Result, error) {
	if err := s.load.say("run"); err != nil {
		return nil, err
	}
	if err := sleep(ctx, s.opt.warm); err != nil {
		return nil, err
	}
	if err := s.peak(); err != nil {
		return nil, err
	}
	pids, err := s.proxy.pids(s.lab)
	if err != nil {
		return nil, err
	}
	own := s.own(pids)
	tasks, err := measure.ReadTasks()
	if err != nil {
		return nil, err
	}
	if err := s.load.say(fmt.Sprintf("measure %g", s.secs())); err != nil {
		return nil, err
	}
	if _, err := s.load.expect(ctx, load.Start, replyWait); err != nil {
		return nil, err
	}
	a, err := s.snapshot(pids)
	if err != nil {
		return nil, err
	}
	if s.probe != nil {
		s.probe(pids)
	}
	ev, err := s.load.expect(ctx, load.End, time.Duration(s.secs()*float64(time.Second))+replyWait)
	if err != nil {
		return nil, err
	}
	if pids, err = s.proxy.pids(s.lab); err != nil {
		return nil, err
	}
	b, err := s.snapshot(pids)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		own[pid] = true
	}
	tasksEnd, err := measure.ReadTasks()
	if err != nil {
		return nil, err
	}
	s.costs(a, b, measure.Foreign(tasks, tasksEnd, own))
	return ev.Result, s.peak()
}

// secs returns the length of the measurement. At a fixed rate it is longer: a CPU
// that is busy for a small part of the time is seen to 10 ms only.
func (s *session) secs() float64 {
	if s.sc.Kind == scenario.Idle && s.opt.idleSecs > 0 {
		return s.opt.idleSecs
	}
	if s.sc.Rate > 0 {
		return 3 * s.opt.secs
	}
	return s.opt.secs
}

func (s *session) own(pids []int) map[int]bool {
	own := map[int]bool{s.load.pid(): true, s.origin.pid(): true}
	for _, pid := range slices.Concat(pids, s.helpers()) {
		own[pid] = true
	}
	return own
}

// helpers are the processes of the lab that are no role: this one and the wire.
func (s *session) helpers() []int {
	pids := []int{os.Getpid()}
	if s.wire != nil {
		pids = append(pids, s.wire.pid())
	}
	return pids
}

func (s *session) peak() error {
	n, err := s.memory()
	s.row.MemoryPeak = max(s.row.MemoryPeak, n)
	return err
}

func (s *session) snapshot(pids []int) (snapshot, error) {
	cpus, err := measure.ReadCPUs()
	return snapshot{
		at: time.Now(), cpus: cpus,
		proxy:  measure.ProcessesCPU(pids),
		client: measure.ProcessesCPU([]int{s.load.pid()}),
		origin: measure.ProcessesCPU([]int{s.origin.pid()}),
		self:   measure.ProcessesCPU(s.helpers()),
	}, err
}

// costs fills in what happened between two snapshots.
func (s *session) costs(a, b snapshot, foreign time.Duration) {
	wall := b.at.Sub(a.at)
	busy := func(cpus []int) (used, steal time.Duration) {
		for _, cpu := range cpus {
			x, y := a.cpus[cpu], b.cpus[cpu]
			used += max(wall-(y.Idle-x.Idle)-(y.Steal-x.Steal), 0)
			steal += y.Steal - x.Steal
		}
		return used, steal
	}
	share := func(d time.Duration, cpus []int) float64 {
		return d.Seconds() / wall.Seconds() / float64(len(cpus))
	}
	c := s.lab.CPUs
	used, _ := busy(c.Proxy)
	s.row.ProxyBusy, s.row.ProxyLoad = used.Seconds(), share(used, c.Proxy)
	used, _ = busy(c.Client)
	s.row.ClientLoad = share(used, c.Client)
	used, _ = busy(c.Origin)
	s.row.OriginLoad = share(used, c.Origin)
	s.row.ProxyOwn = (b.proxy - a.proxy).Seconds()
	s.row.ClientOwn = (b.client - a.client).Seconds()
	s.row.OriginOwn = (b.origin - a.origin).Seconds()
	s.row.Pace = pace(s.row)

	// Other processes disturb only as far as they ran on the roles' CPUs.
	all := c.All()
	used, steal := busy(all)
	ours := b.proxy - a.proxy + b.client - a.client + b.origin - a.origin + b.self - a.self
	s.row.Foreign = share(max(min(foreign, used-ours), 0), all)
	s.row.Steal = share(steal, all)
	s.row.Disturbed = s.row.Foreign > s.opt.foreign || s.row.Steal > s.opt.foreign
}

// paceLoad is the load from which a role's CPUs set the pace.
const paceLoad = 0.9

// pace names the roles that set the pace; "-" if all had time to spare.
func pace(r result.Row) string {
	var roles []string
	for _, role := range []struct {
		name string
		load float64
	}{{"prx", r.ProxyLoad}, {"cli", r.ClientLoad}, {"srv", r.OriginLoad}} {
		if role.load >= paceLoad {
			roles = append(roles, role.name)
		}
	}
	if len(roles) == 0 {
		return "-"
	}
	return strings.Join(roles, "+")
}

// countCalls has the proxy's system calls counted while requests run. The load
// rests when the tracer comes and goes, so that every call counted belongs to a
// request counted.
func (s *session) countCalls(ctx context.Context) error {
	first, err := s.pause(ctx)
	if err != nil {
		return err
	}
	pids, err := s.proxy.pids(s.lab)
	if err != nil || len(pids) == 0 {
		return err
	}
	attach, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	trace, err := measure.StartTrace(attach, pids, filepath.Join(s.lab.Dir, "strace"))
	if errors.Is(err, measure.ErrNoStrace) {
		s.row.SyscallsBy = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	last, runErr := s.runTraced(ctx)
	calls, err := trace.Stop()
	if err := errors.Join(runErr, err); err != nil {
		return err
	}
	if last == first {
		return errors.New("no request was served under strace")
	}
	s.row.Syscalls, s.row.SyscallsBy = perRequest(calls, last-first)
	return nil
}

func (s *session) runTraced(ctx context.Context) (int64, error) {
	if err := s.load.say("run"); err != nil {
		return 0, err
	}
	if err := sleep(ctx, traceTime); err != nil {
		return 0, err
	}
	return s.pause(ctx)
}

// pause stops the load and returns the number of requests done so far.
func (s *session) pause(ctx context.Context) (int64, error) {
	if err := s.load.say("pause"); err != nil {
		return 0, err
	}
	ev, err := s.load.expect(ctx, load.Paused, replyWait)
	return ev.Total, err
}

// perRequest divides calls by requests and names the most frequent ones.
func perRequest(calls map[string]int64, requests int64) (sum float64, by string) {
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		if calls[a] != calls[b] {
			return int(calls[b] - calls[a])
		}
		return strings.Compare(a, b)
	})
	var words []string
	for _, name := range names {
		each := float64(calls[name]) / float64(requests)
		sum += each
		if each >= 0.005 {
			words = append(words, fmt.Sprintf("%s=%.2f", name, each))
		}
	}
	return sum, strings.Join(words, " ")
}

// identify tells in the row what was run.
func (s *session) identify(r *result.Row) {
	r.Time = time.Now().UTC().Format(time.RFC3339)
	r.Scenario, r.Proxy, r.Version = s.sc.Name, s.subject.label, s.subject.version
	r.Group = string(s.subject.peer.GroupWith(s.subject.options))
	r.CPUs, r.Link = s.lab.CPUs.String(), s.opt.link
	r.Conns, r.Active = s.sc.Open(), s.sc.Active
	if s.sc.Idle > 0 {
		r.Active = s.sc.Conns
	}
}

// fillLink tells what happened on the wire while the load ran.
func (s *session) fillLink(before, after wire.Stats) {
	s.row.LinkPackets = after.Packets - before.Packets
	s.row.LinkLost = after.Lost - before.Lost
	s.row.LinkDropped = after.Dropped - before.Dropped
	s.row.LinkLate = after.Late - before.Late
}

// fill completes the row from the load generator's and the origin's counts.
func (s *session) fill(res *load.Result, before, after origin.Stats) {
	r := &s.row
	r.Seconds = float64(res.Nanos) / 1e9
	r.Requests, r.Bytes = res.Requests, res.Bytes
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	r.P50, r.P75, r.P90 = us(res.Latency.P50), us(res.Latency.P75), us(res.Latency.P90)
	r.P99, r.P999, r.Max = us(res.Latency.P99), us(res.Latency.P999), us(res.Latency.Max)
	r.Reopened, r.Unserved = res.Reopened, res.Unserved
	errs := maps.Clone(res.Errors)
	if errs == nil {
		errs = make(map[string]int64)
	}
	if n := after.Mismatches - before.Mismatches; n > 0 {
		errs["upload"] += n
	}
	if n := after.BadHeads - before.BadHeads; n > 0 {
		errs["request"] += n
	}
	if s.sc.Kind == scenario.Idle && res.Open < s.sc.Conns {
		errs["lost"] += int64(s.sc.Conns - res.Open)
	}
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(errs)) {
		r.Errors += errs[kind]
		words = append(words, fmt.Sprintf("%s=%d", kind, errs[kind]))
	}
	r.ErrorsBy = strings.Join(words, " ")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
