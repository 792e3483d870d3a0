package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// The defaults of the run command.
const (
	quickSet    = "quick"
	defaultRefs = "nginx,haproxy,squid,dante"
)

// options are those of the run command.
type options struct {
	proxies   string
	scenarios string
	refs      string
	cpus      string
	link      string // with what makes it once it is made
	linkBy    string
	data      string
	out       string
	bins      pairs
	services  pairs
	lines     pairs
	reps      int
	attempts  int
	active    int
	secs      float64
	idleSecs  float64 // of a measurement without traffic; 0 is secs
	warm      time.Duration
	quiet     time.Duration
	within    time.Duration
	foreign   float64
	verify    bool
	noTrace   bool
	noPlots   bool
}

// pairs collects LABEL=VALUE options.
type pairs map[string][]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	label, value, ok := strings.Cut(text, "=")
	if !ok || label == "" {
		return fmt.Errorf("expected LABEL=VALUE")
	}
	p[label] = append(p[label], value)
	return nil
}

// last returns the last value given for label.
func (p pairs) last(label string) string {
	if v := p[label]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func parseRun(args []string) (*options, error) {
	o := &options{bins: pairs{}, services: pairs{}, lines: pairs{}}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.StringVar(&o.proxies, "proxy", "3proxyd,nginx,haproxy", "proxies, separated by commas; NAME-ANYTHING is NAME with options of its own; all is every one that is installed, best 3proxyd and in each scenario the few that come near the best there; more may follow these two words")
	f.StringVar(&o.scenarios, "scenario", quickSet, "scenarios or sets of them, separated by commas")
	f.StringVar(&o.refs, "ref", defaultRefs, "proxies that the tables compare to")
	f.StringVar(&o.cpus, "cpus", "", "CPUs of the roles, such as cli=0,prx=1,srv=0 (default: chosen from the machine)")
	f.StringVar(&o.link, "link", "", "the network between clients and proxy: RATE,DELAY[,LOSS] such as 20mbit,5ms,0.5% (default: as fast as it goes)")
	f.StringVar(&o.linkBy, "link-by", byAuto, "what makes the --link: netem (the kernel), wire (a process on the client's CPUs), or auto: netem where the kernel has it")
	f.StringVar(&o.data, "data", "bench/data", "directory for the CSV file and the pictures")
	f.StringVar(&o.out, "out", "", "the CSV file; if it exists, the runs it lacks are made (default: a new one in --data)")
	f.Var(o.bins, "bin", "LABEL=PATH: the binary of a proxy; 3proxyd is built from the source if not given")
	f.Var(o.services, "services", "LABEL=OPTIONS: options for every service line of a 3proxyd, such as -s0")
	f.Var(o.lines, "line", "LABEL=LINE: a line for the configuration of a 3proxyd, before its services")
	f.IntVar(&o.reps, "reps", 3, "repetitions")
	f.IntVar(&o.active, "mix-active", 256, "requests under way at a time in a closed-loop mix")
	f.Float64Var(&o.secs, "secs", 0, "seconds of a measurement; of one at a fixed rate three times as much (default 5, for the quick set 2)")
	f.DurationVar(&o.warm, "warm", 500*time.Millisecond, "time under load before a measurement")
	f.IntVar(&o.attempts, "attempts", 2, "runs made at most where other processes disturb")
	f.DurationVar(&o.quiet, "quiet", 10*time.Second, "how long to wait before a run for other processes to rest")
	f.DurationVar(&o.within, "within", 0, "the time after which nothing is waited for or repeated (default: none, for the quick set 2m)")
	f.Float64Var(&o.foreign, "foreign", 0.02, "share of the roles' CPUs that other processes may take")
	f.BoolVar(&o.verify, "verify", false, "compare every byte (costs the client's and the origin's CPU)")
	f.BoolVar(&o.noTrace, "no-strace", false, "do not count system calls")
	f.BoolVar(&o.noPlots, "no-plots", false, "draw no pictures at the end")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.setDefaults()
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.reps < 1 || o.attempts < 1 || o.active < 1:
		return nil, errors.New("--reps, --attempts and --mix-active must be 1 or more")
	case !(o.secs >= 0.1 && o.secs <= 3600):
		return nil, errors.New("--secs must be from 0.1 to 3600")
	}
	return o, nil
}

// setDefaults sets what depends on the scenarios, so that the quick set ends
// within five minutes.
func (o *options) setDefaults() {
	secs, within := 5.0, time.Duration(0)
	if o.scenarios == quickSet {
		secs, within = 2, 2*time.Minute
	}
	if o.secs == 0 {
		o.secs = secs
	}
	if o.within == 0 {
		o.within = within
	}
}
