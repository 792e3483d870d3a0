package config

import (
	"fmt"
	"math/bits"
	"sort"
	"strconv"
	"strings"
)

// String writes the rule as a line of the configuration that means the same.
func (r Rule) String() string {
	verb := "deny"
	if r.Allow {
		verb = "allow"
	}
	targets := textOf(r.Targets, IPRange.String)
	hosts := textOf(r.TargetHosts, HostPattern.String)
	words := []string{
		verb,
		strings.Join(r.Users, ","),
		textOf(r.Sources, IPRange.String),
		strings.Trim(targets+","+hosts, ","),
		textOf(r.Ports, PortRange.String),
		r.Operations.String(),
		weekdaysText(r.Weekdays),
		textOf(r.Times, TimeRange.String),
	}
	for len(words) > 1 && words[len(words)-1] == "" {
		words = words[:len(words)-1]
	}
	for i, w := range words {
		switch {
		case w == "":
			words[i] = "*"
		case strings.ContainsAny(w, " \t\"$#"):
			words[i] = `"` + strings.ReplaceAll(w, `"`, `""`) + `"`
		}
	}
	return strings.Join(words, " ")
}

func textOf[T any](list []T, text func(T) string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = text(v)
	}
	return strings.Join(words, ",")
}

// String returns "ADDRESS" or "ADDRESS-ADDRESS".
func (r IPRange) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// String returns the name with its "*".
func (p HostPattern) String() string {
	text := p.Name
	if p.AnyPrefix {
		text = "*" + text
	}
	if p.AnySuffix {
		text += "*"
	}
	return text
}

// String returns "PORT" or "PORT-PORT".
func (r PortRange) String() string {
	if r.From == r.To {
		return strconv.Itoa(int(r.From))
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// String returns "HH:MM:SS-HH:MM:SS".
func (r TimeRange) String() string { return clock(r.From) + "-" + clock(r.To) }

func clock(seconds int) string {
	return fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// String lists the names of the operations, those of several first.
func (o Operations) String() string {
	names := make([]string, 0, len(operationNames))
	for name := range operationNames {
		names = append(names, name)
	}
	size := func(name string) int { return bits.OnesCount32(uint32(operationNames[name])) }
	sort.Slice(names, func(i, j int) bool {
		if a, b := size(names[i]), size(names[j]); a != b {
			return a > b
		}
		return names[i] < names[j]
	})
	var found []string
	for _, name := range names {
		if op := operationNames[name]; o&op == op {
			found = append(found, name)
			o &^= op
		}
	}
	return strings.Join(found, ",")
}

func weekdaysText(days uint8) string {
	var found []string
	for day := range 7 {
		if days&(1<<day) != 0 {
			found = append(found, strconv.Itoa(day))
		}
	}
	return strings.Join(found, ",")
}
