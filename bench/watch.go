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

// watch measures a stream by the lab, while perf counts the proxy's CPU time and
// the kernel the bytes that leave towards the origin.
func (c *checker) watch(ctx context.Context, name string) ([]agreement, error) {
	sc, err := scenario.Parse(name)
	if err != nil {
		return nil, err
	}
	rate := agreement{what: name + ", throughput", tool: "device counters", unit: "bytes/s"}
	cost := agreement{what: name + ", CPU of the proxy's processes", tool: "perf stat", unit: "ns/byte"}
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
		cost.ours, cost.theirs = append(cost.ours, 1e9*a.cost), append(cost.theirs, 1e9*b.cost)
	}
	return []agreement{rate, cost}, nil
}

// see looks at most of a measurement that has begun.
func (c *checker) see(pids []int) (w watched) {
	out := filepath.Join(c.lab.Dir, "perf")
	before, began := c.sent(&w.err), time.Now()
	text, err := exec.Command("perf", "stat", "-x", ",", "-e", "task-clock", "-o", out, "-p", join(pids), "--",
		"sleep", strconv.FormatFloat(0.9*c.opt.secs, 'f', 2, 64)).CombinedOutput()
	bytes, took := float64(c.sent(&w.err)-before), time.Since(began)
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("perf: %w: %.300s", err, text))
		return w
	}
	cpu, err := perfClock(out)
	w.err = errors.Join(w.err, err)
	w.rate, w.cost = bytes/took.Seconds(), cpu.Seconds()/bytes
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
