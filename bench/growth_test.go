package main

import (
	"slices"
	"strings"
	"testing"
)

func TestGrowthPlan(t *testing.T) {
	g, err := parseGrowth([]string{"--reps", "2"})
	if err != nil {
		t.Fatal(err)
	}
	subjects, err := g.subjects()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := g.plan(subjects, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, j := range jobs {
		most = max(most, j.sc.Open())
		if rules := strings.HasSuffix(j.subject.label, "rules"); rules != slices.Contains(ruleLoads, j.sc.Name) {
			t.Errorf("%s is measured with %s", j.sc.Name, j.subject.label)
		}
	}
	if want := 2 * (12 + 2*len(ruleLoads) + len(rateLoads)); len(jobs) != want {
		t.Errorf("%d runs, want %d", len(jobs), want)
	}
	if most != 9700 {
		t.Errorf("at most %d connections, want 9700 with 20,000 descriptors", most)
	}
	if _, err := g.plan(subjects, 1000); err == nil {
		t.Error("1,000 descriptors are enough")
	}
	g.only = growsRate
	if jobs, _ := g.plan(subjects, 20_000); len(jobs) != 2*len(rateLoads) {
		t.Errorf("--only rate makes %d runs", len(jobs))
	}
}

func TestGrowthRules(t *testing.T) {
	for _, n := range []int{1, 10_000} {
		lines := rules(n)
		if len(lines) != n+1 || lines[0] != "auth iponly" || lines[n] != "allow *" {
			t.Errorf("rules(%d) has %d lines, from %q to %q", n, len(lines), lines[0], lines[len(lines)-1])
		}
		slices.Sort(lines)
		if len(slices.Compact(lines)) != n+1 {
			t.Errorf("rules(%d) has equal lines", n)
		}
	}
}

func TestGrowthErrors(t *testing.T) {
	for _, args := range [][]string{
		{"x"}, {"--reps", "0"}, {"--secs", "NaN"}, {"--conns", "10"}, {"--conns", "60001"}, {"--rules", "0"}, {"--rules", "100001"}, {"--only", "idle"},
	} {
		if _, err := parseGrowth(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
