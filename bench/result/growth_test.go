package result

import (
	"strings"
	"testing"
)

func TestGrowth(t *testing.T) {
	row := func(scenario, proxy string, rep int, requests int64, cpu float64) Row {
		return Row{Time: "2026-01-01T00:00:00Z", Scenario: scenario, Proxy: proxy, Rep: rep, Seconds: 2, Requests: requests, ProxyBusy: cpu, ProxyOwn: cpu / 2}
	}
	rows := []Row{
		row("relay-ka-1k-10+990", "3proxyd", 1, 1e5, 4),
		row("relay-ka-1k-10", "3proxyd", 1, 1e5, 2),
		row("relay-ka-1k-10", "3proxyd", 2, 1e5, 4),
		row("relay-ka-1k-10+990", "3proxyd", 2, 1e5, 4),
		row("relay-ka-1k-10@100", "3proxyd", 1, 200, 0.01),
		row("relay-idle-10", "3proxyd", 1, 0, 0.001),
		row("http-ka-1k", RulesLabel(1), 1, 1e5, 2),
		row("http-ka-1k", RulesLabel(10_000), 1, 1e5, 2.2),
		{Scenario: "http-ka-1k", Proxy: RulesLabel(10_000), Rep: 2, Failed: "it ended"},
	}
	b := &strings.Builder{}
	if err := Growth(b, rows, "growth.csv"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| relay, closed loop | 10 | 50000 | 30.0 |  | 15.0 |  | 0 | 0 |\n",
		"|  | 1000 | 50000 | 40.0 | **1.50 [1.00-2.00]** | 20.0 | **1.50 [1.00-2.00]** | 0 | 0 |\n",
		"| http-ka-1k | 1 | 50000 | 20.0 |  | 10.0 |  | 0 | 0 |\n",
		"|  | 10000 | 50000 | 22.0 | 1.10 | 11.0 | 1.10 | 0 | 0 |\n",
		"| relay-ka-1k-10@100 | 2 | 0.250 | 25 |\n",
		"| relay-idle-10 | 2 | 0.025 | - |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, b)
		}
	}
	b.Reset()
	if err := Growth(b, nil, "growth.csv"); err != nil || !strings.Contains(b.String(), "No runs.") {
		t.Errorf("a page of nothing: %v, %q", err, b)
	}
}

func TestRulesOf(t *testing.T) {
	for label, want := range map[string]int{"3proxyd": 0, "3proxyd-10000rules": 10_000, "3proxyd-rules": 0, "3proxyd-xrules": 0, "rules": 0, RulesLabel(7): 7} {
		if n := rulesOf(label); n != want {
			t.Errorf("rulesOf(%q) = %d, want %d", label, n, want)
		}
	}
}
