// Package resolver finds the addresses of host names: Resolver asks name
// servers, and the system's files when none are configured; Cache keeps the
// answers for one event loop.
package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"3proxyd/config"
)

// Errors of an Answer, for errors.Is.
var (
	// ErrNotFound means that the name has no address of the family wanted.
	ErrNotFound = errors.New("host not found")
	// ErrTemporary means that it could not be found out: no server answered,
	// or none usefully. The same lookup may succeed later.
	ErrTemporary = errors.New("name resolution failed for now")
)

// Family says which addresses are wanted.
type Family uint8

// The families. Both brings IPv4 addresses first, as 3proxy prefers them.
const (
	V4 Family = iota
	V6
	Both
)

// Answer is the result of a lookup: addresses or an error, and for how long
// either holds. A TTL of 0 means that it is not to be kept.
type Answer struct {
	Addrs []netip.Addr
	TTL   time.Duration
	Err   error
}

const (
	// MaxAddrs is the number of addresses an Answer has at most.
	MaxAddrs = 16

	// The bounds of the TTL of answers and of negative answers, whose default
	// is for those without SOA record (RFC 2308, 5).
	minTTL, maxTTL         = time.Second, 24 * time.Hour
	minNegTTL, maxNegTTL   = time.Second, 300 * time.Second
	defaultNegTTL          = 5 * time.Second
	temporaryTTL           = 2 * time.Second
	staticTTL, hostsTTL    = time.Minute, 10 * time.Second
	maxInFlight            = 4096
	defaultTimeout         = 15 * time.Second
	resolvConf, hostsFile  = "/etc/resolv.conf", "/etc/hosts"
	addressLag             = 500 * time.Millisecond
	maxAliases, maxRequery = 16, 4
)

// Resolver looks names up. It may be used by any number of goroutines.
type Resolver struct {
	static map[string][]netip.Addr
	// plan is how to ask the configured servers; system is used without them.
	plan   *plan
	system *system
	slots  chan struct{}
}

// New returns a resolver that asks cfg.Servers in order, each at most for the
// timeout, or with no servers does what resolv.conf(5) and hosts(5) say; these
// files are read again when they change. A timeout of 0 means 15 s.
func New(cfg config.Resolver, timeout time.Duration) (*Resolver, error) {
	if timeout < 0 {
		return nil, fmt.Errorf("name server timeout %v is negative", timeout)
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	r := &Resolver{static: cfg.Static, slots: make(chan struct{}, maxInFlight)}
	if len(cfg.Servers) == 0 {
		r.system = newSystem(resolvConf, hostsFile, timeout)
		return r, nil
	}
	p := &plan{timeout: timeout, attempts: 1}
	for _, s := range cfg.Servers {
		if !s.Addr.IsValid() || s.Addr.Port() == 0 {
			return nil, fmt.Errorf("name server %v: not an address with a port", s.Addr)
		}
		p.servers = append(p.servers, &server{addr: s.Addr, tcp: s.TCP})
	}
	r.plan = p
	return r, nil
}

// Lookup returns the addresses of a host name; an IP literal is its own
// address. It blocks, as long as the servers take, or until ctx is done; the
// servers share the time until the deadline of ctx. The name's case does not
// matter; a final dot keeps the search list out. Special names never reach a
// server (RFC 6761, RFC 7686), nor do names that are not host names. What looks
// like a number (127.1, 0x7f.1) is a name like others.
func (r *Resolver) Lookup(ctx context.Context, name string, want Family) Answer {
	return r.LookupEarly(ctx, name, want, nil)
}

// LookupEarly is Lookup for those who can begin with the addresses of one family
// (RFC 8305 section 3): early is called with them, at most once and before
// LookupEarly returns, when the other family is not known by then. It must not block
// nor write to its argument.
func (r *Resolver) LookupEarly(ctx context.Context, name string, want Family, early func([]netip.Addr)) Answer {
	if a, ok := literal(name); ok {
		return fixed([]netip.Addr{a}, want, maxTTL)
	}
	host, rooted, ok := hostName(name)
	if !ok {
		return notFound(maxNegTTL)
	}
	if addrs, ok := r.static[host]; ok {
		return fixed(addrs, want, staticTTL)
	}
	if addrs, ok := special(host); ok {
		return fixed(addrs, want, maxTTL)
	}
	if r.system == nil {
		return r.resolve(ctx, r.plan, host, want, early)
	}
	p, hosts := r.system.current(time.Now())
	if addrs, ok := hosts[host]; ok {
		return fixed(addrs, want, hostsTTL)
	}
	return r.search(ctx, p, host, rooted, want, early)
}

// search tries the names that the search list makes of host until one is
// found.
func (r *Resolver) search(ctx context.Context, p *plan, host string, rooted bool, want Family, early func([]netip.Addr)) Answer {
	answer := notFound(maxNegTTL)
	var failed *Answer
	for _, name := range p.candidates(host, rooted) {
		a := r.resolve(ctx, p, name, want, early)
		switch {
		case a.Err == nil:
			return a
		case errors.Is(a.Err, ErrNotFound):
			answer.TTL = min(answer.TTL, a.TTL)
		default:
			failed = &a
		}
		if ctx.Err() != nil {
			break
		}
	}
	if failed != nil {
		return *failed
	}
	return answer
}

func notFound(ttl time.Duration) Answer { return Answer{Err: ErrNotFound, TTL: ttl} }

// fixed is an answer from other sources than DNS. An unspecified address
// stands for a name that never resolves.
func fixed(addrs []netip.Addr, want Family, ttl time.Duration) Answer {
	var v4, v6 []netip.Addr
	for _, a := range addrs {
		switch {
		case a.IsUnspecified():
			return notFound(min(ttl, maxNegTTL))
		case a.Is4() && want != V6:
			v4 = append(v4, a)
		case a.Is6() && want != V4:
			v6 = append(v6, a)
		}
	}
	all := merge(v4, v6)
	if len(all) == 0 {
		return notFound(min(ttl, maxNegTTL))
	}
	return Answer{Addrs: all, TTL: ttl}
}

// merge joins the addresses of both families, at most MaxAddrs, with room for
// either.
func merge(v4, v6 []netip.Addr) []netip.Addr {
	const half = MaxAddrs / 2
	v4 = v4[:min(len(v4), max(half, MaxAddrs-len(v6)))]
	v6 = v6[:min(len(v6), MaxAddrs-len(v4))]
	if len(v6) == 0 {
		return v4
	}
	return append(v4[:len(v4):len(v4)], v6...)
}

// special are the addresses of names that are not for name servers: RFC 6761,
// 6.3 and 6.4, and RFC 7686.
func special(host string) (addrs []netip.Addr, ok bool) {
	switch host[strings.LastIndexByte(host, '.')+1:] {
	case "localhost":
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, true
	case "invalid", "onion":
		return nil, true
	}
	return nil, false
}
