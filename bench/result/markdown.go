package result

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"3proxyd/bench/scenario"
)

// Page is what a report says besides the figures.
type Page struct {
	// Plots is the directory of the pictures, relative to the report, and Files
	// are their names.
	Plots string
	Files []string
	// Sources are the names of the CSV files.
	Sources []string
}

// Markdown writes the report: what was measured on, how 3proxyd compares to the
// best peer in each scenario, and for each mode tables and pictures.
func Markdown(w io.Writer, rows []Row, page Page) error {
	b := &strings.Builder{}
	rows = Best(rows)
	head(b, rows, page)
	standings(b, rows)
	for _, link := range names(rows, func(r Row) string { return r.Link }) {
		for _, mode := range scenario.Modes {
			section(b, rows, mode, link, page)
		}
	}
	failures(b, rows)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func head(b *strings.Builder, rows []Row, page Page) {
	fmt.Fprintf(b, "# Results\n\nMade by `go run ./bench report` from %s. What the figures mean is in [README.md](README.md).\n\n", strings.Join(page.Sources, ", "))
	facts(b, rows)
}

// facts tells when, on what and with which versions the runs were made.
func facts(b *strings.Builder, rows []Row) {
	first, last := rows[0].Time, rows[0].Time
	for _, r := range rows {
		first, last = min(first, r.Time), max(last, r.Time)
	}
	fmt.Fprintf(b, "* %s to %s, %s, kernel %s, CPUs %s, %d repetitions of %s\n", first, last,
		list(rows, func(r Row) string { return r.Machine }), list(rows, func(r Row) string { return r.Kernel }),
		list(rows, func(r Row) string { return r.CPUs }), repetitions(rows),
		list(rows, func(r Row) string { return fmt.Sprintf("%.0f s", r.Seconds) }))
	n := 0
	for _, r := range rows {
		if r.Disturbed {
			n++
		}
	}
	fmt.Fprintf(b, "* %d runs, %d of them disturbed by other processes or the hypervisor\n", len(rows), n)
	for _, proxy := range names(rows, func(r Row) string { return r.Proxy }) {
		fmt.Fprintf(b, "* %s: %s\n", proxy, list(of(rows, proxy), func(r Row) string { return r.Version }))
	}
	b.WriteString("\n")
}

// list returns the different values that are not empty.
func list(rows []Row, of func(Row) string) string {
	words := slices.DeleteFunc(names(rows, of), func(s string) bool { return s == "" || s == "0 s" })
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// standings writes the tables of ratios to the best peer.
func standings(b *strings.Builder, rows []Row) {
	for _, label := range names(rows, func(r Row) string { return r.Proxy }) {
		if !Own(label) {
			continue
		}
		fmt.Fprintf(b, "## %s and the best peer\n\n", label)
		b.WriteString("Ratios of the figure to that of the best peer of the row, within the same repetition: median and range. " +
			"Where the ranges of both overlap they count as equal.\n\n")
		var lines []string
		counts := make(map[string]map[Standing]int)
		for _, title := range names(rows, Row.Title) {
			if line, ok := standing(rows, title, label, counts); ok {
				lines = append(lines, line)
			}
		}
		b.WriteString("| scenario |")
		for _, m := range Measures {
			fmt.Fprintf(b, " %s |", m.Name)
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(Measures)) + "\n")
		b.WriteString(strings.Join(lines, ""))
		b.WriteString("| **ahead, equal, behind** |")
		for _, m := range Measures {
			c := counts[m.Name]
			fmt.Fprintf(b, " %d, %d, %d |", c[Ahead], c[Equal], c[Behind])
		}
		b.WriteString("\n\n")
	}
}

func standing(rows []Row, title, label string, counts map[string]map[Standing]int) (line string, ok bool) {
	in := titled(rows, title)
	sc, err := scenario.Parse(in[0].Scenario)
	if err != nil || len(of(in, label)) == 0 {
		return "", false
	}
	cells := []string{title}
	for _, m := range Measures {
		v, judged := Judge(in, label, m)
		if !judged || !m.Applies(sc) {
			cells = append(cells, "")
			continue
		}
		ok = true
		if counts[m.Name] == nil {
			counts[m.Name] = make(map[Standing]int)
		}
		counts[m.Name][v.Standing]++
		cells = append(cells, fmt.Sprintf("%s %s %s", v.Ratio, v.Standing, preposition(v)))
	}
	return "| " + strings.Join(cells, " | ") + " |\n", ok
}

func preposition(v Verdict) string {
	switch v.Standing {
	case Ahead:
		return "of " + v.Peer
	case Equal:
		return "to " + v.Peer
	}
	return v.Peer
}

// String returns the median with its range.
func (s Spread) String() string {
	if s.N < 2 {
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f [%.2f-%.2f]", s.Median, s.Min, s.Max)
}

func titled(rows []Row, title string) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Title() != title })
}

// section writes the pictures and tables of one mode.
func section(b *strings.Builder, rows []Row, mode scenario.Mode, link string, page Page) {
	var in []Row
	for _, r := range rows {
		if r.Link == link && strings.HasPrefix(r.Scenario, string(mode)+"-") {
			in = append(in, r)
		}
	}
	if len(in) == 0 {
		return
	}
	title := string(mode)
	if link != "" {
		title += " over " + link
	}
	fmt.Fprintf(b, "## %s\n\n", title)
	for _, f := range page.Files {
		if strings.HasSuffix(f, "-"+PlotKey(mode, link)+".svg") {
			fmt.Fprintf(b, "![%s](%s)\n\n", strings.TrimSuffix(f, ".svg"), path.Join(page.Plots, f))
		}
	}
	for _, c := range []struct {
		heading string
		m       Measure
		cell    func([]Row, Spread) string
	}{
		{"Throughput in requests a second, or MB a second of streams; ᵖ ᶜ ˢ: the CPUs of the proxy, the client or the origin were busy 90% or more", Throughput, throughputCell},
		{"CPU time of the proxy's CPUs in microseconds for a request, or seconds for a GB of streams", CPU, cpuCell},
		{"Latency p50 / p99 in milliseconds", Latency, latencyCell},
		{"System calls for a request, under strace", Calls, func(_ []Row, s Spread) string { return fmt.Sprintf("%.1f", s.Median) }},
		{"Memory of the proxy's processes in KB for each connection, above what they have without any", Memory, memoryCell},
		{"Memory of all of the proxy's processes in MB (PSS) with few connections", PSS, pssCell},
	} {
		grid(b, in, c.heading, c.m, c.cell)
	}
}

// PlotKey is how a picture's name tells mode and link.
func PlotKey(mode scenario.Mode, link string) string {
	if link == "" {
		return string(mode)
	}
	return string(mode) + "-" + strings.NewReplacer(",", "_", " ", "_", "%", "pc").Replace(link)
}

// grid writes a table with a line for each proxy, copying ones before splicing
// ones, and a column for each load.
func grid(b *strings.Builder, rows []Row, heading string, m Measure, cell func([]Row, Spread) string) {
	var columns []string
	for _, name := range names(rows, func(r Row) string { return r.Scenario }) {
		if sc, err := scenario.Parse(name); err == nil && m.Applies(sc) {
			columns = append(columns, name)
		}
	}
	if len(columns) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n\n| |", heading)
	for _, name := range columns {
		fmt.Fprintf(b, " %s |", loadOf(rows, name))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, g := range []struct{ key, name string }{{"copy", "copying"}, {"splice", "splicing"}, {"", "no proxy"}} {
		labels := names(slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Group != g.key }), func(r Row) string { return r.Proxy })
		if len(labels) == 0 {
			continue
		}
		fmt.Fprintf(b, "| *%s* |%s\n", g.name, strings.Repeat(" |", len(columns)))
		for _, label := range labels {
			fmt.Fprintf(b, "| %s |", label)
			for _, name := range columns {
				fmt.Fprintf(b, " %s |", gridCell(rows, name, label, labels, m, cell))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
}

// loadOf names the load of a scenario, with the number of connections if that
// depends on the machine.
func loadOf(rows []Row, name string) string {
	_, load, _ := strings.Cut(name, "-")
	sc, err := scenario.Parse(name)
	if err != nil || !sc.AsMany {
		return load
	}
	conns := list(rows, func(r Row) string {
		if r.Scenario != name || r.Conns == 0 {
			return ""
		}
		return strconv.Itoa(r.Conns)
	})
	return fmt.Sprintf("%s (%s connections)", load, conns)
}

func gridCell(rows []Row, name, label string, group []string, m Measure, cell func([]Row, Spread) string) string {
	in := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Scenario != name })
	mine := of(in, label)
	if len(mine) == 0 {
		return ""
	}
	mine = Live(mine)
	s := m.Spread(mine)
	if s.N == 0 {
		return "failed"
	}
	text := cell(mine, s)
	if len(group) > 1 && slices.Contains(Leaders(in, group, m), label) {
		text = "**" + text + "**"
	}
	if failing(mine) {
		text += " errors"
	}
	return text
}

func throughputCell(rows []Row, s Spread) string {
	value := s.Median
	if rows[0].Requests == 0 {
		value /= 1e6
	}
	marks := strings.NewReplacer("prx", "ᵖ", "cli", "ᶜ", "srv", "ˢ", "+", "", "-", "")
	return fmt.Sprintf("%.0f%s", value, marks.Replace(rows[0].Pace))
}

func cpuCell(rows []Row, s Spread) string {
	if rows[0].Requests == 0 {
		return fmt.Sprintf("%.3f", s.Median)
	}
	return fmt.Sprintf("%.1f", s.Median)
}

func latencyCell(rows []Row, s Spread) string {
	var v []float64
	for _, r := range rows {
		v = append(v, r.P50)
	}
	return fmt.Sprintf("%.2f / %.2f", NewSpread(v).Median/1e3, s.Median/1e3)
}

func memoryCell(_ []Row, s Spread) string { return fmt.Sprintf("%.1f", s.Median/1024) }

func pssCell(_ []Row, s Spread) string { return fmt.Sprintf("%.1f", s.Median/(1<<20)) }

// failures lists what could not be measured.
func failures(b *strings.Builder, rows []Row) {
	var lines []string
	for _, r := range rows {
		switch {
		case r.Failed != "":
			lines = append(lines, fmt.Sprintf("* %s %s: %s\n", r.Title(), r.Proxy, oneLine(r.Failed)))
		case r.Errors > 0:
			lines = append(lines, fmt.Sprintf("* %s %s: errors %s in %d requests\n", r.Title(), r.Proxy, r.ErrorsBy, r.Requests))
		case failing([]Row{r}):
			lines = append(lines, fmt.Sprintf("* %s %s: %d requests were due and not begun, %d done\n", r.Title(), r.Proxy, r.Unserved, r.Requests))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "## Failures\n\n%s", strings.Join(lines, ""))
	}
}

func oneLine(text string) string {
	const limit = 300
	line := strings.Join(strings.Fields(text), " ")
	return line[:min(len(line), limit)]
}
