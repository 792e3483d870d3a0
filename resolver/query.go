package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"3proxyd/internal/ipaddr"
)

// resolve asks the servers for the addresses of a name; early is that of
// LookupEarly.
func (r *Resolver) resolve(ctx context.Context, p *plan, host string, want Family, early func([]netip.Addr)) Answer {
	switch want {
	case V4:
		return r.addresses(ctx, p, host, dns.TypeA)
	case V6:
		return r.addresses(ctx, p, host, dns.TypeAAAA)
	}
	return r.both(ctx, p, host, early)
}

// both asks for A and AAAA at the same time. Once one has brought addresses the
// other gets little more time: servers that never answer AAAA exist.
func (r *Resolver) both(ctx context.Context, p *plan, host string, early func([]netip.Addr)) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v4, v6 := make(chan Answer, 1), make(chan Answer, 1)
	go func() { v4 <- r.addresses(ctx, p, host, dns.TypeA) }()
	go func() { v6 <- r.addresses(ctx, p, host, dns.TypeAAAA) }()

	select {
	case a := <-v4:
		return combine(a, other(a, v6, early))
	case a := <-v6:
		return combine(other(a, v4, early), a)
	}
}

// other waits for the second of two answers, the first being known.
func other(first Answer, second chan Answer, early func([]netip.Addr)) Answer {
	if first.Err != nil {
		return <-second
	}
	if early != nil && len(second) == 0 {
		early(first.Addrs)
	}
	timer := time.NewTimer(addressLag)
	defer timer.Stop()
	select {
	case a := <-second:
		return a
	case <-timer.C:
		return Answer{Err: ErrTemporary, TTL: temporaryTTL}
	}
}

// combine joins the answers for both families. One that failed makes the whole
// short-lived, so that it is asked for again soon.
func combine(v4, v6 Answer) Answer {
	addrs := merge(v4.Addrs, v6.Addrs)
	ttl := min(v4.TTL, v6.TTL)
	if len(addrs) > 0 {
		return Answer{Addrs: addrs, TTL: ttlWith(v4, v6)}
	}
	for _, a := range []Answer{v4, v6} {
		if !errors.Is(a.Err, ErrNotFound) {
			return Answer{Err: a.Err, TTL: ttl}
		}
	}
	return notFound(ttl)
}

// ttlWith is the TTL of addresses of which one family may be missing: that a
// family has none may be known for a shorter time than the addresses.
func ttlWith(v4, v6 Answer) time.Duration {
	if v4.Err == nil && errors.Is(v6.Err, ErrNotFound) {
		return v4.TTL
	}
	if v6.Err == nil && errors.Is(v4.Err, ErrNotFound) {
		return min(v6.TTL, max(v4.TTL, defaultNegTTL))
	}
	return max(minTTL, min(v4.TTL, v6.TTL))
}

// addresses asks for one type of address and follows aliases.
func (r *Resolver) addresses(ctx context.Context, p *plan, host string, qtype uint16) Answer {
	name := dns.Fqdn(host)
	ttl := maxTTL
	aliases := 0
	for range maxRequery {
		msg, err := r.query(ctx, p, asking{name: name, qtype: qtype})
		if err != nil {
			return failure(ctx, host, err)
		}
		c := follow(msg, name, qtype, maxAliases-aliases)
		aliases += c.aliases
		ttl = min(ttl, c.ttl)
		switch {
		case c.endless || aliases > maxAliases:
			return failure(ctx, host, errors.New("too many aliases"))
		case len(c.addrs) > 0:
			return Answer{Addrs: c.addrs, TTL: max(minTTL, ttl)}
		case c.name == name || msg.Rcode != dns.RcodeSuccess || hasSOA(msg):
			return notFound(min(negativeTTL(msg), max(minTTL, ttl)))
		}
		name = c.name
	}
	return failure(ctx, host, errors.New("too many aliases"))
}

// failure is the answer when it could not be found out. A lookup that was
// called off says nothing about the name.
func failure(ctx context.Context, host string, err error) Answer {
	ttl := temporaryTTL
	if errors.Is(ctx.Err(), context.Canceled) {
		ttl = 0
	}
	return Answer{Err: fmt.Errorf("%w: %s: %w", ErrTemporary, host, err), TTL: ttl}
}

var (
	errNoServer = errors.New("no name server")
	errLame     = errors.New("the server neither knows nor asks others")
)

// query asks the servers in turn until one has an answer, be it that there is
// none.
func (r *Resolver) query(ctx context.Context, p *plan, a asking) (*dns.Msg, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	last := errNoServer
	servers := p.ordered(time.Now())
	tries := p.attempts * len(servers)
	for try := range tries {
		s := servers[try%len(servers)]
		msg, err := s.ask(ctx, a, p.share(ctx, tries-try))
		if err == nil {
			return msg, nil
		}
		last = fmt.Errorf("name server %v: %w", s.addr, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// share is the time for one of the tries that are left: when ctx ends before
// all of them could take the full timeout, each gets an equal part, so that a
// silent server does not keep the next from being asked.
func (p *plan) share(ctx context.Context, tries int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return p.timeout
	}
	return min(p.timeout, max(0, time.Until(deadline))/time.Duration(tries))
}

// ask asks one server.
func (s *server) ask(ctx context.Context, a asking, timeout time.Duration) (*dns.Msg, error) {
	msg, err := s.within(ctx, a, timeout)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			s.note(err)
		}
		return nil, err
	}
	s.downUntil.Store(0)
	switch {
	case msg.Rcode != dns.RcodeSuccess && msg.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("answer %s", dns.RcodeToString[msg.Rcode])
	case lame(msg):
		return nil, errLame
	}
	return msg, nil
}

// within exchanges question and answer in that time, once more without EDNS
// when the server does not understand it.
func (s *server) within(ctx context.Context, a asking, timeout time.Duration) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	msg, err := s.exchange(ctx, a)
	if err != nil || s.plain.Load() || msg.Rcode != dns.RcodeFormatError && msg.Rcode != dns.RcodeNotImplemented {
		return msg, err
	}
	s.plain.Store(true)
	return s.exchange(ctx, a)
}

// note remembers that the server could not be reached.
func (s *server) note(err error) {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		s.downUntil.Store(time.Now().Add(downTime).UnixNano())
	}
}

// lame recognises a referral to other servers, which a resolver for clients
// does not give (RFC 1912, 2.8).
func lame(m *dns.Msg) bool {
	return m.Rcode == dns.RcodeSuccess && len(m.Answer) == 0 && !m.Authoritative &&
		!m.RecursionAvailable && !hasSOA(m)
}

// chain is what an answer says about a name.
type chain struct {
	addrs   []netip.Addr
	name    string // the last alias, or the name itself
	aliases int
	ttl     time.Duration
	endless bool
}

// follow reads the addresses of a name out of an answer, over at most limit
// aliases. Records that do not belong to the name are not looked at.
func follow(m *dns.Msg, name string, qtype uint16, limit int) chain {
	c := chain{name: dns.CanonicalName(name), ttl: maxTTL}
	for {
		next := c.step(m, qtype)
		if next == "" {
			return c
		}
		if c.aliases++; c.aliases > limit {
			c.endless = true
			return c
		}
		c.name = next
	}
}

// step collects the addresses of the current name and returns its alias, if it
// has one and no address.
func (c *chain) step(m *dns.Msg, qtype uint16) (next string) {
	var aliasTTL time.Duration
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != c.name {
			continue
		}
		ttl := seconds(h.Ttl)
		if alias, ok := rr.(*dns.CNAME); ok && next == "" {
			next, aliasTTL = dns.CanonicalName(alias.Target), ttl
			continue
		}
		if a, ok := address(rr, qtype); ok && len(c.addrs) < MaxAddrs {
			c.addrs = append(c.addrs, a)
			c.ttl = min(c.ttl, ttl)
		}
	}
	if len(c.addrs) > 0 {
		return ""
	}
	if next != "" {
		c.ttl = min(c.ttl, aliasTTL)
	}
	return next
}

// address returns the address of a record of that type. Unspecified addresses,
// which stand for this host when connected to, and IPv4 addresses written as
// IPv6 ones, which no name should have, are left out.
func address(rr dns.RR, qtype uint16) (a netip.Addr, ok bool) {
	switch rr := rr.(type) {
	case *dns.A:
		a, ok = netip.AddrFromSlice(rr.A.To4())
		ok = ok && qtype == dns.TypeA
	case *dns.AAAA:
		a, ok = netip.AddrFromSlice(rr.AAAA)
		ok = ok && qtype == dns.TypeAAAA && a.Is6() && ipaddr.Canonical(a) == a
	}
	return a, ok && !a.IsUnspecified()
}

// seconds is a TTL; one with the top bit set counts as 0 (RFC 2181, 8).
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

func hasSOA(m *dns.Msg) bool {
	_, ok := soa(m)
	return ok
}

func soa(m *dns.Msg) (*dns.SOA, bool) {
	for _, rr := range m.Ns {
		if s, ok := rr.(*dns.SOA); ok {
			return s, true
		}
	}
	return nil, false
}

// negativeTTL is how long it holds that there is no answer (RFC 2308, 5).
func negativeTTL(m *dns.Msg) time.Duration {
	s, ok := soa(m)
	if !ok {
		return defaultNegTTL
	}
	ttl := min(seconds(s.Hdr.Ttl), seconds(s.Minttl))
	return max(minNegTTL, min(ttl, maxNegTTL))
}
