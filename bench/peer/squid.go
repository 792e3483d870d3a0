package peer

import (
	"fmt"

	"3proxyd/bench/scenario"
)

// squid runs as a single process without cache and logs.
var squid = &Peer{
	Name:     "squid",
	Modes:    []scenario.Mode{scenario.HTTP, scenario.Connect},
	Group:    Copy,
	Binary:   "squid",
	Packages: []string{"squid"},
	Version:  []string{"-v"},
	Configure: func(e Env) ([]string, error) {
		path, err := e.write("squid.conf", fmt.Sprintf(squidConf, e.at(scenario.HTTP), e.Dir, min(e.Files, 65536)))
		return []string{"-N", "-f", path}, err
	},
}

const squidConf = `http_port %s
http_access allow all
cache deny all
cache_mem 0
access_log none
cache_log /dev/null
cache_store_log none
pid_filename none
coredump_dir %s
visible_hostname proxy
max_filedescriptors %d
pinger_enable off
netdb_filename none
shutdown_lifetime 0 seconds
`
