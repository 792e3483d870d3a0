package peer

import "3proxyd/bench/scenario"

// direct is no proxy: the kernel routes between client and origin. It shows
// what the load generator and the origin can do.
var direct = &Peer{Name: "direct", Modes: []scenario.Mode{scenario.Relay}}
