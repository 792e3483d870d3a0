package result

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"3proxyd/bench/scenario"
)

// GrowthLimit is how much more CPU time a request may take where there are many
// connections or rules.
const GrowthLimit = 1.15

// fewRequests are a second's requests up to which a run shows what a proxy costs
// that has little to do.
const fewRequests = 100

// RulesLabel names a 3proxyd with an access list of n rules.
func RulesLabel(n int) string { return fmt.Sprintf("3proxyd-%drules", n) }

// rulesOf returns the number of rules that RulesLabel put into a label; 0 without.
func rulesOf(label string) int {
	word, ok := strings.CutSuffix(label, "rules")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(word[strings.LastIndexByte(word, '-')+1:])
	if err != nil {
		return 0
	}
	return n
}

// step is a load at one size of what grows.
type step struct {
	size int
	rows []Row
}

// series is a load at several sizes.
type series struct {
	name  string
	steps []step
}

// Growth writes the page of the growth tests: CPU time for a request with few and
// many connections and rules, and what the proxy costs with little to do.
func Growth(w io.Writer, rows []Row, source string) error {
	rows = Live(Best(rows))
	b := &strings.Builder{}
	fmt.Fprintf(b, "# Growth\n\nMade by `go run ./bench report` from %s, which `go run ./bench growth` writes.\n\n", source)
	if len(rows) == 0 {
		b.WriteString("No runs.\n")
	} else {
		facts(b, rows)
		grown(b, "Connections", "connections", allSeries(rows, connectionsOf),
			"A closed loop of ten connections, all others idle, and 1,000 requests a second for which all connections take turns.")
		grown(b, "Rules", "rules", allSeries(rows, rulesIn),
			"The access list is asked for every connection (close) or every request (http-ka). Only its last rule matches.")
		quiet(b, rows)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// connectionsOf returns the name and size of a run whose number of connections
// grows.
func connectionsOf(r Row, sc scenario.Scenario) (name string, size int, ok bool) {
	if sc.Kind != scenario.KeepAlive || rulesOf(r.Proxy) > 0 || sc.Rate > 0 && sc.Rate <= fewRequests {
		return "", 0, false
	}
	name = string(sc.Mode) + ", closed loop"
	if sc.Rate > 0 {
		name = fmt.Sprintf("%s, %d requests/s", sc.Mode, sc.Rate)
	}
	return name, sc.Open(), true
}

// rulesIn returns the name and size of a run whose number of rules grows.
func rulesIn(r Row, sc scenario.Scenario) (name string, size int, ok bool) {
	n := rulesOf(r.Proxy)
	return sc.Name, n, n > 0
}

func allSeries(rows []Row, of func(Row, scenario.Scenario) (string, int, bool)) []series {
	var all []series
	for _, r := range rows {
		sc, err := scenario.Parse(r.Scenario)
		if err != nil {
			continue
		}
		name, size, ok := of(r, sc)
		if !ok {
			continue
		}
		i := slices.IndexFunc(all, func(s series) bool { return s.name == name })
		if i < 0 {
			i = len(all)
			all = append(all, series{name: name})
		}
		all[i].add(size, r)
	}
	return all
}

func (s *series) add(size int, r Row) {
	i, found := slices.BinarySearchFunc(s.steps, size, func(st step, size int) int { return st.size - size })
	if !found {
		s.steps = slices.Insert(s.steps, i, step{size: size})
	}
	s.steps[i].rows = append(s.steps[i].rows, r)
}

// to returns how a figure compares to that of another step in the same repetition.
func (s step) to(base step, figure func(*Row) float64) Spread {
	var v []float64
	for i := range s.rows {
		for j := range base.rows {
			if s.rows[i].Rep == base.rows[j].Rep {
				v = append(v, figure(&s.rows[i])/figure(&base.rows[j]))
			}
		}
	}
	return NewSpread(v)
}

func (s step) median(figure func(*Row) float64) float64 {
	var v []float64
	for i := range s.rows {
		v = append(v, figure(&s.rows[i]))
	}
	return NewSpread(v).Median
}

func grown(b *strings.Builder, heading, what string, all []series, about string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n%s CPU time in microseconds for a request: of the proxy's CPU, and of its processes alone. "+
		"Ratios are to the first line of a load, in the same repetition: median and range; more than %.2f is set in bold.\n\n", heading, about, GrowthLimit)
	fmt.Fprintf(b, "| load | %s | requests/s | CPU | ratio | own | ratio | p99, us | errors |\n|---|---:|---:|---:|---|---:|---|---:|---:|\n", what)
	for _, s := range all {
		for i, st := range s.steps {
			name := s.name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(b, "| %s | %d | %.0f | %.1f | %s | %.1f | %s | %.0f | %d |\n", name, st.size, st.median(rate),
				st.median(cpuPerUnit), judged(st, s.steps[0], cpuPerUnit, i), st.median(ownPerUnit), judged(st, s.steps[0], ownPerUnit, i),
				st.median(func(r *Row) float64 { return r.P99 }), group{rows: st.rows}.errors())
		}
	}
	b.WriteString("\n")
}

func judged(s, base step, figure func(*Row) float64, i int) string {
	if i == 0 {
		return ""
	}
	ratio := s.to(base, figure)
	if ratio.Median > GrowthLimit {
		return "**" + ratio.String() + "**"
	}
	return ratio.String()
}

// quiet writes what the proxy's processes cost with little or nothing to do.
func quiet(b *strings.Builder, rows []Row) {
	var lines []string
	for _, title := range names(rows, Row.Title) {
		in := titled(rows, title)
		sc, err := scenario.Parse(in[0].Scenario)
		if err != nil || sc.Kind != scenario.Idle && (sc.Rate == 0 || sc.Rate > fewRequests) {
			continue
		}
		s := step{rows: in}
		share := s.median(func(r *Row) float64 { return 100 * r.ProxyOwn / r.Seconds })
		each := "-"
		if sc.Requests() {
			each = fmt.Sprintf("%.0f", s.median(ownPerUnit))
		}
		lines = append(lines, fmt.Sprintf("| %s | %.0f | %.3f | %s |\n", title, s.median(func(r *Row) float64 { return r.Seconds }), share, each))
	}
	if len(lines) == 0 {
		return
	}
	b.WriteString("## Little to do\n\nCPU time of the daemon's processes, supervisor and one worker, with ten connections open.\n\n" +
		"| load | seconds | % of a CPU | us/request |\n|---|---:|---:|---:|\n" + strings.Join(lines, "") + "\n")
}
