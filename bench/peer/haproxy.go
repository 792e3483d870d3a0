package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// haproxy copies by default; haproxy-splice is told to splice both ways, which is
// what makes 2.6 do it, and haproxy-splice-auto to splice where it thinks that it
// pays, which 2.6 never did here.
var (
	haproxy       = newHaproxy("haproxy", Copy, "")
	haproxySplice = newHaproxy("haproxy-splice", Splice, "    option splice-request\n    option splice-response\n")
	haproxyAuto   = newHaproxy("haproxy-splice-auto", Splice, "    option splice-auto\n")
)

func newHaproxy(name string, group Group, options string) *Peer {
	return &Peer{
		Name:     name,
		Modes:    []scenario.Mode{scenario.Relay, scenario.HTTP},
		Group:    group,
		Binary:   "haproxy",
		Packages: []string{"haproxy"},
		Version:  []string{"-v"},
		Configure: func(e Env) ([]string, error) {
			path, err := e.write("haproxy.cfg", fmt.Sprintf(haproxyConf, maxconn(e.Files), options, e.at(scenario.Relay), e.Origin, e.at(scenario.HTTP)))
			return []string{"-db", "-f", path}, err
		},
	}
}

// maxconn returns a number of connections for which haproxy finds enough
// descriptors: two for each and, when it splices, pipes for a quarter of them.
func maxconn(files int) int { return min(max((files-200)/3, 100), 60_000) }

const haproxyConf = `global
    nbthread 1
    maxconn %[1]d
defaults
    timeout connect 10s
    timeout client 600s
    timeout server 600s
%[2]slisten relay
    mode tcp
    bind %[3]s backlog 4096
    server origin %[4]s
listen http
    mode http
    http-reuse always
    bind %[5]s backlog 4096
    server origin %[4]s
`
