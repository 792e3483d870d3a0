package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/result"
	"3proxyd/bench/scenario"
)

// The growth tests' results and their page.
const (
	growthCSV  = "growth.csv"
	growthFile = "GROWTH.md"
)

// What grows.
const (
	growsConns = "conns"
	growsRules = "rules"
	growsRate  = "rate"
)

// growth is what the growth command measures.
type growth struct {
	options
	conns, rules int
	only         string
}

// growthCommand measures 3proxyd with few and many connections, few and many
// rules, and with little or nothing to do.
func growthCommand(ctx context.Context, args []string) error {
	g, err := parseGrowth(args)
	if err != nil {
		return err
	}
	subjects, err := g.subjects()
	if err != nil {
		return err
	}
	err = g.carryOut(ctx, subjects, func(l *lab.Lab) ([]job, error) { return g.plan(subjects, l.Files) })
	if err != nil {
		return err
	}
	rows, err := readCSV(g.out)
	if err != nil {
		return err
	}
	return result.Growth(os.Stdout, rows, filepath.Base(g.out))
}

func parseGrowth(args []string) (*growth, error) {
	g := &growth{options: options{bins: pairs{}, services: pairs{}, lines: pairs{}, noTrace: true, noPlots: true, linkBy: byAuto, refs: "3proxyd"}}
	f := flag.NewFlagSet("growth", flag.ContinueOnError)
	f.StringVar(&g.out, "out", filepath.Join("bench", "data", growthCSV), "the CSV file; if it exists, the runs it lacks are made")
	f.StringVar(&g.only, "only", "", "what grows: conns, rules or rate (default: each in turn)")
	f.IntVar(&g.conns, "conns", 10_000, "connections at most; fewer where descriptors are short")
	f.IntVar(&g.rules, "rules", 10_000, "rules at most")
	f.StringVar(&g.cpus, "cpus", "", "CPUs of the roles, such as cli=0,prx=1,srv=0 (default: chosen from the machine)")
	f.Var(g.bins, "bin", "3proxyd=PATH: the binary, built from the source if not given")
	f.IntVar(&g.reps, "reps", 3, "repetitions")
	f.Float64Var(&g.secs, "secs", 3, "seconds of a measurement; of one at a fixed rate three times as much")
	f.DurationVar(&g.warm, "warm", time.Second, "time under load before a measurement")
	f.IntVar(&g.attempts, "attempts", 2, "runs made at most where other processes disturb")
	f.DurationVar(&g.quiet, "quiet", 10*time.Second, "how long to wait before a run for other processes to rest")
	f.Float64Var(&g.foreign, "foreign", 0.02, "share of the roles' CPUs that other processes may take")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case g.reps < 1 || g.attempts < 1:
		return nil, errors.New("--reps and --attempts must be 1 or more")
	case !(g.secs >= 0.1 && g.secs <= 3600):
		return nil, errors.New("--secs must be from 0.1 to 3600")
	case g.conns < manyConns || g.conns > scenario.MaxConns:
		return nil, fmt.Errorf("--conns must be from %d to %d", manyConns, scenario.MaxConns)
	case g.rules < 1 || g.rules > 100_000:
		return nil, errors.New("--rules must be from 1 to 100000")
	case !slices.Contains([]string{"", growsConns, growsRules, growsRate}, g.only):
		return nil, fmt.Errorf("--only %q is not one of conns, rules, rate", g.only)
	}
	g.idleSecs = 3 * g.secs
	g.addSubjects()
	return g, nil
}

// addSubjects makes the proxies that differ by their rules.
func (g *growth) addSubjects() {
	labels := []string{"3proxyd"}
	for _, n := range []int{1, g.rules} {
		label := result.RulesLabel(n)
		labels = append(labels, label)
		g.lines[label] = rules(n)
	}
	g.proxies = strings.Join(labels, ",")
}

// rules returns the lines of an access list of n rules, of which none but the
// last matches in the lab: sources and targets of their own, many targets for the
// clients' network, and many sources that may not reach the origin.
func rules(n int) []string {
	lines := []string{"auth iponly"}
	for i := range n - 1 {
		a, b := i/250%250, i%250+1
		line := ""
		switch i % 4 {
		case 0:
			line = fmt.Sprintf("deny * 172.16.%d.%d,192.168.%d.%d/31", a, b, a, b)
		case 1:
			line = fmt.Sprintf("deny * * 198.18.%d.%d,*.site%d.example 80,443", a, b, i)
		case 2:
			line = fmt.Sprintf("deny * %s/24 203.0.%d.%d,host%d.example", lab.ClientAddr, a, b, i)
		case 3:
			line = fmt.Sprintf("deny * 172.24.%d.%d %s %d", a, b, lab.OriginAddrPort.Addr(), lab.OriginAddrPort.Port())
		}
		lines = append(lines, line)
	}
	return append(lines, "allow *")
}

// plan returns the runs. A worker needs two descriptors for a connection.
func (g *growth) plan(subjects []*subject, files int) ([]job, error) {
	most := min(g.conns, (files-500)/2/100*100)
	if most < manyConns {
		return nil, fmt.Errorf("%d descriptors are too few for %d connections", files, manyConns)
	}
	parts := []struct {
		what     string
		loads    []string
		subjects []*subject
	}{
		{growsConns, connLoads(most), subjects[:1]},
		{growsRules, ruleLoads, subjects[1:]},
		{growsRate, rateLoads, subjects[:1]},
	}
	var jobs []job
	for rep := range g.reps {
		for _, p := range parts {
			if g.only != "" && g.only != p.what {
				continue
			}
			scenarios, err := scenario.ParseList(strings.Join(p.loads, ","))
			if err != nil {
				return nil, err
			}
			for _, sc := range scenarios {
				for _, s := range p.subjects {
					jobs = append(jobs, job{rep: rep + 1, subject: s, sc: sc})
				}
			}
		}
	}
	return jobs, nil
}

// activeConns make requests in the closed loops, whatever else is open.
const activeConns = 10

// connLoads are closed loops of ten connections beside idle ones, and 1,000
// requests a second for which all connections take turns.
func connLoads(most int) []string {
	var names []string
	for _, mode := range []scenario.Mode{scenario.Relay, scenario.HTTP} {
		names = append(names, fmt.Sprintf("%s-ka-1k-%d", mode, activeConns))
		for _, n := range []int{manyConns, most} {
			names = append(names, fmt.Sprintf("%s-ka-1k-%d+%d", mode, activeConns, n-activeConns))
		}
		for _, n := range []int{activeConns, manyConns, most} {
			names = append(names, fmt.Sprintf("%s-ka-1k-%d@1000", mode, n))
		}
	}
	return names
}

// ruleLoads ask the rules for every connection or every request.
var ruleLoads = []string{"relay-close-1k", "connect-close-1k", "socks-close-1k", "http-ka-1k"}

// rateLoads leave the proxy little to do.
var rateLoads = []string{"relay-idle-10", "relay-ka-1k-10@1", "relay-ka-1k-10@100", "http-ka-1k-10@100"}
