package peer

import (
	"fmt"
	"regexp"

	"3proxyd/bench/scenario"
)

// stunnel has a thread for each connection. It always speaks TLS on one side,
// so it serves no plain scenario.
var stunnel = &Peer{
	Name:      "stunnel",
	Modes:     scenario.TLSModes,
	Group:     Copy,
	Binary:    "stunnel",
	Packages:  []string{"stunnel4"},
	Version:   []string{"-version"},
	VersionIn: regexp.MustCompile(`stunnel [0-9.]+ on \S+`),
	Configure: func(e Env) ([]string, error) {
		cert, err := e.writeCertificate()
		if err != nil {
			return nil, err
		}
		path, err := e.write("stunnel.conf", fmt.Sprintf(stunnelConf, cert, e.at(scenario.Term), e.Origin, e.at(scenario.Init), e.OriginTLS))
		return []string{path}, err
	},
}

const stunnelConf = `foreground = quiet
debug = 0
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
TIMEOUTidle = 600
[term]
accept = %[2]s
cert = %[1]s
connect = %[3]s
[init]
client = yes
accept = %[4]s
connect = %[5]s
`
