package main

import (
	"context"
	"fmt"
	"strings"

	"3proxyd/ipc"
)

// planReload says what a reload would change.
func (s *session) planReload(ctx context.Context) error {
	p, err := s.client.PlanReload(ctx)
	if err != nil {
		return err
	}
	if s.line.json {
		return s.asJSON(p)
	}
	for _, w := range p.Warnings {
		fmt.Fprintln(s.out, w)
	}
	if !p.Changed && len(p.Settings) == 0 {
		fmt.Fprintln(s.out, "a reload would change nothing")
		return nil
	}
	fmt.Fprintf(s.out, "a reload would add %s, remove %d, change %d and keep %d as they are\n",
		count(len(p.Added), "service"), len(p.Removed), len(p.Services), len(p.Kept))
	for _, id := range p.Added {
		fmt.Fprintf(s.out, "  added %s\n", id)
	}
	for _, id := range p.Removed {
		fmt.Fprintf(s.out, "  removed %s\n", id)
	}
	for _, c := range p.Services {
		s.serviceChange(c)
	}
	s.changes("  ", p.Settings)
	s.users(p.Users)
	return nil
}

func (s *session) serviceChange(c ipc.ServiceChange) {
	fmt.Fprintf(s.out, "  changed %s\n", c.ID)
	s.changes("    ", c.Settings)
	for _, line := range c.RulesRemoved {
		fmt.Fprintf(s.out, "    - %s\n", printable(line))
	}
	for _, line := range c.RulesAdded {
		fmt.Fprintf(s.out, "    + %s\n", printable(line))
	}
	if c.RulesReordered {
		fmt.Fprintln(s.out, "    the same rules in another order")
	}
}

func (s *session) changes(indent string, list []ipc.Change) {
	for _, c := range list {
		fmt.Fprintf(s.out, "%s%s: %s → %s\n", indent, c.Setting, orNone(printable(c.Before)), orNone(printable(c.After)))
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (s *session) users(u ipc.UserChanges) {
	for _, part := range []struct {
		what  string
		names []string
	}{{"added", u.Added}, {"removed", u.Removed}, {"with another password", u.Changed}} {
		if len(part.names) > 0 {
			fmt.Fprintf(s.out, "  users %s: %s\n", part.what, printable(strings.Join(part.names, ", ")))
		}
	}
}
