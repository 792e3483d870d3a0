// Package dnsmsg reads the queries of DNS clients and writes the replies of a
// forwarder, without I/O, and keeps the answers it has got (RFC 1035, RFC 2308,
// RFC 6891).
package dnsmsg

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

const (
	// MaxQuery is the longest query that is read, in bytes: names and options
	// leave room to spare.
	MaxQuery = 4096
	// MaxUDP is the longest reply over UDP, in bytes: what passes without
	// fragments (DNS flag day 2020). It is what the replies offer by EDNS.
	MaxUDP = 1232
	// MinUDP is what every client takes (RFC 1035 section 2.3.4).
	MinUDP = 512
	// MaxTCP is the longest message over TCP, in bytes.
	MaxTCP = 65535
	// headerSize is that of every message, in bytes.
	headerSize = 12
	// maxAdditional bounds the records that come with a query: OPT, and one
	// that signs it.
	maxAdditional = 2
)

// Query is the question of a client, with what its reply depends on.
type Query struct {
	ID uint16
	// Name is the name in the client's spelling, with a final dot.
	Name   string
	Type   uint16
	Class  uint16
	Opcode int

	RecursionDesired bool
	Authenticated    bool // AD, RFC 6840 section 5.7
	CheckingDisabled bool

	// EDNS says that the query has an OPT record, DNSSEC that DO is set in it.
	// Size is the longest reply, in bytes, that the client takes over UDP.
	EDNS   bool
	DNSSEC bool
	Size   int
	// asked says that the question has been read, so that replies have it.
	asked bool
}

// Verdict is what is to be done with a query.
type Verdict int

// The verdicts.
const (
	// Drop: it is none, or so broken that a reply has no id.
	Drop Verdict = iota
	// Refuse: it is answered with the response code.
	Refuse
	// Answer: it is a question.
	Answer
)

// Parse reads a query. With Refuse it returns the response code for the reply.
func Parse(wire []byte) (q Query, v Verdict, rcode int) {
	if len(wire) < headerSize {
		return q, Drop, 0
	}
	flags := binary.BigEndian.Uint16(wire[2:])
	// A reply that is answered could be answered in turn without end.
	if flags&0x8000 != 0 {
		return q, Drop, 0
	}
	q.ID = binary.BigEndian.Uint16(wire)
	q.Opcode = int(flags >> 11 & 15)
	q.RecursionDesired = flags&0x0100 != 0
	q.CheckingDisabled = flags&0x0010 != 0
	q.Authenticated = flags&0x0020 != 0
	q.Size = MinUDP
	count := func(i int) int { return int(binary.BigEndian.Uint16(wire[4+2*i:])) }
	switch {
	case len(wire) > MaxQuery:
		return q, Refuse, dns.RcodeFormatError
	case q.Opcode != dns.OpcodeQuery:
		return q, Refuse, dns.RcodeNotImplemented
	case count(0) != 1 || count(1) != 0 || count(2) != 0 || count(3) > maxAdditional:
		return q, Refuse, dns.RcodeFormatError
	}
	var m dns.Msg
	if err := m.Unpack(wire); err != nil || len(m.Question) != 1 || len(m.Extra) != count(3) {
		return q, Refuse, dns.RcodeFormatError
	}
	question := m.Question[0]
	q.Name, q.Type, q.Class, q.asked = question.Name, question.Qtype, question.Qclass, true
	if rcode := q.readOPT(&m); rcode != dns.RcodeSuccess {
		return q, Refuse, rcode
	}
	if rcode := q.check(); rcode != dns.RcodeSuccess {
		return q, Refuse, rcode
	}
	return q, Answer, dns.RcodeSuccess
}

// readOPT reads the OPT record (RFC 6891 section 6.1).
func (q *Query) readOPT(m *dns.Msg) (rcode int) {
	for _, rr := range m.Extra {
		opt, ok := rr.(*dns.OPT)
		switch {
		case !ok:
			continue
		case q.EDNS:
			return dns.RcodeFormatError
		}
		q.EDNS, q.DNSSEC = true, opt.Do()
		q.Size = max(MinUDP, int(opt.UDPSize()))
		if opt.Hdr.Name != "." {
			return dns.RcodeFormatError
		}
		if opt.Version() != 0 {
			return dns.RcodeBadVers
		}
	}
	return dns.RcodeSuccess
}

// check refuses what is no question that can be forwarded: zone transfers, of
// many messages, and types that are none of records.
func (q *Query) check() (rcode int) {
	switch q.Type {
	case dns.TypeNone, dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY:
		return dns.RcodeFormatError
	case dns.TypeAXFR, dns.TypeIXFR:
		return dns.RcodeNotImplemented
	}
	if q.Class != dns.ClassINET {
		return dns.RcodeNotImplemented
	}
	return dns.RcodeSuccess
}

// Limit is the longest reply in bytes that the client may be sent.
func (q *Query) Limit(tcp bool) int {
	if tcp {
		return MaxTCP
	}
	return min(max(q.Size, MinUDP), MaxUDP)
}
