package peer

import "3proxyd/bench/scenario"

// bulkSize is the answer from which moving bytes costs more than the request.
const bulkSize = 256 << 10

// Contenders names the peers that were best in a scenario, or near it, when all
// were measured: a run that is to be short leaves the others out.
func Contenders(s scenario.Scenario) []string {
	switch s.Mode {
	case scenario.Connect:
		return tunnelContenders(s, "squid", "tinyproxy")
	case scenario.Socks:
		return tunnelContenders(s, "dante", "dante")
	}
	bulk := s.Kind == scenario.Stream || s.Kind == scenario.KeepAlive && s.Size >= bulkSize
	switch {
	case bulk:
		return []string{"haproxy-splice", "3proxy-splice"}
	case s.Kind == scenario.KeepAlive && s.Conns >= 1000:
		return []string{"nginx", "haproxy-splice", "3proxy"}
	case s.Kind == scenario.Mix:
		return []string{"nginx", "haproxy", "haproxy-splice"}
	}
	return []string{"nginx", "haproxy"}
}

// tunnelContenders returns those of CONNECT and SOCKS: kept is best at tunnels
// that stay, fresh at making them, and 3proxy is near both.
func tunnelContenders(s scenario.Scenario, kept, fresh string) []string {
	switch s.Kind {
	case scenario.Stream:
		return []string{kept, "3proxy-splice"}
	case scenario.Close:
		return []string{fresh, "3proxy"}
	case scenario.Idle:
		return []string{kept, fresh}
	}
	return []string{kept, "3proxy"}
}
