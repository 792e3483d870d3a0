package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// dante serves SOCKS with one process for each task (danted(8), -N 1). It adds
// processes for clients as it needs them.
var dante = &Peer{
	Name:     "dante",
	Modes:    []scenario.Mode{scenario.Socks},
	Group:    Copy,
	Binary:   "danted",
	Packages: []string{"dante-server"},
	Version:  []string{"-v"},
	Configure: func(e Env) ([]string, error) {
		text := fmt.Sprintf(danteConf, e.Listen, Port(scenario.Socks), e.Out)
		path, err := e.write("danted.conf", text)
		return []string{"-N", "1", "-f", path, "-p", e.Dir + "/danted.pid"}, err
	},
}

const danteConf = `logoutput: /dev/null
internal: %s port = %d
external: %s
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
timeout.io: 600
client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }
`
