package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/result"
)

// runner works through the plan.
type runner struct {
	opt    *options
	lab    *lab.Lab
	origin *child
	out    *result.Writer
	rows   []result.Row
	kernel string
	total  int
	failed int
	began  time.Time
}

// job measures until a run was not disturbed or the attempts are used up. A
// proxy that fails does not stop the others.
func (r *runner) job(ctx context.Context, index int, j job) error {
	for attempt := 1; attempt <= r.opt.attempts; attempt++ {
		if err := r.opt.waitQuiet(ctx, len(r.lab.CPUs.All())); err != nil {
			return err
		}
		s := &session{lab: r.lab, origin: r.origin, subject: j.subject, sc: j.sc, opt: r.opt}
		row, err := s.run(ctx, j.rep == 1 && !r.opt.noTrace)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failed++
			r.say(index, j, "failed: "+err.Error())
			return nil
		}
		row.Rep, row.Attempt, row.Kernel = j.rep, attempt, r.kernel
		if err := r.out.Write(row); err != nil {
			return err
		}
		r.rows = append(r.rows, row)
		r.say(index, j, summary(&row))
		if !row.Disturbed {
			return nil
		}
	}
	return nil
}

// say writes a line of progress.
func (r *runner) say(index int, j job, text string) {
	done := index + 1
	left := time.Since(r.began) / time.Duration(done) * time.Duration(r.total-done)
	fmt.Fprintf(os.Stderr, "[%d/%d, %s left] rep %d %s %s: %s\n",
		done, r.total, left.Round(time.Second), j.rep, j.sc.Name, j.subject.label, text)
}

// summary tells the main figures of a run.
func summary(r *result.Row) string {
	text := fmt.Sprintf("CPU %.3g %s (own %.3g), load %.0f%%", r.PerUnit(r.ProxyBusy), r.Unit(), r.PerUnit(r.ProxyOwn), 100*r.ProxyLoad)
	switch {
	case r.Requests > 0:
		text = fmt.Sprintf("%.0f req/s, %s, p50 %.0f p99 %.0f us", float64(r.Requests)/r.Seconds, text, r.P50, r.P99)
	case r.Bytes > 0:
		text = fmt.Sprintf("%.0f MB/s, %s", float64(r.Bytes)/r.Seconds/1e6, text)
	default:
		text = fmt.Sprintf("%.2f KB per connection, %s", r.MemoryPerConn()/1024, text)
	}
	if r.Errors > 0 {
		text += ", errors " + r.ErrorsBy
	}
	if r.Syscalls > 0 {
		text += fmt.Sprintf(", %.2f calls", r.Syscalls)
	}
	if r.Disturbed {
		text += fmt.Sprintf(", disturbed (others %.1f%%, steal %.1f%%)", 100*r.Foreign, 100*r.Steal)
	}
	return text
}

// print writes the tables of what has been measured, and the system calls.
func (r *runner) print(file string) error {
	if len(r.rows) == 0 {
		return nil
	}
	if err := result.Tables(os.Stdout, r.rows, strings.Split(r.opt.refs, ",")); err != nil {
		return err
	}
	fmt.Println()
	for _, row := range r.rows {
		if row.SyscallsBy != "" && row.Attempt == 1 {
			fmt.Printf("calls of %s %s: %s\n", row.Scenario, row.Proxy, row.SyscallsBy)
		}
	}
	fmt.Printf("\n%d runs in %s\n", len(r.rows), file)
	return nil
}
