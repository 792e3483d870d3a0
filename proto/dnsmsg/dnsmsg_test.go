package dnsmsg

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// wire is a query for a name and type, changed by the functions.
func wire(t testing.TB, name string, qtype uint16, change ...func(m *dns.Msg)) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	m.Id = 0x1234
	for _, f := range change {
		f(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func edns(size uint16, do bool) func(*dns.Msg) {
	return func(m *dns.Msg) { m.SetEdns0(size, do) }
}

// header is a message that is only its first bytes.
func header(flags uint16, counts ...uint16) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, flags)
	for i := range 4 {
		n := uint16(0)
		if i < len(counts) {
			n = counts[i]
		}
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

func TestParse(t *testing.T) {
	const name = "WwW.Example.Com."
	question := wire(t, name, dns.TypeA)[12:]
	class := func(c uint16) func(*dns.Msg) { return func(m *dns.Msg) { m.Question[0].Qclass = c } }
	tests := []struct {
		name    string
		in      []byte
		verdict Verdict
		rcode   int
	}{
		{"A", wire(t, name, dns.TypeA), Answer, 0},
		{"unknown type", wire(t, name, 65280), Answer, 0},
		{"ANY", wire(t, name, dns.TypeANY), Answer, 0},
		{"root", wire(t, ".", dns.TypeNS), Answer, 0},
		{"EDNS", wire(t, name, dns.TypeA, edns(4096, true)), Answer, 0},
		{"EDNS with options", wire(t, name, dns.TypeA, edns(1232, false), func(m *dns.Msg) {
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}, &dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 500)})
		}), Answer, 0},
		{"signed", wire(t, name, dns.TypeA, func(m *dns.Msg) {
			m.Extra = []dns.RR{&dns.TSIG{Hdr: dns.RR_Header{Name: "k.", Rrtype: dns.TypeTSIG, Class: dns.ClassANY}, Algorithm: dns.HmacSHA256}}
		}), Answer, 0},

		{"empty", nil, Drop, 0},
		{"short", make([]byte, 11), Drop, 0},
		{"reply", wire(t, name, dns.TypeA, func(m *dns.Msg) { m.Response = true }), Drop, 0},
		{"no question", header(0x0100), Refuse, dns.RcodeFormatError},
		{"zeros", make([]byte, 12), Refuse, dns.RcodeFormatError},
		{"question missing", header(0x0100, 1), Refuse, dns.RcodeFormatError},
		{"question cut", append(header(0x0100, 1), question[:len(question)-1]...), Refuse, dns.RcodeFormatError},
		{"two questions", append(append(header(0x0100, 2), question...), question...), Refuse, dns.RcodeFormatError},
		{"answer in query", append(header(0x0100, 1, 1), question...), Refuse, dns.RcodeFormatError},
		{"authority in query", append(header(0x0100, 1, 0, 1), question...), Refuse, dns.RcodeFormatError},
		{"many additional", append(header(0x0100, 1, 0, 0, 65535), question...), Refuse, dns.RcodeFormatError},
		{"additional missing", append(header(0x0100, 1, 0, 0, 1), question...), Refuse, dns.RcodeFormatError},
		{"pointer to itself", append(header(0x0100, 1), 0xc0, 12, 0, 1, 0, 1), Refuse, dns.RcodeFormatError},
		{"label of 64", append(header(0x0100, 1), append([]byte{64}, make([]byte, 80)...)...), Refuse, dns.RcodeFormatError},
		{"too long", append(wire(t, name, dns.TypeA), make([]byte, MaxQuery)...), Refuse, dns.RcodeFormatError},
		{"IQUERY", wire(t, name, dns.TypeA, func(m *dns.Msg) { m.Opcode = 1 }), Refuse, dns.RcodeNotImplemented},
		{"status", header(2 << 11), Refuse, dns.RcodeNotImplemented},
		{"notify", wire(t, name, dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), Refuse, dns.RcodeNotImplemented},
		{"update", wire(t, name, dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), Refuse, dns.RcodeNotImplemented},
		{"AXFR", wire(t, name, dns.TypeAXFR), Refuse, dns.RcodeNotImplemented},
		{"IXFR", wire(t, name, dns.TypeIXFR), Refuse, dns.RcodeNotImplemented},
		{"chaos", wire(t, "version.bind.", dns.TypeTXT, class(dns.ClassCHAOS)), Refuse, dns.RcodeNotImplemented},
		{"any class", wire(t, name, dns.TypeA, class(dns.ClassANY)), Refuse, dns.RcodeNotImplemented},
		{"type 0", wire(t, name, 0), Refuse, dns.RcodeFormatError},
		{"type OPT", wire(t, name, dns.TypeOPT), Refuse, dns.RcodeFormatError},
		{"type TSIG", wire(t, name, dns.TypeTSIG), Refuse, dns.RcodeFormatError},
		{"two OPT", wire(t, name, dns.TypeA, edns(1232, false), func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }), Refuse, dns.RcodeFormatError},
		{"OPT of a name", wire(t, name, dns.TypeA, edns(1232, false), func(m *dns.Msg) { m.Extra[0].Header().Name = "a." }), Refuse, dns.RcodeFormatError},
		{"EDNS version 1", wire(t, name, dns.TypeA, edns(1232, true), func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }), Refuse, dns.RcodeBadVers},
	}
	for _, test := range tests {
		q, verdict, rcode := Parse(test.in)
		if verdict != test.verdict || rcode != test.rcode {
			t.Errorf("%s: %v, %s, want %v, %s", test.name, verdict, dns.RcodeToString[rcode], test.verdict, dns.RcodeToString[test.rcode])
		}
		if verdict == Drop {
			continue
		}
		m := unpack(t, q.Append(nil, Failure(rcode), 0, q.Limit(false)))
		if m.Id != 0x1234 && test.name != "zeros" || !m.Response || m.Rcode != rcode || m.Authoritative || len(m.Answer) > 0 {
			t.Errorf("%s: reply %v", test.name, m)
		}
		if verdict == Answer && m.Question[0].Name != q.Name {
			t.Errorf("%s: reply about %q", test.name, m.Question[0].Name)
		}
	}
}

func unpack(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("% x: %v", b, err)
	}
	return m
}

func records(t testing.TB, texts ...string) (list []dns.RR) {
	t.Helper()
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rr)
	}
	return list
}

func parsed(t testing.TB, b []byte) Query {
	t.Helper()
	q, v, rcode := Parse(b)
	if v != Answer {
		t.Fatalf("%v %d", v, rcode)
	}
	return q
}

// A reply has the client's id, spelling, flags and EDNS, whatever is cached.
func TestReply(t *testing.T) {
	m := new(dns.Msg)
	m.Authoritative, m.AuthenticatedData = true, true
	m.Answer = records(t, "www.example.com. 300 IN CNAME a.example.com.", "a.example.com. 60 IN A 192.0.2.1")
	m.Ns = records(t, "example.com. 10 IN NS ns.example.com.")
	m.Extra = records(t, "ns.example.com. 20 IN A 192.0.2.53")
	m.Extra = append(m.Extra, &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT, Class: 4096}})
	c := FromServer(m)
	if c.TTL != 10*time.Second {
		t.Errorf("TTL %v", c.TTL)
	}
	for _, age := range []time.Duration{0, 3500 * time.Millisecond, time.Hour, 0} {
		q := parsed(t, wire(t, "wWw.eXample.com.", dns.TypeA, func(m *dns.Msg) { m.CheckingDisabled, m.AuthenticatedData = age > 0, age > 0 }))
		r := unpack(t, q.Append([]byte("xx"), c, age, MaxUDP)[2:])
		if r.Id != 0x1234 || r.Authoritative || !r.RecursionAvailable || !r.RecursionDesired || r.Truncated ||
			r.CheckingDisabled != (age > 0) || r.AuthenticatedData != (age > 0) || r.IsEdns0() != nil {
			t.Errorf("reply %v", r)
		}
		if r.Question[0].Name != "wWw.eXample.com." || r.Answer[0].Header().Name != "wWw.eXample.com." || r.Answer[1].Header().Name != "a.example.com." {
			t.Errorf("names of %v", r)
		}
		gone := uint32(age / time.Second)
		if got, want := r.Answer[1].Header().Ttl, 60-min(60, gone); got != want || len(r.Ns) != 1 || len(r.Extra) != 1 {
			t.Errorf("TTL %d after %v, want %d", got, age, want)
		}
	}
	q := parsed(t, wire(t, "www.example.com.", dns.TypeA, edns(4096, true)))
	r := unpack(t, q.Append(nil, c, 0, q.Limit(false)))
	if opt := r.IsEdns0(); opt == nil || !opt.Do() || opt.UDPSize() != MaxUDP || !r.AuthenticatedData || opt.Version() != 0 {
		t.Errorf("EDNS of %v", r)
	}
	r = unpack(t, q.AppendCut(nil))
	if !r.Truncated || len(r.Answer) != 0 || r.IsEdns0() == nil {
		t.Errorf("cut: %v", r)
	}
}

// What does not fit is cut off, whole, and the limit is the client's.
func TestTruncation(t *testing.T) {
	m := new(dns.Msg)
	for i := range 60 {
		m.Answer = append(m.Answer, records(t, fmt.Sprintf("big.test. 60 IN TXT %q", strings.Repeat("x", 10)+fmt.Sprint(i)))...)
	}
	c := FromServer(m)
	for _, test := range []struct {
		change func(*dns.Msg)
		tcp    bool
		limit  int
		cut    bool
	}{
		{func(*dns.Msg) {}, false, 512, true},
		{edns(0, false), false, 512, true},
		{edns(100, false), false, 512, true},
		{edns(1000, false), false, 1000, true},
		{edns(65535, false), false, MaxUDP, true},
		{func(*dns.Msg) {}, true, MaxTCP, false},
		{edns(100, false), true, MaxTCP, false},
	} {
		q := parsed(t, wire(t, "big.test.", dns.TypeTXT, test.change))
		if q.Limit(test.tcp) != test.limit {
			t.Errorf("limit %d, want %d", q.Limit(test.tcp), test.limit)
		}
		b := q.Append(nil, c, 0, q.Limit(test.tcp))
		r := unpack(t, b)
		if len(b) > test.limit || r.Truncated != test.cut || test.cut == (len(r.Answer) == 60) || r.Question[0].Name != "big.test." {
			t.Errorf("limit %d: %d bytes, truncated %v, %d records", test.limit, len(b), r.Truncated, len(r.Answer))
		}
	}
}

// How long answers may be kept.
func TestTTL(t *testing.T) {
	const soa = "test. 400 IN SOA ns. admin. 1 2 3 4 "
	for _, test := range []struct {
		name          string
		rcode         int
		answer, other []dns.RR
		want          time.Duration
	}{
		{"lowest", 0, records(t, "a.test. 60 IN A 192.0.2.1", "a.test. 30 IN A 192.0.2.2"), nil, 30 * time.Second},
		{"zero", 0, records(t, "a.test. 0 IN A 192.0.2.1"), nil, 0},
		{"top bit", 0, records(t, "a.test. 4294967295 IN A 192.0.2.1"), nil, 0},
		{"long", 0, records(t, "a.test. 2000000000 IN A 192.0.2.1"), nil, 24 * time.Hour},
		{"no data", 0, nil, records(t, soa+"50"), 50 * time.Second},
		{"no data for long", 0, nil, records(t, soa+"5000"), 300 * time.Second},
		{"no data without SOA", 0, nil, nil, 0},
		{"alias to nothing", 0, records(t, "a.test. 60 IN CNAME b.test."), records(t, soa+"50"), 50 * time.Second},
		{"no such name", dns.RcodeNameError, nil, records(t, soa+"20"), 20 * time.Second},
		{"no such name, SOA of short life", dns.RcodeNameError, nil, records(t, "test. 5 IN SOA ns. admin. 1 2 3 4 20"), 5 * time.Second},
		{"no such name without SOA", dns.RcodeNameError, nil, nil, 0},
		{"refused", dns.RcodeRefused, nil, records(t, soa+"20"), 0},
	} {
		m := new(dns.Msg)
		m.Rcode, m.Answer, m.Ns = test.rcode, test.answer, test.other
		if c := FromServer(m); c.TTL != test.want {
			t.Errorf("%s: %v, want %v", test.name, c.TTL, test.want)
		}
	}
	if c := Failure(dns.RcodeServerFailure); c.TTL <= 0 || c.TTL > 5*time.Second {
		t.Errorf("failure is kept for %v", c.TTL)
	}
}

func TestOwnRecords(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, test := range []struct {
		addrs []netip.Addr
		qtype uint16
		rcode int
		want  int
	}{
		{addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), dns.TypeA, 0, 2},
		{addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), dns.TypeAAAA, 0, 1},
		{addrs("192.0.2.1"), dns.TypeAAAA, 0, 0},
		{addrs("192.0.2.1"), dns.TypeMX, 0, 0},
		{addrs("192.0.2.1"), dns.TypeANY, 0, 0},
		{addrs("0.0.0.0"), dns.TypeA, dns.RcodeNameError, 0},
		{addrs("0.0.0.0"), dns.TypeMX, dns.RcodeNameError, 0},
		{addrs("::"), dns.TypeAAAA, dns.RcodeNameError, 0},
		{nil, dns.TypeA, dns.RcodeNameError, 0},
	} {
		q := parsed(t, wire(t, "Own.test.", test.qtype))
		r := unpack(t, q.Append(nil, FromAddrs(&q, test.addrs), 0, MaxUDP))
		if r.Rcode != test.rcode || len(r.Answer) != test.want || r.Authoritative {
			t.Errorf("%v, type %d: %v", test.addrs, test.qtype, r)
		}
		for _, rr := range r.Answer {
			if rr.Header().Name != "Own.test." || rr.Header().Ttl == 0 {
				t.Errorf("record %v", rr)
			}
		}
	}
}

func TestCache(t *testing.T) {
	c := NewCache(2, 1<<20)
	key := func(name string) Key { return Key{Name: name, Type: dns.TypeA} }
	content := func(ttl time.Duration) *Content { return &Content{TTL: ttl, size: 100} }
	present := func(name string, now int64, want bool) {
		t.Helper()
		if got, _ := c.Get(key(name), now); (got != nil) != want {
			t.Errorf("%s at %d: %v, want %v", name, now, got != nil, want)
		}
	}
	c.Put(key("a."), content(time.Second), 0)
	c.Put(key("b."), content(time.Hour), 500)
	present("a.", 999, true)
	if _, age := c.Get(key("b."), 2500); age != 2*time.Second {
		t.Errorf("age %v", age)
	}
	present("a.", 1000, false)
	c.Put(key("c."), content(time.Hour), 1000)
	present("b.", 1000, true)
	c.Put(key("d."), content(time.Hour), 1000)
	present("c.", 1000, false)
	present("b.", 1000, true)
	c.Put(key("e."), content(0), 1000)
	present("e.", 1000, false)
	c.Put(key("d."), content(0), 1000)
	present("d.", 1000, false)
	if got, _ := c.Get(Key{Name: "b.", Type: dns.TypeA, Flags: DNSSEC}, 1000); got != nil {
		t.Error("found with other flags")
	}

	small := NewCache(1000, 16<<10)
	for i := range 200 {
		small.Put(key(fmt.Sprint(i)), &Content{TTL: time.Hour, size: 500}, 0)
	}
	if small.bytes > small.maxBytes || len(small.entries) < 10 || len(small.entries) > 30 {
		t.Errorf("%d contents of %d bytes", len(small.entries), small.bytes)
	}
	small.Put(key("huge"), &Content{TTL: time.Hour, size: 2000}, 0)
	if got, _ := small.Get(key("huge"), 0); got != nil {
		t.Error("one content takes too much")
	}
}

// FuzzParse: whatever comes has a reply that can be read, or none, and a
// question that is forwarded has a reply that fits.
func FuzzParse(f *testing.F) {
	f.Add(wire(f, "WwW.Example.Com.", dns.TypeA, edns(4096, true)))
	f.Add(wire(f, `a\.b\000.test.`, dns.TypeTXT))
	f.Add(wire(f, ".", dns.TypeANY))
	f.Add(header(0x0100, 1, 0, 0, 2))
	f.Add(append(header(0x0100, 1), 0xc0, 12, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, in []byte) {
		q, verdict, rcode := Parse(in)
		if verdict == Drop {
			return
		}
		c := Failure(rcode)
		if verdict == Answer {
			if key := q.Key(); key.Name == "" || !dns.IsFqdn(key.Name) {
				t.Fatalf("key %+v", key)
			}
			c = FromAddrs(&q, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")})
		}
		limit := q.Limit(false)
		b := q.Append(nil, c, 0, limit)
		if len(b) > limit || len(b) < headerSize {
			t.Fatalf("reply of %d bytes, limit %d", len(b), limit)
		}
		m := unpack(t, b)
		if m.Id != q.ID || !m.Response || verdict == Answer && m.Question[0].Qtype != q.Type {
			t.Fatalf("reply %v to %+v", m, q)
		}
		if again, v, _ := Parse(b); v != Drop {
			t.Fatalf("a reply is taken for a query: %+v", again)
		}
	})
}

// FuzzContent: whatever a server answers can be kept and passed on.
func FuzzContent(f *testing.F) {
	m := new(dns.Msg)
	m.SetQuestion("a.test.", dns.TypeA)
	m.Response = true
	m.Answer = records(f, "A.test. 60 IN CNAME b.test.", "b.test. 5 IN A 192.0.2.1", "b.test. 5 IN TXT x")
	m.Ns = records(f, "test. 60 IN SOA ns. admin. 1 2 3 4 5")
	m.SetEdns0(1232, true)
	b, _ := m.Pack()
	f.Add(b, "a.test.")
	f.Fuzz(func(t *testing.T, in []byte, name string) {
		m := new(dns.Msg)
		if m.Unpack(in) != nil {
			return
		}
		if _, ok := dns.IsDomainName(name); !ok || name == "" {
			name = "a.test."
		}
		q := Query{ID: 7, Name: dns.Fqdn(name), Type: dns.TypeA, Class: dns.ClassINET, EDNS: true, Size: 1232, asked: true}
		c := FromServer(m)
		if c.TTL < 0 || c.TTL > maxTTL {
			t.Fatalf("TTL %v", c.TTL)
		}
		for _, age := range []time.Duration{0, time.Second, time.Hour} {
			for _, limit := range []int{MinUDP, MaxUDP, MaxTCP} {
				b := q.Append(nil, c, age, limit)
				if len(b) > limit {
					t.Fatalf("%d bytes, limit %d", len(b), limit)
				}
				if r := unpack(t, b); r.Id != 7 || r.Authoritative {
					t.Fatalf("reply %v", r)
				}
			}
		}
	})
}
