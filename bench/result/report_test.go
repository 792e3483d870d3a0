package result

import (
	"bytes"
	"strings"
	"testing"
)

// runs returns repetitions of a scenario with the given CPU seconds for 1000
// requests in a second.
func runs(scenario, proxy, group string, busy ...float64) []Row {
	var rows []Row
	for i, b := range busy {
		rows = append(rows, Row{
			Time: "2026-01-02T03:04:05Z", Rep: i + 1, Scenario: scenario, Proxy: proxy, Group: group, Seconds: 1,
			Requests: 1000, Bytes: 1 << 20, P50: 100, P99: 200, ProxyBusy: b, Conns: 64, Pace: "prx", Version: "v1",
		})
	}
	return rows
}

func join(parts ...[]Row) []Row {
	var all []Row
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestJudge(t *testing.T) {
	const sc = "relay-ka-1k"
	peers := join(runs(sc, "nginx", "copy", 1.0, 1.1, 1.2), runs(sc, "haproxy", "copy", 2, 2, 2), runs(sc, "direct", "", 0.1, 0.1, 0.1))
	for _, tt := range []struct {
		busy  []float64
		want  Standing
		ratio float64
	}{
		{[]float64{0.5, 0.55, 0.6}, Ahead, 0.5},
		{[]float64{1.2, 1.3, 1.4}, Equal, 1.18},
		{[]float64{1.3, 1.4, 1.5}, Behind, 1.27},
	} {
		v, ok := Judge(join(peers, runs(sc, "3proxyd", "splice", tt.busy...)), "3proxyd", CPU)
		if !ok || v.Peer != "nginx" || v.Standing != tt.want || v.Ratio.Median < tt.ratio-0.01 || v.Ratio.Median > tt.ratio+0.01 {
			t.Errorf("Judge(%v) = %+v, %v; want %s of nginx, ratio %v", tt.busy, v, ok, tt.want, tt.ratio)
		}
	}
	if v, ok := Judge(runs(sc, "3proxyd", "splice", 1), "3proxyd", CPU); ok {
		t.Errorf("judged without a peer: %+v", v)
	}
}

func TestJudgeLeavesOutFailingPeers(t *testing.T) {
	const sc = "relay-ka-1k"
	bad := runs(sc, "nginx", "copy", 0.1)
	bad[0].Errors = 500
	failed := Row{Scenario: sc, Proxy: "squid", Rep: 1, Failed: "it ended"}
	in := join(bad, []Row{failed}, runs(sc, "haproxy", "copy", 1), runs(sc, "3proxyd", "splice", 1))
	if v, ok := Judge(in, "3proxyd", CPU); !ok || v.Peer != "haproxy" {
		t.Errorf("best peer is %q, want haproxy", v.Peer)
	}
}

func TestMarkdown(t *testing.T) {
	rows := join(
		runs("relay-ka-1k", "3proxyd", "splice", 0.5, 0.5), runs("relay-ka-1k", "nginx", "copy", 1, 1),
		runs("relay-ka-1k", "haproxy", "copy", 2, 2), runs("relay-ka-1k", "haproxy-splice", "splice", 0.9, 0.9),
		[]Row{{Time: "2026-01-02T03:04:05Z", Scenario: "http-ka-1k", Proxy: "squid", Group: "copy", Rep: 1, Failed: "it\nended"}},
	)
	var b bytes.Buffer
	if err := Markdown(&b, rows, Page{Plots: "pictures", Files: []string{"cpu-relay.svg"}, Sources: []string{"x.csv"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"from x.csv", "| relay-ka-1k | 1.00 [1.00-1.00] equal to nginx | 0.56 [0.56-0.56] ahead of haproxy-splice |",
		"![cpu-relay](pictures/cpu-relay.svg)", "| nginx | **1000.0** |", "| haproxy | 2000.0 |", "| 3proxyd | **500.0** |",
		"| *copying* |", "| *splicing* |", "1000ᵖ", "* http-ka-1k squid: it ended", "failed",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestCompare(t *testing.T) {
	const sc = "relay-ka-1k"
	limits := map[string]float64{"CPU": 1.05}
	for _, tt := range []struct {
		name   string
		a, b   []float64
		losses int
	}{
		{"equal", []float64{1, 1.01}, []float64{1, 1.01}, 0},
		{"a loss", []float64{1, 1.01}, []float64{1.1, 1.12}, 1},
		{"within the limit", []float64{1, 1.01}, []float64{1.03, 1.04}, 0},
		{"ranges overlap", []float64{1, 1.3}, []float64{1.2, 1.4}, 0},
		{"a gain", []float64{1, 1.01}, []float64{0.5, 0.5}, 0},
	} {
		one := join(runs(sc, "3proxyd-old", "splice", tt.a...), runs(sc, "3proxyd", "splice", tt.b...))
		var out bytes.Buffer
		got, err := Changes(&out, Compare(Side{one, "3proxyd-old"}, Side{one, "3proxyd"}, nil, true), limits)
		if err != nil || got != tt.losses {
			t.Errorf("%s, in one file: %d losses, %v; want %d\n%s", tt.name, got, err, tt.losses, &out)
		}
		// The second file was made when the machine was half as fast.
		slow := make([]float64, len(tt.b))
		for i, x := range tt.b {
			slow[i] = 2 * x
		}
		before := join(runs(sc, "3proxyd", "splice", tt.a...), runs(sc, "nginx", "copy", 3, 3))
		after := join(runs(sc, "3proxyd", "splice", slow...), runs(sc, "nginx", "copy", 6, 6))
		changes := Compare(Side{before, "3proxyd"}, Side{after, "3proxyd"}, []string{"haproxy", "nginx"}, false)
		got, err = Changes(&out, changes, limits)
		if err != nil || got != tt.losses || changes[0].Ref != "nginx" {
			t.Errorf("%s, in two files: %d losses relative to %q, %v; want %d", tt.name, got, changes[0].Ref, err, tt.losses)
		}
	}
}
