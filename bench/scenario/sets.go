package scenario

import (
	"fmt"
	"sort"
	"strings"
)

// sets are the named groups of scenarios.
var sets = map[string][]string{
	"quick": {
		"relay-ka-1k", "relay-ka-1k@1000", "relay-ka-1m", "relay-close-1k",
		"relay-stream1-down",
	},
	"relay": {
		"relay-ka-1k", "relay-ka-1k@1000", "relay-ka-1k@4000", "relay-ka-1m",
		"relay-close-1k", "relay-ka-50k-2000", "relay-ka-2k-50k-2000",
		"relay-stream1", "relay-stream1-down", "relay-stream16", "relay-stream16-down",
		"relay-idle-2000",
	},
	"all": allModes(
		"ka-1k", "ka-1k@1000", "ka-1k@4000", "ka-1m", "close-1k", "ka-50k-2000",
		"ka-2k-50k-2000", "stream1", "stream1-down", "stream16", "stream16-down",
		"idle-2000",
	),
}

func allModes(loads ...string) []string {
	var names []string
	for _, m := range Modes {
		for _, l := range loads {
			names = append(names, string(m)+"-"+l)
		}
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
