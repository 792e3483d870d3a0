package resolver

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// downTime is how long a server that did not answer is asked last.
const downTime = 30 * time.Second

// plan is which servers to ask, how, and for what names.
type plan struct {
	servers  []*server
	timeout  time.Duration // for one exchange with one server
	attempts int           // rounds over all servers
	search   []string
	ndots    int
	// rotate spreads the first question over the servers; turn counts them.
	rotate bool
	turn   atomic.Uint32
}

// server is a name server and what is known of it.
type server struct {
	addr netip.AddrPort
	tcp  bool
	// downUntil is a time in nanoseconds since 1970.
	downUntil atomic.Int64
	// plain is set when the server does not understand EDNS.
	plain atomic.Bool
}

func (s *server) down(now time.Time) bool { return now.UnixNano() < s.downUntil.Load() }

// ordered returns the servers in the order in which to ask them: those that
// did not answer lately come last.
func (p *plan) ordered(now time.Time) []*server {
	n := len(p.servers)
	first := 0
	if p.rotate && n > 0 {
		first = int(p.turn.Add(1)-1) % n
	}
	up := make([]*server, 0, n)
	var down []*server
	for i := range n {
		s := p.servers[(first+i)%n]
		if s.down(now) {
			down = append(down, s)
		} else {
			up = append(up, s)
		}
	}
	return append(up, down...)
}

// candidates are the names to ask for, in order (resolv.conf(5), search and
// ndots).
func (p *plan) candidates(host string, rooted bool) []string {
	if rooted {
		return []string{host}
	}
	var names []string
	for _, domain := range p.search {
		if name := host + "." + domain; len(name) <= maxName {
			names = append(names, name)
		}
	}
	if strings.Count(host, ".") >= p.ndots {
		return append([]string{host}, names...)
	}
	return append(names, host)
}
