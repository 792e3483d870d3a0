package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/plots"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// runner works through the plan.
type runner struct {
	opt     *options
	lab     *lab.Lab
	origin  *child
	wire    *child // nil if there is none
	file    *results
	kernel  string
	machine string
	total   int
	failed  int
	began   time.Time
}

// job measures until a run was not disturbed or the attempts are used up. A
// proxy that fails does not stop the others.
func (r *runner) job(ctx context.Context, index int, j job) error {
	for attempt := 1; attempt <= r.opt.attempts; attempt++ {
		if !r.late() {
			if err := r.opt.waitQuiet(ctx, len(r.lab.CPUs.All())); err != nil {
				return err
			}
		}
		s := &session{lab: r.lab, origin: r.origin, wire: r.wire, subject: j.subject, sc: r.fit(j.sc), opt: r.opt}
		row, err := s.run(ctx, j.rep == 1 && !r.opt.noTrace)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.failed++
			r.say(index, j, "failed: "+err.Error())
			row = result.Row{Failed: err.Error()}
		}
		s.identify(&row)
		row.Rep, row.Attempt, row.Kernel, row.Machine = j.rep, attempt, r.kernel, r.machine
		if err := r.file.add(row); err != nil {
			return err
		}
		if row.Failed != "" {
			return nil
		}
		r.say(index, j, summary(&row))
		if !row.Disturbed || r.late() {
			return nil
		}
	}
	return nil
}

// late tells whether the time for waiting and repeating is used up.
func (r *runner) late() bool {
	return r.opt.within > 0 && time.Since(r.began) > r.opt.within
}

// fit returns the scenario with the number of connections and active requests
// that it gets here.
func (r *runner) fit(sc scenario.Scenario) scenario.Scenario {
	if sc.Kind == scenario.Mix && sc.Rate == 0 {
		sc.Active = r.opt.active
	}
	return sc.Fit(r.lab.Files)
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
	if r.LinkLate*100 > r.LinkPackets {
		text += fmt.Sprintf(", the link was late for %.0f%% of the packets", 100*float64(r.LinkLate)/float64(r.LinkPackets))
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

// print writes the tables of what the file holds, the system calls and the
// pictures.
func (r *runner) print() error {
	rows := r.file.rows
	if len(rows) == 0 {
		return nil
	}
	if err := result.Tables(os.Stdout, rows, strings.Split(r.opt.refs, ",")); err != nil {
		return err
	}
	fmt.Println()
	for _, row := range rows {
		if row.SyscallsBy != "" && row.Attempt == 1 {
			fmt.Printf("calls of %s %s: %s\n", row.Scenario, row.Proxy, row.SyscallsBy)
		}
	}
	fmt.Printf("\n%d runs in %s\n", len(rows), r.file.name())
	if r.opt.noPlots {
		return nil
	}
	dir := strings.TrimSuffix(r.file.name(), ".csv") + "-pictures"
	files, err := plots.Draw(dir, rows, strings.Split(r.opt.refs, ","))
	if err != nil {
		return err
	}
	fmt.Printf("%d pictures in %s\n", len(files), dir)
	return nil
}
