package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/peer"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// agreement is one figure taken by the lab and by another tool, in several
// repetitions.
type agreement struct {
	what, tool, unit string
	ours, theirs     []float64
	// loose tells that the other tool's load is another one, so that a difference
	// is no error.
	loose bool
}

// ratio returns the other tool's figure to the lab's in the same repetition,
// since machines drift.
func (a agreement) ratio() result.Spread {
	var v []float64
	for i := range a.ours {
		v = append(v, a.theirs[i]/a.ours[i])
	}
	return result.NewSpread(v)
}

// off returns how far the median ratio is from 1.
func (a agreement) off() float64 { return math.Abs(a.ratio().Median - 1) }

// checkCommand measures three scenarios by the lab and by other programs in the
// same network, one right after the other.
func checkCommand(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	o := &options{bins: pairs{}, services: pairs{}, lines: pairs{}, warm: 500 * time.Millisecond, foreign: 0.02, noTrace: true, reps: 1, attempts: 1}
	f.StringVar(&o.proxies, "proxy", "nginx", "the proxy; it must relay")
	f.Var(o.bins, "bin", "LABEL=PATH: the binary of the proxy")
	f.Float64Var(&o.secs, "secs", 3, "seconds of a measurement")
	f.IntVar(&o.reps, "reps", 5, "repetitions; the median of the ratios counts")
	f.DurationVar(&o.quiet, "quiet", 10*time.Second, "how long to wait for other processes to rest")
	only := f.String("only", "", "the one scenario to check (default: all three)")
	limit := f.Float64("limit", 0.1, "difference that is an error, 0.1 for 10%")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.reps < 1 || !(o.secs >= 0.1 && o.secs <= 3600) {
		return errors.New("--reps must be 1 or more and --secs from 0.1 to 3600")
	}
	chosen := trials(o.secs)
	if *only != "" {
		chosen = slices.DeleteFunc(chosen, func(t trial) bool { return t.name != *only })
	}
	if len(chosen) == 0 {
		return fmt.Errorf("scenario %q is not one that is checked", *only)
	}
	for _, tool := range []string{"wrk", "iperf3", "perf"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is needed (Debian: wrk iperf3 linux-perf)", tool)
		}
	}
	list, err := o.subjects()
	if err != nil {
		return err
	}
	if len(list) != 1 || !list[0].peer.Serves(scenario.Relay) {
		return errors.New("expected one proxy that relays")
	}
	cpus, err := lab.DefaultCPUs()
	if err != nil {
		return err
	}
	l, remove, err := newLab(ctx, cpus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := build(ctx, l.Dir, list); err != nil {
		return err
	}
	if err := lab.Pin(cpus.Client); err != nil {
		return err
	}
	c := &checker{opt: o, lab: l, subject: list[0], trials: chosen}
	found, err := c.all(ctx)
	if err != nil {
		return err
	}
	return reportAgreement(found, *limit)
}

func reportAgreement(found []agreement, limit float64) error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "figure\tlab\tother\tunit\ttool\tratio")
	bad := 0
	for _, a := range found {
		mid := func(v []float64) float64 { return result.NewSpread(v).Median }
		fmt.Fprintf(tw, "%s\t%.4g\t%.4g\t%s\t%s\t%s\n", a.what, mid(a.ours), mid(a.theirs), a.unit, a.tool, a.ratio())
		if !a.loose && !(a.off() <= limit) {
			bad++
		}
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("%d figures differ by more than %.0f%%", bad, 100*limit)
	}
	return nil
}

// checker holds what the measurements share.
type checker struct {
	opt     *options
	lab     *lab.Lab
	subject *subject
	trials  []trial
}

// sample is what one measurement gives.
type sample struct {
	rate  float64 // requests or bytes a second
	cost  float64 // CPU seconds of the proxy's processes for each of them
	share float64 // CPU seconds of the proxy's processes in a second
}

// trial is a scenario and how another tool makes the same load.
type trial struct {
	name, tool, unit string
	load             []string
	count            func(output string) (done, rate float64, err error)
	// alike tells that the tool makes the load that the lab makes, so that both have
	// to reach the same throughput.
	alike bool
}

// trials measure a relay: wrk and iperf3 speak no proxy protocol. They are loads
// under which these tools cost no more CPU than the proxy, so that it sets the
// pace; with larger answers wrk does. iperf3 sends by sendfile from a file of
// 1 MB, since 128 KB, its default, stay in the cache of the proxy's CPU.
func trials(secs float64) []trial {
	url := func(size int) string {
		return fmt.Sprintf("http://%s:%d/%d", lab.ProxyAddr, peer.Port(scenario.Relay), size)
	}
	duration := strconv.Itoa(max(int(secs), 1))
	return []trial{
		{"relay-ka-1k", "wrk", "requests", []string{"wrk", "-t1", "-c64", "-d" + duration, url(1 << 10)}, countWrk, true},
		{"relay-close-1k", "wrk", "requests", []string{"wrk", "-t1", "-c64", "-d" + duration, "-H", "Connection: close", url(1 << 10)}, countWrk, true},
		{"relay-stream1", "iperf3", "bytes", []string{
			"iperf3", "-J", "-Z", "-l", "1M", "-t", duration, "-c", lab.ProxyAddr.String(), "-p", strconv.Itoa(int(peer.Port(scenario.Relay))),
		}, countIperf, false},
	}
}

var (
	wrkRequests = regexp.MustCompile(`(?m)^\s*(\d+) requests in `)
	wrkRate     = regexp.MustCompile(`(?m)^Requests/sec:\s*([0-9.]+)`)
)

func countWrk(output string) (done, rate float64, err error) {
	n, r := wrkRequests.FindStringSubmatch(output), wrkRate.FindStringSubmatch(output)
	if n == nil || r == nil {
		return 0, 0, fmt.Errorf("wrk's output is not understood: %.300s", output)
	}
	done, err1 := strconv.ParseFloat(n[1], 64)
	rate, err2 := strconv.ParseFloat(r[1], 64)
	return done, rate, errors.Join(err1, err2)
}

func countIperf(output string) (done, rate float64, err error) {
	var v struct {
		End struct {
			Sum struct {
				Bytes float64 `json:"bytes"`
				Bits  float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(output), &v); err != nil {
		return 0, 0, fmt.Errorf("iperf3's output: %w", err)
	}
	if v.Error != "" || v.End.Sum.Bytes == 0 {
		return 0, 0, fmt.Errorf("iperf3 moved nothing: %s", v.Error)
	}
	return v.End.Sum.Bytes, v.End.Sum.Bits / 8, nil
}

// all makes every trial by the lab and by the other tool in turn.
func (c *checker) all(ctx context.Context) ([]agreement, error) {
	var found []agreement
	for _, t := range c.trials {
		sc, err := scenario.Parse(t.name)
		if err != nil {
			return nil, err
		}
		more, err := c.watch(ctx, sc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		found = append(found, more...)
		rate := agreement{what: t.name + ", throughput", tool: t.tool, unit: t.unit + "/s", loose: !t.alike}
		cost := agreement{loose: true, what: t.name + ", CPU of the proxy's processes", tool: "perf stat, " + t.tool, unit: "ns/" + strings.TrimSuffix(t.unit, "s")}
		for rep := range c.opt.reps {
			if err := c.opt.waitQuiet(ctx, len(c.lab.CPUs.All())); err != nil {
				return nil, err
			}
			a, err := c.ours(ctx, sc, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			b, err := c.theirs(ctx, sc, t)
			if err != nil {
				return nil, fmt.Errorf("%s by %s: %w", t.name, t.tool, err)
			}
			fmt.Fprintf(os.Stderr, "[%d/%d] %s: %.4g and %.4g %s/s, %.4g and %.4g ns CPU each\n",
				rep+1, c.opt.reps, t.name, a.rate, b.rate, t.unit, 1e9*a.cost, 1e9*b.cost)
			rate.ours, rate.theirs = append(rate.ours, a.rate), append(rate.theirs, b.rate)
			cost.ours, cost.theirs = append(cost.ours, 1e9*a.cost), append(cost.theirs, 1e9*b.cost)
		}
		found = append(found, rate, cost)
	}
	return found, nil
}

// ours measures as bench run does.
func (c *checker) ours(ctx context.Context, sc scenario.Scenario, probe func(pids []int)) (sample, error) {
	org, err := startOrigin(ctx, c.lab, false)
	if err != nil {
		return sample{}, err
	}
	defer org.end()
	s := &session{lab: c.lab, origin: org, subject: c.subject, sc: sc, opt: c.opt, probe: probe}
	row, err := s.run(ctx, false)
	if err != nil {
		return sample{}, err
	}
	done := float64(row.Requests)
	if !sc.Requests() {
		done = float64(row.Bytes)
	}
	return sample{rate: done / row.Seconds, cost: row.ProxyOwn / done, share: row.ProxyOwn / row.Seconds}, nil
}

// theirs has the tool make the load, and perf count the proxy's CPU time as long
// as the tool runs.
func (c *checker) theirs(ctx context.Context, sc scenario.Scenario, t trial) (sample, error) {
	stop, err := c.startServer(ctx, t.tool)
	if err != nil {
		return sample{}, err
	}
	defer stop()
	p, err := c.subject.launch(ctx, c.lab, sc.Mode)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = p.stop(c.lab) }() // what it leaves goes with the lab
	// Some listen before they have started their workers.
	if err := sleep(ctx, c.opt.warm); err != nil {
		return sample{}, err
	}
	pids, err := p.pids(c.lab)
	if err != nil {
		return sample{}, err
	}
	out := filepath.Join(c.lab.Dir, "perf")
	args := append([]string{"stat", "-x", ",", "-e", "task-clock", "-o", out, "-p", join(pids), "--"}, t.load...)
	cmd := exec.Command("perf", args...)
	// iperf3 makes the file it sends from there: in memory, as the lab's is.
	cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm")
	text, err := c.output(ctx, cmd)
	if err != nil {
		return sample{}, err
	}
	done, rate, err := t.count(text)
	if err != nil {
		return sample{}, err
	}
	cpu, err := perfClock(out)
	return sample{rate: rate, cost: cpu.Seconds() / done}, err
}

// startServer starts what the tool needs at the origin.
func (c *checker) startServer(ctx context.Context, tool string) (stop func(), err error) {
	if tool != "iperf3" {
		org, err := startOrigin(ctx, c.lab, false)
		if err != nil {
			return nil, err
		}
		return org.end, nil
	}
	cmd := exec.Command("iperf3", "-s", "-B", lab.OriginAddr.String(), "-p", strconv.Itoa(int(lab.OriginPort)))
	if err := c.lab.Origin.Start(cmd); err != nil {
		return nil, fmt.Errorf("start iperf3: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.lab.Client.WaitListening(wait, lab.OriginAddrPort); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// output runs cmd as the client and returns what it writes.
func (c *checker) output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out, stderr tail
	out.size, stderr.size = maxOutput, tailSize
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = time.Second
	if err := c.lab.Client.Start(cmd); err != nil {
		return "", fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit := time.Duration(c.opt.secs*float64(time.Second)) + replyWait
	select {
	case err := <-ended:
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args, " "), err, &stderr, &out)
		}
		return out.String(), nil
	case <-ctx.Done():
	case <-time.After(limit):
	}
	_ = c.lab.Client.Kill()
	<-ended
	return "", errors.Join(ctx.Err(), fmt.Errorf("%s takes longer than %v", cmd.Args[0], limit))
}

// maxOutput bounds what is kept of a tool's output in bytes.
const maxOutput = 1 << 20

// perfClock reads the CPU time that perf stat -x counted: its first field in
// milliseconds, perf-stat(1).
func perfClock(name string) (time.Duration, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("read perf's result: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, ",")
		if len(f) < 3 || f[1] != "msec" || f[2] != "task-clock" {
			continue
		}
		ms, err := strconv.ParseFloat(f[0], 64)
		if err != nil {
			return 0, fmt.Errorf("perf's result: %w", err)
		}
		return time.Duration(ms * float64(time.Millisecond)), nil
	}
	return 0, fmt.Errorf("perf's result is not understood: %.200s", text)
}

func join(pids []int) string {
	var words []string
	for _, pid := range pids {
		words = append(words, strconv.Itoa(pid))
	}
	return strings.Join(words, ",")
}
