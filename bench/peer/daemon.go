package peer

import (
	"fmt"
	"strconv"
	"strings"

	"3proxyd/bench/scenario"
)

// daemon is 3proxyd. Options are added to every service line ("-s0", "-b16384")
// and Lines come before them ("engine io_uring").
var daemon = &Peer{
	Name:    "3proxyd",
	Modes:   scenario.Modes,
	Group:   Splice,
	Binary:  "3proxyd",
	Version: []string{"version"},
	Configure: func(e Env) ([]string, error) {
		var cpus []string
		for _, cpu := range e.CPUs {
			cpus = append(cpus, strconv.Itoa(cpu))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "workers 1\ncpus %s\n", strings.Join(cpus, ","))
		fmt.Fprintf(&b, "control %s/control.sock\ndrain_timeout 1\n", e.Dir)
		fmt.Fprintf(&b, "internal %s\nexternal %s\nbacklog 4096\n", e.Listen, e.Out)
		for _, line := range e.Lines {
			fmt.Fprintln(&b, line)
		}
		options := ""
		if e.Options != "" {
			options = " " + e.Options
		}
		fmt.Fprintf(&b, "tcppm%s %d %s %d\n", options, Port(scenario.Relay), e.Origin.Addr(), e.Origin.Port())
		fmt.Fprintf(&b, "proxy -p%d%s\n", Port(scenario.HTTP), options)
		fmt.Fprintf(&b, "socks -p%d%s\n", Port(scenario.Socks), options)
		path, err := e.write("3proxy.cfg", b.String())
		return []string{"-c", path}, err
	},
}
