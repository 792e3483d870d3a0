package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/scenario"
)

// watched is what others saw of a measurement of the lab's.
type watched struct {
	sample
	err error
}

// watch measures by the lab, while perf counts the proxy's CPU time and, of a
// stream, the kernel the bytes that leave towards the origin.
func (c *checker) watch(ctx context.Context, sc scenario.Scenario) ([]agreement, error) {
	rate := agreement{what: sc.Name + ", throughput", tool: "device counters", unit: "bytes/s"}
	share := agreement{what: sc.Name + ", CPU of the proxy's processes", tool: "perf stat", unit: "s/s"}
	for range c.opt.reps {
		seen := make(chan watched, 1)
		a, err := c.ours(ctx, sc, func(pids []int) { go func() { seen <- c.see(pids) }() })
		if err != nil {
			return nil, err
		}
		b := <-seen
		if b.err != nil {
			return nil, b.err
		}
		rate.ours, rate.theirs = append(rate.ours, a.rate), append(rate.theirs, b.rate)
		share.ours, share.theirs = append(share.ours, a.share), append(share.theirs, b.share)
	}
	if sc.Requests() {
		return []agreement{share}, nil
	}
	return []agreement{rate, share}, nil
}

// see looks at most of a measurement that has begun.
func (c *checker) see(pids []int) (w watched) {
	out := filepath.Join(c.lab.Dir, "perf")
	before, began := c.sent(&w.err), time.Now()
	text, err := exec.Command("perf", "stat", "-x", ",", "-e", "task-clock", "-o", out, "-p", join(pids), "--",
		"sleep", strconv.FormatFloat(0.9*c.opt.secs, 'f', 2, 64)).CombinedOutput()
	w.rate = float64(c.sent(&w.err)-before) / time.Since(began).Seconds()
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("perf: %w: %.300s", err, text))
		return w
	}
	cpu, err := perfClock(out)
	w.share = cpu.Seconds() / (0.9 * c.opt.secs)
	w.err = errors.Join(w.err, err)
	return w
}

// sent returns the bytes that have left the proxy towards the origin.
func (c *checker) sent(failed *error) (n int64) {
	err := c.lab.Proxy.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return fmt.Errorf("read device counters: %w", err)
		}
		n, err = sentBy(string(text), lab.ProxyOutDev)
		return err
	})
	*failed = errors.Join(*failed, err)
	return n
}

// sentBy finds the bytes that a device has sent in /proc/net/dev, proc_net(5).
func sentBy(text, dev string) (int64, error) {
	for line := range strings.Lines(text) {
		name, counters, ok := strings.Cut(line, ":")
		f := strings.Fields(counters)
		if !ok || strings.TrimSpace(name) != dev || len(f) < 9 {
			continue
		}
		n, err := strconv.ParseInt(f[8], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("device counters: %w", err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("no device %s in /proc/net/dev", dev)
}
