package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// haproxy copies by default; haproxySplice is told to splice both ways, which
// is what makes 2.6 do it ("option splice-auto" made no splice call).
var (
	haproxy       = newHaproxy("haproxy", "")
	haproxySplice = newHaproxy("haproxy-splice", "    option splice-request\n    option splice-response\n")
)

func newHaproxy(name, options string) *Peer {
	return &Peer{
		Name:     name,
		Modes:    []scenario.Mode{scenario.Relay, scenario.HTTP},
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
