package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"3proxyd/ipc"
)

// dnsUpstream is a name server of a test, over UDP and TCP.
type dnsUpstream struct {
	addr  string
	asked atomic.Int64
	mu    sync.Mutex
	last  *dns.Msg
}

// startUpstream has every question answered by f, which gets a reply without
// records to fill; nothing is sent when it returns nil.
func startUpstream(t *testing.T, f func(m *dns.Msg, q dns.Question, tcp bool) *dns.Msg) *dnsUpstream {
	t.Helper()
	checkLeaks(t)
	u := &dnsUpstream{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.addr = l.Addr().String()
	conn, err := net.ListenPacket("udp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(tcp bool) dns.Handler {
		return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			u.asked.Add(1)
			u.mu.Lock()
			u.last = q
			u.mu.Unlock()
			m := new(dns.Msg)
			m.SetReply(q)
			m.RecursionAvailable = true
			if m = f(m, q.Question[0], tcp); m != nil {
				_ = w.WriteMsg(m)
			}
		})
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: handler(true)}, {PacketConn: conn, Handler: handler(false)}} {
		ready, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		go func() {
			defer close(ended)
			_ = s.ActivateAndServe()
		}()
		await(t, ready)
		t.Cleanup(func() {
			_ = s.Shutdown()
			await(t, ended)
		})
	}
	return u
}

func (u *dnsUpstream) lastQuery() *dns.Msg {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// zone answers from records in the form of a zone file.
func zone(t *testing.T, texts ...string) func(m *dns.Msg, q dns.Question, tcp bool) *dns.Msg {
	t.Helper()
	var all []dns.RR
	for _, text := range texts {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rr)
	}
	return func(m *dns.Msg, q dns.Question, tcp bool) *dns.Msg {
		known := false
		for _, rr := range all {
			switch {
			case !strings.EqualFold(rr.Header().Name, q.Name):
			case rr.Header().Rrtype == q.Qtype || q.Qtype == dns.TypeANY:
				m.Answer = append(m.Answer, dns.Copy(rr))
				known = true
			default:
				known = true
			}
		}
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		if len(m.Answer) == 0 {
			soa, _ := dns.NewRR("test. 60 IN SOA ns. admin. 1 2 3 4 30")
			m.Ns = append(m.Ns, soa)
		}
		if opt := m.IsEdns0(); opt == nil && m.Len() > 1232 && !tcp {
			m.Answer, m.Truncated = nil, true
		}
		return m
	}
}

// askDNS sends a query and returns the reply.
func askDNS(t *testing.T, network, addr string, m *dns.Msg) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: 20 * time.Second, UDPSize: 65535}
	r, _, err := c.Exchange(m, addr)
	if err != nil {
		t.Fatalf("%s %v: %v", network, m.Question, err)
	}
	return r
}

func query(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	return m.SetQuestion(name, qtype)
}

// dnsNetworks are those that a dnspr service is asked over.
var dnsNetworks = []string{"tcp", "udp"}

// What is asked for reaches the name server once, and its answer every client.
func TestDNSForwarding(t *testing.T) {
	big := make([]string, 0, 80)
	for i := range 80 {
		big = append(big, fmt.Sprintf("big.test. 60 IN TXT \"%s%d\"", strings.Repeat("x", 20), i))
	}
	up := startUpstream(t, zone(t, append(big,
		"a.test. 300 IN A 192.0.2.1", "a.test. 200 IN AAAA 2001:db8::1", "a.test. 100 IN MX 10 mx.test.",
		"alias.test. 60 IN CNAME a.test.", "unknown.test. 60 IN TYPE65280 \\# 3 010203")...))
	for _, network := range dnsNetworks {
		p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\nnsrecord own.test 192.0.2.9\nnsrecord never.test 0.0.0.0\ndnspr -pPORT\n")
		begin := up.asked.Load()
		for _, test := range []struct {
			name  string
			qtype uint16
			rcode int
			want  string // the end of the first record
		}{
			{"a.test.", dns.TypeA, 0, "192.0.2.1"},
			{"A.Test.", dns.TypeA, 0, "192.0.2.1"},
			{"a.test.", dns.TypeAAAA, 0, "2001:db8::1"},
			{"a.test.", dns.TypeMX, 0, "10 mx.test."},
			{"a.test.", dns.TypeTXT, 0, ""},
			{"alias.test.", dns.TypeCNAME, 0, "a.test."},
			{"unknown.test.", 65280, 0, "010203"},
			{"none.test.", dns.TypeA, dns.RcodeNameError, ""},
			{"own.test.", dns.TypeA, 0, "192.0.2.9"},
			{"OWN.test.", dns.TypeA, 0, "192.0.2.9"},
			{"own.test.", dns.TypeAAAA, 0, ""},
			{"own.test.", dns.TypeMX, 0, ""},
			{"never.test.", dns.TypeA, dns.RcodeNameError, ""},
			{"never.test.", dns.TypeMX, dns.RcodeNameError, ""},
			{"localhost.", dns.TypeA, 0, "127.0.0.1"},
			{"x.onion.", dns.TypeA, dns.RcodeNameError, ""},
			{"a.test.", dns.TypeAXFR, dns.RcodeNotImplemented, ""},
		} {
			for range 2 {
				r := askDNS(t, network, p.addrs[0], query(test.name, test.qtype))
				got := ""
				if len(r.Answer) > 0 {
					got = r.Answer[0].String()
				}
				if r.Rcode != test.rcode || !strings.HasSuffix(got, test.want) || (got == "") != (test.want == "") ||
					r.Authoritative || !r.RecursionAvailable || r.Question[0].Name != test.name {
					t.Errorf("%s %s %s: %v", network, test.name, dns.Type(test.qtype), r)
				}
			}
		}
		if n := up.asked.Load() - begin; n != 7 {
			t.Errorf("%s: the name server was asked %d times, want 7", network, n)
		}

		m := query("a.test.", dns.TypeSRV)
		m.SetEdns0(4096, true)
		m.CheckingDisabled = true
		r := askDNS(t, network, p.addrs[0], m)
		if opt := r.IsEdns0(); opt == nil || !opt.Do() || !r.CheckingDisabled {
			t.Errorf("EDNS of the reply %v", r)
		}
		if last := up.lastQuery(); last.IsEdns0() == nil || !last.IsEdns0().Do() || !last.CheckingDisabled || last.Id == m.Id {
			t.Errorf("forwarded %v", last)
		}
		m = query("a.test.", dns.TypeA)
		m.RecursionDesired = false
		if r := askDNS(t, network, p.addrs[0], m); r.Rcode != dns.RcodeRefused {
			t.Errorf("without RD: %v", r)
		}
		r = askDNS(t, network, p.addrs[0], query("big.test.", dns.TypeTXT))
		if network == "tcp" && len(r.Answer) != 80 || network == "udp" && (!r.Truncated || len(r.Answer) != 0) {
			t.Errorf("%s: %d records, truncated %v", network, len(r.Answer), r.Truncated)
		}
		r = askDNS(t, network, p.addrs[0], query("a.test.", dns.TypeANY))
		if network == "tcp" && len(r.Answer) != 3 || network == "udp" && !r.Truncated {
			t.Errorf("%s: ANY: %v", network, r)
		}
		p.waitOpen(0, 0)
	}
}

// The TTL of what is cached runs down, and what is over is asked for again.
func TestDNSTTL(t *testing.T) {
	up := startUpstream(t, zone(t, "short.test. 1 IN A 192.0.2.1", "long.test. 100 IN A 192.0.2.1"))
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\ndnspr -pPORT\n")
	ttl := func(name string) uint32 {
		t.Helper()
		r := askDNS(t, "tcp", p.addrs[0], query(name, dns.TypeA))
		if len(r.Answer) != 1 {
			t.Fatalf("%s: %v", name, r)
		}
		return r.Answer[0].Header().Ttl
	}
	ttl("short.test.")
	first := ttl("long.test.")
	asked := up.asked.Load()
	deadline := time.Now().Add(20 * time.Second)
	for ttl("long.test.") > first-2 {
		if time.Now().After(deadline) {
			t.Fatal("the TTL does not run down")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if up.asked.Load() != asked {
		t.Error("asked again for what is cached")
	}
	ttl("short.test.")
	if up.asked.Load() != asked+1 {
		t.Errorf("asked %d times for what is over", up.asked.Load()-asked)
	}
}

// Rules decide by client, name and operation.
func TestDNSAccess(t *testing.T) {
	up := startUpstream(t, zone(t, "a.test. 300 IN A 192.0.2.1", "x.bad.test. 300 IN A 192.0.2.2", "127.0.0.1. 300 IN A 192.0.2.3"))
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\nauth iponly\ndeny * * *.bad.test * DNSRESOLVE\ndeny * * 127.0.0.0/8,192.0.2.0/24\nallow * 127.0.0.0/8 * 53 DNSRESOLVE\ndnspr -pPORT\nflush\nallow * * * * HTTP\ndnspr -pPORT\n")
	for _, network := range dnsNetworks {
		for _, test := range []struct {
			service int
			name    string
			rcode   int
		}{
			{0, "a.test.", 0}, {0, "x.bad.test.", dns.RcodeRefused}, {0, "X.BAD.test.", dns.RcodeRefused}, {0, "127.0.0.1.", 0}, {0, ".", dns.RcodeNameError},
			{1, "a.test.", dns.RcodeRefused},
		} {
			if r := askDNS(t, network, p.addrs[2*test.service], query(test.name, dns.TypeA)); r.Rcode != test.rcode {
				t.Errorf("%s %d %s: %s", network, test.service, test.name, dns.RcodeToString[r.Rcode])
			}
		}
	}
	if n := p.counter(0, ipc.Denied) + p.counter(1, ipc.Denied) + p.counter(2, ipc.Denied) + p.counter(3, ipc.Denied); n != uint64(3*len(dnsNetworks)) {
		t.Errorf("%d denied", n)
	}
}

// A name server that fails, lies, loses or is late.
func TestDNSBadUpstream(t *testing.T) {
	var lost atomic.Int64
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, tcp bool) *dns.Msg {
		a, _ := dns.NewRR(q.Name + " 60 IN A 192.0.2.1")
		m.Answer = []dns.RR{a}
		switch q.Name {
		case "silent.test.":
			return nil
		case "lost.test.":
			if lost.Add(1) == 1 {
				return nil
			}
		case "refused.test.":
			m.Rcode = dns.RcodeRefused
		case "servfail.test.":
			m.Rcode = dns.RcodeServerFailure
		case "id.test.":
			m.Id++
		case "question.test.":
			m.Question[0].Name = "other.test."
		case "type.test.":
			m.Question[0].Qtype = dns.TypeMX
		case "truncated.test.":
			if !tcp {
				m.Truncated, m.Answer = true, nil
			}
		case "always.test.":
			m.Truncated, m.Answer = true, nil
		}
		return m
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 2 60 15 5 5\nnserver "+up.addr+"\ndnspr -pPORT\n")
	for _, network := range dnsNetworks {
		t.Run(network, func(t *testing.T) {
			for name, rcode := range map[string]int{
				"good.test.": 0, "lost.test.": 0, "truncated.test.": 0,
				"silent.test.": 2, "refused.test.": 2, "servfail.test.": 2, "id.test.": 2, "question.test.": 2, "type.test.": 2, "always.test.": 2,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r := askDNS(t, network, p.addrs[0], query(name, dns.TypeA))
					if r.Rcode != rcode || (rcode == 0) != (len(r.Answer) == 1) {
						t.Errorf("%v", r)
					}
				})
			}
		})
	}
	p.waitOpen(0, 0)
}

// frame is a query as it goes over TCP.
func frame(t *testing.T, m *dns.Msg) string {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(b)))) + string(b)
}

func readFrame(t *testing.T, r io.Reader) *dns.Msg {
	t.Helper()
	size := readN(t, r, 2)
	m := new(dns.Msg)
	if err := m.Unpack([]byte(readN(t, r, int(binary.BigEndian.Uint16([]byte(size)))))); err != nil {
		t.Fatal(err)
	}
	return m
}

// Queries over one connection, all at once or in pieces, answered in any order;
// a client that finishes gets its answers.
func TestDNSPipelining(t *testing.T) {
	release := make(chan struct{})
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, tcp bool) *dns.Msg {
		if strings.HasPrefix(q.Name, "slow") {
			<-release
		}
		a, _ := dns.NewRR(q.Name + " 60 IN A 192.0.2.1")
		m.Answer = []dns.RR{a}
		return m
	})
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\ndnspr -pPORT\n")

	c := p.dial(0)
	slow, fast := query("slow.test.", dns.TypeA), query("fast.test.", dns.TypeA)
	write(t, c, frame(t, slow)+frame(t, fast))
	if r := readFrame(t, c); r.Id != fast.Id {
		t.Errorf("first reply: %v", r)
	}
	_ = c.CloseWrite()
	close(release)
	if r := readFrame(t, c); r.Id != slow.Id {
		t.Errorf("second reply: %v", r)
	}
	if rest := readAll(t, c); rest != "" {
		t.Errorf("rest %q", rest)
	}
	c.Close()

	// In one-byte pieces.
	c = p.dial(0)
	for _, b := range []byte(frame(t, fast)) {
		write(t, c, string([]byte{b}))
	}
	readFrame(t, c)

	// More than may be outstanding, and than the client reads meanwhile.
	const many = 3000
	go func() {
		var all strings.Builder
		for i := range many {
			m := query(fmt.Sprintf("n%d.test.", i%200), dns.TypeA)
			m.Id = uint16(i)
			b, _ := m.Pack()
			all.Write(binary.BigEndian.AppendUint16(nil, uint16(len(b))))
			all.Write(b)
		}
		_, _ = io.WriteString(c, all.String())
	}()
	seen := map[uint16]bool{}
	for range many {
		r := readFrame(t, c)
		if seen[r.Id] || len(r.Answer) != 1 {
			t.Fatalf("reply %v", r)
		}
		seen[r.Id] = true
	}
	c.Close()
	p.waitOpen(0, 0)
}

// Clients that send no query, half of one, or do not read, cost a connection for
// a time.
func TestDNSHostileClients(t *testing.T) {
	up := startUpstream(t, zone(t, "a.test. 300 IN A 192.0.2.1"))
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 5 1 60 180 1800 2 60 15 5 1\nnserver "+up.addr+"\ndnspr -pPORT\n")
	good := frame(t, query("a.test.", dns.TypeA))
	// Together: some are closed only for their silence.
	var clients []*net.TCPConn
	for _, in := range []string{
		"", "\x00", "\x00\x20half", good[:len(good)-1], good + good[:5],
		"\xff\xff", "\x00\x00", "\x00\x0b" + strings.Repeat("x", 11), "\x00\x0c" + strings.Repeat("\xff", 12),
		"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00",
	} {
		c := p.dial(0)
		write(t, c, in)
		clients = append(clients, c)
	}
	for _, c := range clients {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		c.Close()
	}
	p.waitOpen(0, 0)
	if r := askDNS(t, "tcp", p.addrs[0], query("a.test.", dns.TypeA)); len(r.Answer) != 1 {
		t.Errorf("after them: %v", r)
	}
	for range 20 {
		c := p.dial(0)
		write(t, c, frame(t, query(fmt.Sprintf("%d.test.", time.Now().UnixNano()), dns.TypeA)))
		_ = c.SetLinger(0)
		c.Close()
	}
	p.waitOpen(0, 0)
}

// Every query has a line.
func TestDNSLog(t *testing.T) {
	up := startUpstream(t, zone(t, "a.test. 300 IN A 192.0.2.1"))
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, "internal 127.0.0.1\nlog "+path+"\nlogformat \"L%N %E %n %C [%T] %O\"\nnserver "+up.addr+"\nauth iponly\ndeny * * bad.test\nallow *\ndnspr -pPORT\n")
	for _, m := range []*dns.Msg{query("a.test.", dns.TypeA), query("no.test.", dns.TypeMX), query("bad.test.", dns.TypeA), query("a.test.", dns.TypeAXFR)} {
		askDNS(t, "tcp", p.addrs[0], m)
	}
	want := "DNSPR 00000 a.test 127.0.0.1 [A a.test 192.0.2.1] 24\n" +
		"DNSPR 00100 no.test 127.0.0.1 [MX no.test NXDOMAIN] 25\n" +
		"DNSPR 00001 bad.test 127.0.0.1 [A bad.test REFUSED] 26\n" +
		"DNSPR 00854 a.test 127.0.0.1 [AXFR a.test NOTIMP] 24\n"
	deadline := time.Now().Add(20 * time.Second)
	for {
		got, _ := os.ReadFile(path)
		if string(got) == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("log\n%swant\n%s", got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
