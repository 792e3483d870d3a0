// Package plots draws what runs measured: for each mode and measure a picture
// with one panel for each load and one bar for each proxy, as SVG and as PNG.
package plots

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// kind is one kind of picture.
type kind struct {
	name, title string
	measure     result.Measure
	// value returns what a bar shows, far what its whisker reaches to if that
	// is not the end of the values' range, and text what is written beside it.
	bar func(rows []result.Row) bar
}

// bar is a value with a line from low to high over it.
type bar struct {
	value, low, high float64
	text             string
}

// Draw writes the pictures into the directory, made if needed, and returns the
// names of the SVG files. Throughput is shown as the ratio to the first of refs
// that was measured in the same scenario, or else to the first proxy.
func Draw(dir string, rows []result.Row, refs []string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory for pictures: %w", err)
	}
	rows = result.Live(result.Best(rows))
	var files []string
	for _, link := range links(rows) {
		for _, mode := range scenario.Modes {
			for _, k := range kinds {
				p := newPicture(k, mode, link, rows, refs)
				if p == nil {
					continue
				}
				name := k.name + "-" + result.PlotKey(mode, link)
				if err := p.write(filepath.Join(dir, name)); err != nil {
					return nil, fmt.Errorf("picture %s: %w", name, err)
				}
				files = append(files, name+".svg")
			}
		}
	}
	return files, nil
}

func links(rows []result.Row) []string {
	var all []string
	for _, r := range rows {
		if !slices.Contains(all, r.Link) {
			all = append(all, r.Link)
		}
	}
	return all
}

var kinds = []kind{
	{"throughput", "Throughput, ratio to a reference: more is better", result.Throughput, nil},
	{"cpu", "CPU time of the proxy's CPUs: less is better", result.CPU, cpuBar},
	{"latency", "Latency in ms, bar p50, line to p99: less is better", result.Latency, latencyBar},
	{"memory", "Memory in KB for each connection: less is better", result.Memory, memoryBar},
}

func spreadBar(s result.Spread, format string) bar {
	return bar{s.Median, s.Min, s.Max, fmt.Sprintf(format, s.Median)}
}

func cpuBar(rows []result.Row) bar {
	s := result.CPU.Spread(rows)
	if rows[0].Requests == 0 {
		return spreadBar(s, "%.3f")
	}
	return spreadBar(s, "%.1f")
}

func memoryBar(rows []result.Row) bar {
	s := result.Memory.Spread(rows)
	// A proxy that gave memory back while connections came shows none.
	s.Median, s.Min, s.Max = max(s.Median/1024, 0), max(s.Min/1024, 0), max(s.Max/1024, 0)
	return spreadBar(s, "%.1f")
}

func latencyBar(rows []result.Row) bar {
	var mid []float64
	for _, r := range rows {
		mid = append(mid, r.P50)
	}
	p50, p99 := result.NewSpread(mid).Median/1e3, result.Latency.Spread(rows).Median/1e3
	return bar{p50, p50, p99, fmt.Sprintf("%.2f / %.2f", p50, p99)}
}

// panel shows one scenario.
type panel struct {
	title  string
	labels []string
	groups []string
	bars   []bar
}

// picture is a set of panels.
type picture struct {
	title  string
	panels []panel
}

// newPicture returns nil when there is nothing to show.
func newPicture(k kind, mode scenario.Mode, link string, rows []result.Row, refs []string) *picture {
	p := &picture{title: string(mode) + ": " + k.title}
	if link != "" {
		p.title += ", over " + link
	}
	done := make(map[string]bool)
	for _, r := range rows {
		sc, err := scenario.Parse(r.Scenario)
		if err != nil || r.Link != link || sc.Mode != mode || done[r.Scenario] || !k.measure.Applies(sc) {
			continue
		}
		done[r.Scenario] = true
		in := slices.DeleteFunc(slices.Clone(rows), func(o result.Row) bool { return o.Title() != r.Title() })
		if pn := newPanel(k, in, refs); len(pn.bars) > 0 {
			p.panels = append(p.panels, pn)
		}
	}
	if len(p.panels) == 0 {
		return nil
	}
	return p
}

func newPanel(k kind, in []result.Row, refs []string) panel {
	_, load, _ := strings.Cut(in[0].Scenario, "-")
	pn := panel{title: load}
	switch k.name {
	case "throughput":
		ref := reference(in, refs)
		pn.title += ", ratio to " + ref
		k.bar = func(rows []result.Row) bar {
			return spreadBar(result.Ratio(rows, in, ref, k.measure.Of), "%.2f")
		}
	case "cpu":
		pn.title += ", " + in[0].Unit()
	}
	for _, group := range []string{"copy", "splice"} {
		for _, r := range in {
			if r.Group != group || slices.Contains(pn.labels, r.Proxy) {
				continue
			}
			rows := slices.DeleteFunc(slices.Clone(in), func(o result.Row) bool { return o.Proxy != r.Proxy })
			if k.measure.Spread(rows).N == 0 {
				continue
			}
			pn.labels, pn.groups = append(pn.labels, r.Proxy), append(pn.groups, group)
			pn.bars = append(pn.bars, k.bar(rows))
		}
	}
	return pn
}

// reference returns the proxy that others are compared to.
func reference(in []result.Row, refs []string) string {
	for _, ref := range refs {
		if slices.ContainsFunc(in, func(r result.Row) bool { return r.Proxy == ref }) {
			return ref
		}
	}
	return in[0].Proxy
}
