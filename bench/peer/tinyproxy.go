package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// tinyproxy takes a thread for each connection and closes it after one request.
var tinyproxy = &Peer{
	Name:     "tinyproxy",
	Modes:    []scenario.Mode{scenario.HTTP, scenario.Connect},
	Group:    Copy,
	Binary:   "tinyproxy",
	Packages: []string{"tinyproxy-bin"},
	Version:  []string{"-v"},
	Configure: func(e Env) ([]string, error) {
		path, err := e.write("tinyproxy.conf", fmt.Sprintf(tinyproxyConf, e.Listen, Port(scenario.HTTP)))
		return []string{"-d", "-c", path}, err
	},
}

const tinyproxyConf = `User root
Group root
Listen %s
Port %d
Timeout 600
MaxClients 20000
LogFile "/dev/null"
LogLevel Critical
DisableViaHeader Yes
`
