package config

import (
	"fmt"
	"sort"
	"strings"
)

// Limits of what is reported: a file that is not a configuration at all must
// not bury the first, telling errors.
const (
	maxErrors   = 100
	maxWarnings = 200
)

// reported is a diagnostic and the number of the command it belongs to, by
// which diagnostics found after the run are sorted into their place.
type reported struct {
	Diagnostic
	seq int
}

// diagnostics collects what is found. After maxErrors errors full is true and
// the run should end.
type diagnostics struct {
	list     []reported
	errors   int
	warnings int
	full     bool
}

func (d *diagnostics) add(seq int, pos Pos, sev Severity, text string) {
	if sev == Warning {
		d.addWarning(seq, pos, text)
		return
	}
	if d.full {
		return
	}
	if d.errors == maxErrors {
		d.full = true
		text = "too many errors"
	}
	d.errors++
	d.list = append(d.list, reported{Diagnostic{pos, Error, text}, seq})
}

func (d *diagnostics) addWarning(seq int, pos Pos, text string) {
	switch {
	case d.warnings > maxWarnings:
		return
	case d.warnings == maxWarnings:
		text = "too many warnings; the rest is not shown"
	}
	d.warnings++
	d.list = append(d.list, reported{Diagnostic{pos, Warning, text}, seq})
}

// sorted returns the diagnostics in the order of the commands they belong to.
func (d *diagnostics) sorted() []Diagnostic {
	sort.SliceStable(d.list, func(i, j int) bool { return d.list[i].seq < d.list[j].seq })
	out := make([]Diagnostic, len(d.list))
	for i, r := range d.list {
		out[i] = r.Diagnostic
	}
	return out
}

// show quotes text of the file for a message, cut to a length that fits a
// terminal and without what may be a password.
func show(s string) string {
	const most = 64
	s = hideSecret(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}

// nearest returns the candidate closest to s, or "" when none is close enough
// to be a likely slip of the keyboard.
func nearest(s string, candidates []string) string {
	if len(s) > 64 {
		return ""
	}
	best, limit := "", min(2, len(s)/2)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c), limit); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// distance is the number of single-byte insertions, deletions and
// substitutions between a and b, or limit when it is not smaller than that.
func distance(a, b string, limit int) int {
	if abs(len(a)-len(b)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// didYouMean returns "; did you mean ...?" or "".
func didYouMean(s string, candidates []string) string {
	n := nearest(s, candidates)
	if n == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", n)
}
