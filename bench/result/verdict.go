package result

import (
	"math"
	"slices"
	"strings"

	"3proxyd/bench/scenario"
)

// Measure is a figure by which proxies are compared.
type Measure struct {
	Name  string
	Of    func(*Row) float64
	Lower bool // less is better
	// Applies tells whether the figure says something about the scenario.
	Applies func(scenario.Scenario) bool
}

// The measures.
var (
	Throughput = Measure{"throughput", rate, false, func(s scenario.Scenario) bool { return s.Kind != scenario.Idle && s.Rate == 0 }}
	CPU        = Measure{"CPU", cpuPerUnit, true, func(s scenario.Scenario) bool { return s.Kind != scenario.Idle }}
	Latency    = Measure{"p99", func(r *Row) float64 { return positive(r.P99) }, true, scenario.Scenario.Requests}
	Memory     = Measure{"memory", func(r *Row) float64 { return r.MemoryPerConn() }, true,
		func(s scenario.Scenario) bool { return s.Kind == scenario.Idle || s.Conns >= 1000 }}
	// Calls are counted under strace, which saturates a proxy at any rate.
	Calls = Measure{"calls", calls, true, func(s scenario.Scenario) bool { return s.Requests() && s.Rate == 0 }}
	// PSS is of all processes, with few connections.
	PSS = Measure{"PSS", func(r *Row) float64 { return positive(float64(r.MemoryPeak)) }, true,
		func(s scenario.Scenario) bool { return s.Kind == scenario.KeepAlive && s.Conns < 1000 && s.Rate == 0 }}
)

// Measures lists the measures in the order of reports.
var Measures = []Measure{Throughput, CPU, Latency, Calls, Memory, PSS}

func positive(x float64) float64 {
	if x <= 0 {
		return math.NaN()
	}
	return x
}

// Spread returns the spread of the measure over rows.
func (m Measure) Spread(rows []Row) Spread {
	var v []float64
	for i := range rows {
		v = append(v, m.Of(&rows[i]))
	}
	return NewSpread(v)
}

// better tells whether a is ahead of b.
func (m Measure) better(a, b float64) bool {
	if m.Lower {
		return a < b
	}
	return a > b
}

// Overlap tells whether the ranges have a value in common.
func (s Spread) Overlap(t Spread) bool { return s.Min <= t.Max && t.Min <= s.Max }

// Standing is how a proxy compares to the best of the others.
type Standing string

// The standings.
const (
	Ahead  Standing = "ahead"
	Equal  Standing = "equal"
	Behind Standing = "behind"
)

// Verdict compares a proxy with the best other one.
type Verdict struct {
	Peer     string
	Ratio    Spread // of the proxy's figure to the peer's in the same repetition
	Standing Standing
}

// Own tells whether a label names a 3proxyd.
func Own(label string) bool { return label == "3proxyd" || strings.HasPrefix(label, "3proxyd-") }

// Judge compares the proxy label with the best peer by median. in holds the
// runs of one scenario that count (Best). Runs whose ranges overlap count as
// equal. ok is false where there is nothing to compare.
func Judge(in []Row, label string, m Measure) (v Verdict, ok bool) {
	in = Live(in)
	mine := m.Spread(of(in, label))
	if mine.N == 0 {
		return v, false
	}
	var best Spread
	for _, name := range names(in, func(r Row) string { return r.Proxy }) {
		rows := of(in, name)
		s := m.Spread(rows)
		if Own(name) || name == "direct" || s.N == 0 || failing(rows) {
			continue
		}
		if best.N == 0 || m.better(s.Median, best.Median) {
			best, v.Peer = s, name
		}
	}
	if best.N == 0 {
		return v, false
	}
	v.Ratio = Ratio(of(in, label), in, v.Peer, m.Of)
	switch {
	case mine.Overlap(best):
		v.Standing = Equal
	case m.better(mine.Median, best.Median):
		v.Standing = Ahead
	default:
		v.Standing = Behind
	}
	return v, v.Ratio.N > 0
}

// failing tells whether more than one request or connection of a hundred failed
// or, at a fixed rate, was not begun in time, which makes the other figures
// meaningless.
func failing(rows []Row) bool {
	var errors, done int64
	for _, r := range rows {
		errors += r.Errors + r.Unserved
		done += r.Requests + int64(r.Conns)
	}
	return errors*100 > done
}

// Live returns the rows that have figures.
func Live(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Failed != "" })
}

// of returns the rows of a proxy.
func of(rows []Row, label string) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Proxy != label })
}

// Leaders returns the proxies of a group that are best by median, and those
// whose range overlaps that one's.
func Leaders(in []Row, labels []string, m Measure) []string {
	in = Live(in)
	var best Spread
	spreads := make(map[string]Spread)
	for _, l := range labels {
		rows := of(in, l)
		s := m.Spread(rows)
		if s.N == 0 || failing(rows) {
			continue
		}
		spreads[l] = s
		if best.N == 0 || m.better(s.Median, best.Median) {
			best = s
		}
	}
	var leaders []string
	for _, l := range labels {
		if s, ok := spreads[l]; ok && s.Overlap(best) {
			leaders = append(leaders, l)
		}
	}
	return leaders
}
