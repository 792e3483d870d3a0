// Bench measures 3proxyd and other proxies on one machine, in one run, and
// compares them. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"3proxyd/bench/load"
	"3proxyd/bench/origin"
	"3proxyd/bench/peer"
	"3proxyd/bench/scenario"
)

const usage = `usage: bench COMMAND [OPTIONS]

  run     measure proxies; needs root (bench run -h)
  growth  measure how the cost of a request grows with connections and rules (bench growth -h)
  report  make a page and pictures of earlier runs (bench report -h)
  compare compare two builds; fails on a loss (bench compare -h)
  check   compare the lab's figures with those of wrk, iperf3 and perf (bench check -h)
  list    name the proxies and scenarios
  deps    say which proxies are installed, or install them (bench deps -h)
`

// The commands by which the tool starts itself as a role.
const (
	cmdOrigin = "_origin"
	cmdLoad   = "_load"
	cmdWire   = "_wire"
	cmdClean  = "_clean"
)

func main() {
	err := dispatch(os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func dispatch(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no command given")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch rest := args[1:]; args[0] {
	case "run":
		return runCommand(ctx, rest)
	case "growth":
		return growthCommand(ctx, rest)
	case "report":
		return reportCommand(rest)
	case "compare":
		return compareCommand(rest)
	case "check":
		return checkCommand(ctx, rest)
	case "list":
		return listCommand(rest)
	case "deps":
		return depsCommand(ctx, rest)
	case cmdOrigin:
		return originCommand(rest)
	case cmdLoad:
		return loadCommand(rest)
	case cmdWire:
		return wireCommand(rest)
	case cmdClean:
		return cleanCommand(rest)
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("unknown command %q", args[0])
}

func originCommand(args []string) error {
	if len(args) != 2 {
		return errors.New("expected an address and whether to verify")
	}
	addr, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	return origin.Run(addr, args[1] == "verify")
}

func loadCommand(args []string) error {
	if len(args) != 1 {
		return errors.New("expected a configuration")
	}
	var cfg load.Config
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return load.Run(cfg)
}

func listCommand(args []string) error {
	f := flag.NewFlagSet("list", flag.ContinueOnError)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	fmt.Println("Proxies, with the modes each serves:")
	for _, p := range peer.All {
		var modes []string
		for _, m := range p.Modes {
			modes = append(modes, string(m))
		}
		fmt.Printf("  %-16s %s\n", p.Name, strings.Join(modes, " "))
	}
	fmt.Printf("\nSets of scenarios: %s\n", strings.Join(scenario.Sets(), ", "))
	fmt.Print(`
Scenarios: MODE-LOAD[@RATE]
  MODE   relay, connect, socks, http; term and init are for TLS, which cannot be measured
  LOAD   ka-[POST-]SIZE[-CONNS]   kept-alive connections (ka-1k, ka-1m, ka-2k-50k-2000);
                                  CONNS+IDLE: idle ones beside them (ka-1k-10+9000)
         close-SIZE[-CONNS]       a new connection for every request
         streamN[-up|-down]       N endless streams
         idle-CONNS               open connections without traffic
         mix[-CONNS][-RATEk]      answers of a web site's sizes (mix, mix-3k)
  RATE   requests a second at even distances, instead of a closed loop
`)
	return nil
}
