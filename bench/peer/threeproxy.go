package peer

import (
	"fmt"
	"regexp"
	"strings"

	"3proxyd/bench/scenario"
)

// threeProxy is 3proxy: a thread for each connection. Its maxconn is 100 for
// each service if not set, and TCP_NODELAY is off (3proxy.cfg(5)). 3proxy-splice needs a binary built
// with splice; others refuse the option.
var (
	threeProxy       = newThreeProxy("3proxy", Copy, "", "")
	threeProxySplice = newThreeProxy("3proxy-splice", Splice, " -s", "splice()")
)

func newThreeProxy(name string, group Group, options, needs string) *Peer {
	return &Peer{
		Name:      name,
		Modes:     scenario.Modes,
		Group:     group,
		Binary:    "3proxy",
		Needs:     needs,
		VersionIn: regexp.MustCompile(`3proxy[-/ ][0-9]+\.[0-9]+(\.[0-9]+)?[0-9A-Za-z.-]*`),
		Configure: func(e Env) ([]string, error) {
			var b strings.Builder
			fmt.Fprintf(&b, "internal %s\nexternal %s\n", e.Listen, e.Out)
			fmt.Fprintf(&b, "maxconn %d\nbacklog 4096\nauth none\n", min(max((e.Files-200)/2, 100), 60_000))
			for _, line := range e.Lines {
				fmt.Fprintln(&b, line)
			}
			all := " -ocTCP_NODELAY -osTCP_NODELAY" + options
			if e.Options != "" {
				all += " " + e.Options
			}
			fmt.Fprintf(&b, "proxy -p%d%s\nsocks -p%d%s\n", Port(scenario.HTTP), all, Port(scenario.Socks), all)
			fmt.Fprintf(&b, "tcppm%s %d %s %d\n", all, Port(scenario.Relay), e.Origin.Addr(), e.Origin.Port())
			path, err := e.write("3proxy.cfg", b.String())
			return []string{path}, err
		},
	}
}
