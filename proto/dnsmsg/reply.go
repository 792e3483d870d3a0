package dnsmsg

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Content is what a reply says, whoever asks. It is used by one goroutine.
type Content struct {
	Rcode int
	// Authenticated is the AD bit of the server.
	Authenticated bool
	// TTL is how long it may be kept, 0 for not at all.
	TTL time.Duration

	answer, authority, additional []dns.RR
	// ttls are those of the records as they came, in seconds, in the order of
	// the sections.
	ttls []uint32
	size int
}

// The bounds of the time that contents are kept: of records, of the news that
// there are none (RFC 2308 section 5), of failures (RFC 9520 section 3.2), and
// of own records.
const (
	maxTTL     = 24 * time.Hour
	maxNegTTL  = 300 * time.Second
	failureTTL = 2 * time.Second
	ownTTL     = 60 * time.Second
)

// FromServer takes what a server has answered. The message must not be used any
// more.
func FromServer(m *dns.Msg) *Content {
	c := &Content{
		Rcode: m.Rcode, Authenticated: m.AuthenticatedData,
		answer: m.Answer, authority: m.Ns, size: m.Len(),
	}
	for _, rr := range m.Extra {
		// What is between us and the server does not concern the client.
		switch rr.Header().Rrtype {
		case dns.TypeOPT, dns.TypeTSIG, dns.TypeSIG:
			continue
		}
		c.additional = append(c.additional, rr)
	}
	lowest := uint32(maxTTL / time.Second)
	for rr := range c.records {
		h := rr.Header()
		if h.Ttl > 1<<31-1 {
			h.Ttl = 0 // RFC 2181 section 8
		}
		c.ttls = append(c.ttls, h.Ttl)
		lowest = min(lowest, h.Ttl)
	}
	c.TTL = c.keep(time.Duration(lowest) * time.Second)
	return c
}

// keep is how long c may be kept when the least TTL of its records is lowest.
// The news that there is no record is kept with the SOA record that says for how
// long, not without.
func (c *Content) keep(lowest time.Duration) time.Duration {
	if c.Rcode != dns.RcodeSuccess && c.Rcode != dns.RcodeNameError {
		return 0
	}
	if c.Rcode == dns.RcodeSuccess && len(c.answer) > 0 && !c.onlyAliases() {
		return lowest
	}
	for _, rr := range c.authority {
		if soa, ok := rr.(*dns.SOA); ok {
			return min(lowest, time.Duration(soa.Minttl)*time.Second, maxNegTTL)
		}
	}
	return 0
}

func (c *Content) onlyAliases() bool {
	for _, rr := range c.answer {
		if t := rr.Header().Rrtype; t != dns.TypeCNAME && t != dns.TypeDNAME && t != dns.TypeRRSIG {
			return false
		}
	}
	return len(c.authority) > 0
}

// Failure is the content of a reply without one: SERVFAIL when a server could
// not be asked.
func Failure(rcode int) *Content {
	c := &Content{Rcode: rcode}
	if rcode == dns.RcodeServerFailure {
		c.TTL = failureTTL
	}
	return c
}

// FromAddrs is the content of a reply about a name of our own (RFC 1035 section
// 3.4.1, RFC 3596): its addresses for A and AAAA, no record of other types. The
// name does not exist when it has no address, or an unspecified one.
func FromAddrs(q *Query, addrs []netip.Addr) *Content {
	c := &Content{}
	if len(addrs) == 0 {
		c.Rcode = dns.RcodeNameError
	}
	for _, a := range addrs {
		if a.IsUnspecified() {
			return &Content{Rcode: dns.RcodeNameError}
		}
		h := dns.RR_Header{Name: q.Name, Rrtype: q.Type, Class: dns.ClassINET, Ttl: uint32(ownTTL / time.Second)}
		switch {
		case q.Type == dns.TypeA && a.Is4():
			c.answer = append(c.answer, &dns.A{Hdr: h, A: a.AsSlice()})
		case q.Type == dns.TypeAAAA && a.Is6():
			c.answer = append(c.answer, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
		default:
			continue
		}
		c.ttls = append(c.ttls, h.Ttl)
	}
	return c
}

// records yields the records of all sections.
func (c *Content) records(yield func(dns.RR) bool) {
	for _, section := range [][]dns.RR{c.answer, c.authority, c.additional} {
		for _, rr := range section {
			if !yield(rr) {
				return
			}
		}
	}
}

// Addrs are the addresses among the records, at most n of them.
func (c *Content) Addrs(n int) []netip.Addr {
	var addrs []netip.Addr
	for _, rr := range c.answer {
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA)
		}
		if a.IsValid() && len(addrs) < n {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// Append appends the reply to q that says c, whose age is since it came, to dst.
// One that is longer than limit in bytes is cut off: it has the question and the
// TC bit, and the client asks again over TCP (RFC 2181 section 9).
//
// The authoritative bit is never set: a forwarder is not the authority.
func (q *Query) Append(dst []byte, c *Content, age time.Duration, limit int) []byte {
	m := q.reply(c.Rcode)
	m.AuthenticatedData = c.Authenticated && (q.Authenticated || q.DNSSEC)
	c.setTTLs(age)
	c.spell(q.Name)
	m.Answer, m.Ns = c.answer, c.authority
	m.Extra = append(c.additional[:len(c.additional):len(c.additional)], m.Extra...)
	wire, err := m.Pack()
	switch {
	case err != nil:
		wire = q.bare(dns.RcodeServerFailure, false)
	case len(wire) > limit:
		wire = q.bare(c.Rcode, true)
	}
	return append(dst, wire...)
}

// AppendCut appends a reply that only says that the client shall ask over TCP.
func (q *Query) AppendCut(dst []byte) []byte {
	return append(dst, q.bare(dns.RcodeSuccess, true)...)
}

// bare is a reply without records.
func (q *Query) bare(rcode int, truncated bool) []byte {
	m := q.reply(rcode)
	m.Truncated = truncated
	wire, err := m.Pack()
	if err != nil {
		// The question is all there is that could not be written.
		m.Question = nil
		wire, _ = m.Pack()
	}
	return wire
}

// reply is the reply without the content.
func (q *Query) reply(rcode int) *dns.Msg {
	m := &dns.Msg{Compress: true}
	m.Id, m.Response, m.Opcode, m.Rcode = q.ID, true, q.Opcode, rcode
	m.RecursionDesired, m.CheckingDisabled = q.RecursionDesired, q.CheckingDisabled
	m.RecursionAvailable = true
	if q.asked {
		m.Question = []dns.Question{{Name: q.Name, Qtype: q.Type, Qclass: q.Class}}
	}
	if q.EDNS {
		m.SetEdns0(MaxUDP, q.DNSSEC)
	}
	return m
}

// setTTLs has the records say what is left of their time.
func (c *Content) setTTLs(age time.Duration) {
	gone := uint32(max(0, age) / time.Second)
	i := 0
	for rr := range c.records {
		rr.Header().Ttl = c.ttls[i] - min(c.ttls[i], gone)
		i++
	}
}

// spell has the records about the name that was asked for show it in the
// client's spelling, some of which compare it.
func (c *Content) spell(name string) {
	for _, rr := range c.answer {
		if h := rr.Header(); len(h.Name) == len(name) && strings.EqualFold(h.Name, name) {
			h.Name = name
		}
	}
}
