package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"3proxyd/bench/result"
)

// compareCommand compares two builds: the same proxy in two files, or two
// proxies in one. A loss over a limit is an error.
func compareCommand(args []string) error {
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	a := f.String("a", "3proxyd", "the proxy that is compared to, in A.csv")
	b := f.String("b", "", "the proxy that is judged, in B.csv or, without one, in A.csv (default: that of --a)")
	refs := f.String("ref", defaultRefs, "proxies measured in both files: figures are compared in relation to the first that is there")
	limits := map[string]*float64{
		result.Throughput.Name: f.Float64("throughput", 0.95, "ratio below which throughput is a loss; 0 for no limit"),
		result.CPU.Name:        f.Float64("cpu", 1.05, "ratio above which CPU time is a loss; 0 for no limit"),
		result.Latency.Name:    f.Float64("p99", 1.25, "ratio above which p99 latency is a loss; 0 for no limit"),
		result.Calls.Name:      f.Float64("calls", 1.05, "ratio above which system calls for a request are a loss; 0 for no limit"),
		result.Memory.Name:     f.Float64("memory", 1.1, "ratio above which memory for a connection is a loss; 0 for no limit"),
	}
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: bench compare [OPTIONS] A.csv [B.csv]: ratios of B to A; exits with 1 on a loss over a limit")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	changes, err := compareFiles(f.Args(), *a, *b, strings.Split(*refs, ","))
	if err != nil {
		return err
	}
	values := make(map[string]float64)
	for name, v := range limits {
		values[name] = *v
	}
	losses, err := result.Changes(os.Stdout, changes, values)
	if err != nil {
		return err
	}
	if losses > 0 {
		return fmt.Errorf("%d losses over the limits", losses)
	}
	return nil
}

func compareFiles(files []string, a, b string, refs []string) ([]result.Change, error) {
	if b == "" {
		b = a
	}
	if len(files) < 1 || len(files) > 2 || len(files) == 1 && a == b {
		return nil, errors.New("expected two CSV files, or one and two proxies (--a, --b)")
	}
	before, err := readCSV(files[0])
	if err != nil {
		return nil, err
	}
	after := before
	if len(files) == 2 {
		if after, err = readCSV(files[1]); err != nil {
			return nil, err
		}
	}
	changes := result.Compare(result.Side{Rows: before, Label: a}, result.Side{Rows: after, Label: b}, refs, len(files) == 1)
	if len(changes) == 0 {
		return nil, fmt.Errorf("no scenario has both %s and %s", a, b)
	}
	return changes, nil
}
