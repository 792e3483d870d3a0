package result

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// group holds the runs of one proxy in one scenario.
type group struct {
	proxy  string
	rows   []Row
	failed int // runs without figures
}

// Tables writes a table for every scenario: medians over the repetitions, and
// CPU time and throughput as ratios to each of the proxies refs within the same
// repetition, with their range. An undisturbed run counts before a disturbed
// one of the same repetition; where only disturbed ones exist the line is
// marked with "!".
func Tables(w io.Writer, rows []Row, refs []string) error {
	for _, title := range names(rows, Row.Title) {
		if err := table(w, title, titled(rows, title), refs); err != nil {
			return err
		}
	}
	return nil
}

func names(rows []Row, of func(Row) string) []string {
	var list []string
	for _, r := range rows {
		if n := of(r); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

func table(w io.Writer, title string, rows []Row, refs []string) error {
	rows = Best(rows)
	proxies := names(rows, func(r Row) string { return r.Proxy })
	refs = slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return !slices.Contains(proxies, ref) })
	var groups []group
	for _, proxy := range proxies {
		g := group{proxy: proxy}
		for _, r := range of(rows, proxy) {
			if r.Failed != "" {
				g.failed++
				continue
			}
			g.rows = append(g.rows, r)
		}
		groups = append(groups, g)
	}
	rows = Live(rows)
	if len(rows) == 0 {
		fmt.Fprintf(w, "\n%s: all runs failed\n", title)
		return nil
	}
	fmt.Fprintf(w, "\n%s (%d repetitions of %.0f s)\n", title, repetitions(rows), rows[0].Seconds)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, header(rows[0], refs))
	for _, g := range groups {
		fmt.Fprintln(tw, g.line(rows, refs))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// Title names what a run was about: the scenario and the network.
func (r Row) Title() string {
	if r.Link == "" {
		return r.Scenario
	}
	return r.Scenario + " over " + r.Link
}

// Best keeps one run of each proxy, scenario and repetition: one that did not
// fail if there is one, and of those the least disturbed one.
func Best(rows []Row) []Row {
	var best []Row
	for _, r := range rows {
		same := func(b Row) bool { return b.Proxy == r.Proxy && b.Title() == r.Title() && b.Rep == r.Rep }
		switch i := slices.IndexFunc(best, same); {
		case i < 0:
			best = append(best, r)
		case r.Failed != "":
		case best[i].Failed != "" || r.Foreign+r.Steal < best[i].Foreign+best[i].Steal:
			best[i] = r
		}
	}
	return best
}

func repetitions(rows []Row) int {
	return len(names(rows, func(r Row) string { return fmt.Sprint(r.Rep) }))
}

func header(r Row, refs []string) string {
	cells := []string{"proxy", "req/s", "MB/s", "CPU " + r.Unit(), "own " + r.Unit(), "s/GB"}
	for _, ref := range refs {
		cells = append(cells, "CPU/"+ref, "own/"+ref, "rate/"+ref)
	}
	cells = append(cells, "p50 us", "p99 us", "p99.9 us", "load", "pace", "peak MB", "KB/conn", "calls", "cli", "srv", "errors", "")
	return strings.Join(cells, "\t") + "\t"
}

func (g group) line(all []Row, refs []string) string {
	median := func(of func(*Row) float64) Spread {
		var v []float64
		for i := range g.rows {
			v = append(v, of(&g.rows[i]))
		}
		return NewSpread(v)
	}
	cells := []string{
		g.proxy,
		cell(median(func(r *Row) float64 { return float64(r.Requests) / r.Seconds }), 0),
		cell(median(func(r *Row) float64 { return float64(r.Bytes) / r.Seconds / 1e6 }), 1),
		cell(median(func(r *Row) float64 { return r.PerUnit(r.ProxyBusy) }), 3),
		cell(median(func(r *Row) float64 { return r.PerUnit(r.ProxyOwn) }), 3),
		cell(median(func(r *Row) float64 { return r.PerGB(r.ProxyBusy) }), 3),
	}
	for _, ref := range refs {
		cells = append(cells, g.ratio(all, ref, cpuPerUnit), g.ratio(all, ref, ownPerUnit), g.ratio(all, ref, rate))
	}
	cells = append(cells,
		cell(median(func(r *Row) float64 { return r.P50 }), 0),
		cell(median(func(r *Row) float64 { return r.P99 }), 0),
		cell(median(func(r *Row) float64 { return r.P999 }), 0),
		cell(median(func(r *Row) float64 { return r.ProxyLoad }), 2),
		strings.Join(names(g.rows, func(r Row) string { return r.Pace }), "/"),
		cell(median(func(r *Row) float64 { return float64(r.MemoryPeak) / (1 << 20) }), 1),
		cell(median(func(r *Row) float64 { return r.MemoryPerConn() / 1024 }), 1),
		cell(median(calls), 1),
		cell(median(func(r *Row) float64 { return r.PerUnit(r.ClientOwn) }), 2),
		cell(median(func(r *Row) float64 { return r.PerUnit(r.OriginOwn) }), 2),
		fmt.Sprint(g.errors()),
		g.mark(),
	)
	return strings.Join(cells, "\t") + "\t"
}

func cpuPerUnit(r *Row) float64 { return r.PerUnit(r.ProxyBusy) }

func ownPerUnit(r *Row) float64 { return r.PerUnit(r.ProxyOwn) }

func rate(r *Row) float64 {
	if r.Requests > 0 {
		return float64(r.Requests) / r.Seconds
	}
	return float64(r.Bytes) / r.Seconds
}

func calls(r *Row) float64 {
	if r.Syscalls == 0 {
		return math.NaN()
	}
	return r.Syscalls
}

// Ratio returns how a figure of the rows compares to that of the proxy ref in
// the same repetition.
func Ratio(rows, all []Row, ref string, of func(*Row) float64) Spread {
	var v []float64
	for i := range rows {
		for j := range all {
			if all[j].Proxy == ref && all[j].Rep == rows[i].Rep && all[j].Title() == rows[i].Title() {
				v = append(v, of(&rows[i])/of(&all[j]))
			}
		}
	}
	return NewSpread(v)
}

func (g group) ratio(all []Row, ref string, of func(*Row) float64) string {
	s := Ratio(g.rows, all, ref, of)
	if s.N == 0 {
		return "-"
	}
	return s.String()
}

func (g group) errors() int64 {
	var n int64
	for _, r := range g.rows {
		n += r.Errors
	}
	return n
}

// mark tells how many of the runs were disturbed or failed.
func (g group) mark() string {
	n := 0
	for _, r := range g.rows {
		if r.Disturbed {
			n++
		}
	}
	var words []string
	if n > 0 {
		words = append(words, fmt.Sprintf("! %d disturbed", n))
	}
	if g.failed > 0 {
		words = append(words, fmt.Sprintf("! %d failed", g.failed))
	}
	return strings.Join(words, ", ")
}

func cell(s Spread, decimals int) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, s.Median)
}
