package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"3proxyd/bench/scenario"
)

// Side is one of two things compared: a proxy in the runs of a file.
type Side struct {
	Rows  []Row
	Label string
}

// Change is how a figure differs from side A to side B.
type Change struct {
	Title   string
	Measure Measure
	// Ratio is B's figure to A's.
	Ratio Spread
	// Overlap tells whether the ranges of both sides overlap.
	Overlap bool
	// Ref is the proxy to whose figure both were put in relation first; "" for
	// none.
	Ref string
}

// Compare returns the changes from a to b in the scenarios both have. With
// sameRuns the sides are proxies of one file and are compared within each
// repetition. Else each figure is taken as the ratio to the first of refs that
// was measured in both files, in the same repetition, since machines drift.
func Compare(a, b Side, refs []string, sameRuns bool) []Change {
	a.Rows, b.Rows = Live(Best(a.Rows)), Live(Best(b.Rows))
	var changes []Change
	for _, title := range names(of(a.Rows, a.Label), Row.Title) {
		x := Side{titled(a.Rows, title), a.Label}
		y := Side{titled(b.Rows, title), b.Label}
		sc, err := scenario.Parse(x.Rows[0].Scenario)
		if err != nil || len(of(y.Rows, y.Label)) == 0 {
			continue
		}
		for _, m := range Measures {
			if !m.Applies(sc) {
				continue
			}
			c := Change{Title: title, Measure: m}
			if sameRuns {
				c.within(x, y)
			} else {
				c.across(x, y, refs)
			}
			if c.Ratio.N > 0 {
				changes = append(changes, c)
			}
		}
	}
	return changes
}

func (c *Change) within(a, b Side) {
	x, y := of(a.Rows, a.Label), of(b.Rows, b.Label)
	c.Ratio = Ratio(y, a.Rows, a.Label, c.Measure.Of)
	c.Overlap = c.Measure.Spread(x).Overlap(c.Measure.Spread(y))
}

func (c *Change) across(a, b Side, refs []string) {
	x, y := c.Measure.Spread(of(a.Rows, a.Label)), c.Measure.Spread(of(b.Rows, b.Label))
	for _, ref := range refs {
		p := Ratio(of(a.Rows, a.Label), a.Rows, ref, c.Measure.Of)
		q := Ratio(of(b.Rows, b.Label), b.Rows, ref, c.Measure.Of)
		if p.N > 0 && q.N > 0 {
			x, y, c.Ref = p, q, ref
			break
		}
	}
	c.Overlap = x.Overlap(y)
	if x.N == 0 || y.N == 0 || x.Min <= 0 {
		return
	}
	c.Ratio = Spread{Median: y.Median / x.Median, Min: y.Min / x.Max, Max: y.Max / x.Min, N: min(x.N, y.N)}
}

// Loss tells whether the change is for the worse by more than limit, which is a
// ratio: above 1 where less is better, below 1 where more is. Sides whose
// ranges overlap count as equal. A limit of 0 finds no loss.
func (c Change) Loss(limit float64) bool {
	if limit == 0 || c.Overlap {
		return false
	}
	return c.Measure.better(limit, c.Ratio.Median)
}

// Changes writes a line for each scenario and returns the number of losses over
// the limits, which are by the measures' names.
func Changes(w io.Writer, changes []Change, limits map[string]float64) (losses int, err error) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := []string{"scenario"}
	for _, m := range Measures {
		line = append(line, m.Name)
	}
	fmt.Fprintln(tw, strings.Join(append(line, "relative to"), "\t"))
	var titles []string
	for _, c := range changes {
		if !slices.Contains(titles, c.Title) {
			titles = append(titles, c.Title)
		}
	}
	for _, title := range titles {
		line, ref := []string{title}, "-"
		for _, m := range Measures {
			cell := ""
			for _, c := range changes {
				if c.Title != title || c.Measure.Name != m.Name {
					continue
				}
				cell = c.Ratio.String()
				if c.Ref != "" {
					ref = c.Ref
				}
				switch {
				case c.Loss(limits[m.Name]):
					cell += " LOSS"
					losses++
				case c.Overlap:
					cell += " ="
				}
			}
			line = append(line, cell)
		}
		fmt.Fprintln(tw, strings.Join(append(line, ref), "\t"))
	}
	if err := tw.Flush(); err != nil {
		return losses, fmt.Errorf("write comparison: %w", err)
	}
	return losses, nil
}
