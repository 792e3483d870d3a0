package scenario

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// sets are the named groups of scenarios.
var sets = map[string][]string{
	"quick": {"relay-ka-1k", "relay-ka-1k@1000", "relay-ka-1m", "relay-stream1-down", "http-ka-1k"},
	"gate": {
		"relay-ka-1k", "relay-ka-1k@1000", "relay-ka-1m", "relay-close-1k", "relay-stream1-down",
		"relay-idle-2000", "http-ka-1k", "socks-close-1k",
	},
	"short": {
		"relay-ka-1k", "relay-ka-1k@1000", "relay-ka-1m", "relay-close-1k", "relay-stream1-down",
		"relay-idle-2000", "relay-mix",
		"http-ka-1k", "http-ka-1m", "http-close-1k",
		"connect-ka-1k", "connect-idle-2000",
		"socks-ka-1k", "socks-close-1k",
	},
	"published": slices.Concat(
		inModeLoads(Relay, requestLoads, streamLoads, manyLoads),
		inModeLoads(Connect, requestLoads, streamLoads, []string{"idle-2000"}),
		inModeLoads(Socks, requestLoads, streamLoads),
		inModeLoads(HTTP, requestLoads, streamLoads, manyLoads),
	),
	"relay":   inMode(Relay),
	"connect": inMode(Connect),
	"socks":   inMode(Socks),
	"http":    inMode(HTTP),
	"all":     slices.Concat(inMode(Relay), inMode(Connect), inMode(Socks), inMode(HTTP)),
}

// The loads of the full suite.
var (
	requestLoads = []string{"ka-1k", "ka-1k@1000", "ka-1k@4000", "close-1k"}
	streamLoads  = []string{"stream1", "stream1-down", "stream16", "stream16-down"}
	// manyLoads are those of large answers and of many connections.
	manyLoads = []string{"ka-1m", "ka-50k-1000", "ka-50k-2000", "ka-2k-50k-2000", "idle-2000", "mix", "mix-3k"}
)

// inMode returns the full suite of one mode.
func inMode(m Mode) []string { return inModeLoads(m, requestLoads, streamLoads, manyLoads) }

func inModeLoads(m Mode, loads ...[]string) []string {
	var names []string
	for _, load := range slices.Concat(loads...) {
		names = append(names, string(m)+"-"+load)
	}
	return names
}

// Sets returns the names of the groups that ParseList knows.
func Sets() []string {
	var names []string
	for n := range sets {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// ParseList reads names of scenarios and groups separated by commas.
func ParseList(list string) ([]Scenario, error) {
	var out []Scenario
	for _, word := range strings.Split(list, ",") {
		names, ok := sets[word]
		if !ok {
			names = []string{word}
		}
		for _, n := range names {
			s, err := Parse(n)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no scenario given")
	}
	return out, nil
}
