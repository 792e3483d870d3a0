package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"3proxyd/ipc"
)

// asJSON prints an answer as it came.
func (s *session) asJSON(v any) error {
	out := json.NewEncoder(s.out)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

func (s *session) table() *tabwriter.Writer {
	return tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
}

func (s *session) status(ctx context.Context) error {
	st, err := s.client.Status(ctx)
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(st)
	}
	fmt.Fprintf(s.out, "3proxyd %s, pid %d, %s for %s\n", st.Version, st.PID, st.State, duration(st.UptimeSec))
	if p := st.Drain; p != nil {
		fmt.Fprintf(s.out, "%s left, to be ended in %s\n", count(int(p.Sessions), "session"), duration(p.SecondsLeft))
	}
	fmt.Fprintf(s.out, "configuration %s, generation %d%s\n", st.Config, st.Generation, lastReload(st.LastReload))
	fmt.Fprintf(s.out, "descriptors %d needed, %d granted; local ports %d; somaxconn %d; tasks %s\n",
		st.Limits.FDsNeeded, st.Limits.FDsGranted, st.Limits.LocalPorts, st.Limits.Somaxconn, orUnlimited(st.Limits.PidsMax))
	s.upgradeStatus(st)
	s.workersTable(st.Workers)
	s.servicesTable(st.Services)
	for _, w := range st.Warnings {
		fmt.Fprintf(s.out, "warning: %s\n", w)
	}
	return nil
}

func lastReload(r *ipc.ReloadOutcome) string {
	switch {
	case r == nil:
		return ""
	case r.OK:
		return ", reloaded " + r.Time.Local().Format(time.DateTime)
	}
	return fmt.Sprintf(", last reload (%s) failed: %s", r.Time.Local().Format(time.DateTime), r.Error)
}

func orUnlimited(n int) string {
	if n < 0 {
		return "unlimited"
	}
	return fmt.Sprintf("at most %d", n)
}

func (s *session) workersTable(workers []ipc.WorkerStatus) {
	t := s.table()
	fmt.Fprintln(t, "\nWORKER\tPID\tCPU\tENGINE\tSTATE\tUPTIME\tSESSIONS\tRESTARTS\tLAST EXIT")
	for _, w := range workers {
		state, pid, uptime := w.State, dash(w.PID), "-"
		if w.PID != 0 {
			uptime = duration(w.UptimeSec)
		}
		if w.State == "backoff" {
			state = fmt.Sprintf("backoff, next in %.0fs", w.RetryInSec)
		}
		if w.State == "draining" {
			state = "draining, up to " + duration(w.DrainLeftSec)
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", w.Slot, pid, w.CPU, orDash(w.Engine), state, uptime, w.Sessions, w.Restarts, orDash(w.LastExit))
	}
	_ = t.Flush()
}

func (s *session) servicesTable(services []ipc.ServiceStatus) {
	t := s.table()
	fmt.Fprintln(t, "\nSERVICE\tADDRESS\tTARGET\tOPEN\tMAXCONN\tBACKLOG")
	for _, v := range services {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\n", v.Kind, v.Address, orDash(v.Target), v.Open, v.MaxConn, v.Backlog)
	}
	_ = t.Flush()
}

func (s *session) stats(ctx context.Context) error {
	st, err := s.client.Stats(ctx)
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(st)
	}
	t := s.table()
	fmt.Fprintln(t, "SERVICE\tOPEN\tTOTAL\tREQUESTS\tIN\tOUT\tSPLICED\tFAILED")
	for _, v := range st.Services {
		counterRow(t, v.ID, v.Counters)
	}
	fmt.Fprintln(t, "\nWORKER\tOPEN\tTOTAL\tREQUESTS\tIN\tOUT\tSPLICED\tFAILED")
	for _, w := range st.Workers {
		counterRow(t, fmt.Sprint(w.Slot), w.Counters)
	}
	counterRow(t, "total", st.Total)
	fmt.Fprintln(t, "\nWORKER\tTURNS\tEVENTS\tPIPES\tPIPE MISSES\tNAME QUERIES\tNAME HITS\tDESCRIPTOR PAUSES")
	for _, w := range st.Workers {
		l := w.Loop
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", w.Slot, l["turns"], l["events"], l["pipes_open"],
			l["pipe_misses"], l["name_queries"], l["name_hits"], l["fd_pauses"])
	}
	return t.Flush()
}

// failures are the counters shown by reason when they are not zero.
var failures = []string{
	"denied", "auth_failed", "connect_failed", "name_failed", "no_resources", "timed_out",
	"reset_by_client", "reset_by_server", "protocol_errors", "maxconn_pauses", "log_dropped", "ended_by_rules",
}

func counterRow(t io.Writer, name string, c ipc.CounterValues) {
	var failed []string
	for _, k := range failures {
		if c[k] > 0 {
			failed = append(failed, fmt.Sprintf("%s %d", k, c[k]))
		}
	}
	fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", name, c["open"], c["accepted"], c["requests"],
		size(c["bytes_in"]), size(c["bytes_out"]), size(c["bytes_spliced"]), orDash(strings.Join(failed, ", ")))
}

func (s *session) conns(ctx context.Context) error {
	if s.line.json {
		out := json.NewEncoder(s.out)
		out.SetEscapeHTML(false)
		return s.client.Conns(ctx, func(c ipc.Session) error { return out.Encode(c) })
	}
	t := s.table()
	header := sync.OnceFunc(func() {
		fmt.Fprintln(t, "WORKER\tID\tSERVICE\tCLIENT\tUSER\tOP\tTARGET\tSERVER\tSTATE\tAGE\tIN\tOUT")
	})
	err := s.client.Conns(ctx, func(c ipc.Session) error {
		header()
		worker := fmt.Sprint(c.Worker)
		if c.OldPID != 0 {
			worker += fmt.Sprintf(" of pid %d", c.OldPID)
		}
		_, err := fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", worker, c.ID, serviceOf(&c), c.Client,
			orDash(printable(c.User)), orDash(c.Op), orDash(printable(c.Target)), orDash(c.Server), c.State,
			duration(c.AgeSec), size(c.BytesIn), size(c.BytesOut))
		return err
	})
	if err == nil {
		header()
	}
	_ = t.Flush() // an error of writing is kept by output
	return err
}

// serviceOf is the service of a session, with the protocol that a client of auto
// speaks: auto/http@ADDRESS.
func serviceOf(c *ipc.Session) string {
	kind, at, found := strings.Cut(c.Service, "@")
	if c.Protocol == "" || !found {
		return c.Service
	}
	return kind + "/" + printable(c.Protocol) + "@" + at
}

func (s *session) reload(ctx context.Context) error {
	if s.line.dryRun {
		return s.planReload(ctx)
	}
	ask := s.client.Reload
	if s.line.force {
		ask = s.client.ReloadForce
	}
	r, err := ask(ctx)
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(r)
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(s.out, w)
	}
	changed := ""
	if !r.Changed {
		changed = " (nothing has changed)"
	}
	fmt.Fprintf(s.out, "generation %d is in force%s: %s kept, %d added, %d removed\n",
		r.Generation, changed, count(len(r.Kept), "service"), len(r.Added), len(r.Removed))
	for _, id := range r.Added {
		fmt.Fprintf(s.out, "  added %s\n", id)
	}
	for _, id := range r.Removed {
		fmt.Fprintf(s.out, "  removed %s\n", id)
	}
	return nil
}

func (s *session) drain(ctx context.Context) error {
	r, err := s.client.Drain(ctx, ipc.DrainRequest{Worker: s.line.worker, TimeoutSec: s.line.timeout})
	if err != nil {
		return err
	}
	switch {
	case s.line.json:
		return s.asJSON(r)
	case s.line.worker != nil:
		fmt.Fprintf(s.out, "worker %d drains for up to %s, its successor accepts\n", *s.line.worker, duration(r.TimeoutSec))
	default:
		fmt.Fprintf(s.out, "the daemon accepts nothing any more and ends with its last session, or in %s (%s)\n",
			duration(r.TimeoutSec), count(len(r.Draining), "worker"))
	}
	if s.line.follow {
		return s.followDrain(ctx)
	}
	return nil
}

func (s *session) rebalance(ctx context.Context) error {
	r, err := s.client.Rebalance(ctx)
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(r)
	}
	for _, m := range r.Moves {
		failed := ""
		if m.Error != "" {
			failed = ": " + m.Error
		}
		fmt.Fprintf(s.out, "worker %d to worker %d: %s%s\n", m.From, m.To, count(m.Sessions, "session"), failed)
	}
	if len(r.Moves) == 0 {
		fmt.Fprintln(s.out, "the workers are even, no session has moved")
	}
	return nil
}
