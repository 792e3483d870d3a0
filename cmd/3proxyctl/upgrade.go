package main

import (
	"context"
	"fmt"
	"time"

	"3proxyd/ipc"
)

func (s *session) upgrade(ctx context.Context) error {
	r, err := s.client.Upgrade(ctx, ipc.UpgradeRequest{Binary: s.line.binary, TrialSec: s.line.trial, TimeoutSec: s.line.timeout})
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(r)
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(s.out, w)
	}
	fmt.Fprintf(s.out, "process %d, version %s, has taken over after %s: generation %d, %s kept, %d added, %d removed\n",
		r.PID, r.Version, duration(r.Seconds), r.Generation, count(len(r.Kept), "service"), len(r.Added), len(r.Removed))
	if r.Left > 0 {
		fmt.Fprintf(s.out, "the old daemon finishes %s\n", count(r.Left, "session"))
	}
	return nil
}

// upgradeStatus prints what an upgrade has left or is doing.
func (s *session) upgradeStatus(st *ipc.Status) {
	if u := st.Upgrade; u != nil {
		fmt.Fprintf(s.out, "upgrade to %s (pid %d, version %s): %s for %s\n", u.Binary, u.PID, orDash(u.Version), u.State, duration(u.AgeSec))
	}
	if u := st.LastUpgrade; u != nil {
		fmt.Fprintln(s.out, lastUpgrade(u))
	}
	if len(st.OldGenerations) == 0 {
		return
	}
	t := s.table()
	fmt.Fprintln(t, "\nOLD GENERATION\tPID\tREPLACED\tWORKERS\tSESSIONS\tTIME LEFT")
	for _, o := range st.OldGenerations {
		fmt.Fprintf(t, "%s\t%d\t%s ago\t%d\t%d\t%s\n", o.Version, o.PID, duration(o.AgeSec), len(o.Workers), o.Sessions, duration(o.LeftSec))
	}
	_ = t.Flush()
}

func lastUpgrade(u *ipc.UpgradeOutcome) string {
	when := u.Time.Local().Format(time.DateTime)
	if u.OK {
		return fmt.Sprintf("upgraded %s from version %s", when, u.From)
	}
	return fmt.Sprintf("last upgrade (%s, to %s) failed: %s", when, u.Binary, u.Error)
}
