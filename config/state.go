package config

import "net/netip"

const (
	defaultDrainTimeout = 3600
	defaultUpgradeTrial = 10
	defaultUpgradeOld   = 2
)

// state is what a service line captures.
type state struct {
	internal  Endpoint // Unix or Addr; Port is unused
	external4 netip.Addr
	external6 netip.Addr
	auth      []AuthMethod
	rules     []Rule
	// aclIndex is the index of rules in Config.ACLs, -1 while no service has
	// used them in their present state.
	aclIndex  int
	maxConn   int
	maxBody   int64
	force     bool
	backlog   int
	timeouts  Timeouts
	log       Log
	logFormat string
}

func initialState() state {
	return state{
		// Without internal 3proxy listens on every IPv4 address.
		internal:  Endpoint{Addr: netip.IPv4Unspecified()},
		auth:      []AuthMethod{AuthNone},
		aclIndex:  -1,
		timeouts:  DefaultTimeouts,
		log:       Log{Kind: LogNone},
		logFormat: DefaultLogFormat,
	}
}
