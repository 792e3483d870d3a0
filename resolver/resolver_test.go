package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"3proxyd/config"
)

const (
	patient = 10 * time.Second
	soaText = ". 900 IN SOA ns. admin. 1 2 3 4 60"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, soaText,
		"a.test. 300 IN A 192.0.2.1",
		"a.test. 200 IN AAAA 2001:db8::1",
		"four.test. 100 IN A 192.0.2.4",
		"six.test. 100 IN AAAA 2001:db8::6",
		"alias.test. 50 IN CNAME middle.test.",
		"middle.test. 20 IN CNAME A.test.",
		"dangling.test. 30 IN CNAME nowhere.test.",
		"loop.test. 30 IN CNAME loop.test.",
		"zero.test. 0 IN A 192.0.2.2",
		"long.test. 2000000000 IN A 192.0.2.3",
		"blocked.test. 60 IN A 0.0.0.0",
		"mapped.test. 60 IN AAAA ::ffff:127.0.0.1",
		"compatible.test. 60 IN AAAA ::127.0.0.1",
		"under_score.test. 60 IN A 192.0.2.5",
		"0x7f.1. 60 IN A 192.0.2.6",
		"2130706433. 60 IN A 192.0.2.7",
		"127.0.0.1. 60 IN A 192.0.2.8",
	)
	r := newTestResolver(t, patient, s.addr)
	tests := []struct {
		name string
		want Family
		text string
		ttl  time.Duration
	}{
		{"a.test", V4, "192.0.2.1", 300 * time.Second},
		{"a.test", V6, "2001:db8::1", 200 * time.Second},
		{"A.Test.", Both, "192.0.2.1 2001:db8::1", 200 * time.Second},
		{"four.test", Both, "192.0.2.4", 100 * time.Second},
		{"six.test", Both, "2001:db8::6", 60 * time.Second},
		{"four.test", V6, ErrNotFound.Error(), 60 * time.Second},
		{"alias.test", V4, "192.0.2.1", 20 * time.Second},
		{"dangling.test", V4, ErrNotFound.Error(), 30 * time.Second},
		{"nowhere.test", Both, ErrNotFound.Error(), 60 * time.Second},
		{"zero.test", V4, "192.0.2.2", time.Second},
		{"long.test", V4, "192.0.2.3", 24 * time.Hour},
		{"blocked.test", V4, ErrNotFound.Error(), 5 * time.Second},
		{"mapped.test", V6, ErrNotFound.Error(), 5 * time.Second},
		{"compatible.test", V6, ErrNotFound.Error(), 5 * time.Second},
		{"under_score.test", V4, "192.0.2.5", 60 * time.Second},
		{"0x7f.1", V4, "192.0.2.6", 60 * time.Second},
		{"0X7F.1.", V4, "192.0.2.6", 60 * time.Second},
		{"2130706433", V4, "192.0.2.7", 60 * time.Second},
		{"127.0.0.1.", V4, "192.0.2.8", 60 * time.Second},
		{"127.0.0.1", V4, "127.0.0.1", 24 * time.Hour},
		{"127.1", V4, ErrNotFound.Error(), 60 * time.Second},
		{"017700000001", V4, ErrNotFound.Error(), 60 * time.Second},
	}
	for _, tt := range tests {
		a := r.Lookup(context.Background(), tt.name, tt.want)
		if text(a) != tt.text || a.TTL != tt.ttl {
			t.Errorf("%s, family %d: %s for %v, want %s for %v", tt.name, tt.want, text(a), a.TTL, tt.text, tt.ttl)
		}
	}
	if a := r.Lookup(context.Background(), "loop.test", V4); !errors.Is(a.Err, ErrTemporary) {
		t.Errorf("loop: %s", text(a))
	}
}

func TestLookupWithoutServer(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	r := newTestResolver(t, patient, s.addr)
	r.static = map[string][]netip.Addr{
		"static.test": {netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("192.0.2.5")},
		"never.test":  {netip.MustParseAddr("0.0.0.0")},
		"127.1":       {netip.MustParseAddr("192.0.2.6")},
		"127.0.0.1":   {netip.MustParseAddr("192.0.2.7")},
	}
	notFound := ErrNotFound.Error()
	tests := []struct {
		name string
		want Family
		text string
	}{
		{"static.test", Both, "192.0.2.5 2001:db8::5"},
		{"STATIC.test.", V6, "2001:db8::5"},
		{"never.test", Both, notFound},
		{"localhost", Both, "127.0.0.1 ::1"},
		{"x.LOCALHOST", V4, "127.0.0.1"},
		{"x.invalid", Both, notFound},
		{"abc.onion", Both, notFound},
		{"192.0.2.9", Both, "192.0.2.9"},
		{"192.0.2.9", V6, notFound},
		{"[2001:db8::9]", Both, "2001:db8::9"},
		{"::ffff:192.0.2.9", V4, "192.0.2.9"},
		{"0.0.0.0", V4, notFound},
		{"fe80::1%lo", Both, notFound},
		{"", Both, notFound}, {".", Both, notFound}, {"a..b", Both, notFound}, {".a", Both, notFound},
		{"[a.test]", Both, notFound}, {"[192.0.2.1]", Both, notFound}, {"a b.test", Both, notFound},
		{"a\x00.test", Both, notFound}, {"\u00e9.test", Both, notFound},
		{"::192.0.2.9", V4, "192.0.2.9"},
		{"127.1", Both, "192.0.2.6"}, {"127.0.0.1.", Both, "192.0.2.7"}, {"127.0.0.1", Both, "127.0.0.1"},
		{strings.Repeat("a", 64) + ".test", Both, notFound},
		{strings.Repeat("a.", 130) + "test", Both, notFound},
	}
	for _, tt := range tests {
		a := r.Lookup(context.Background(), tt.name, tt.want)
		if text(a) != tt.text || a.TTL <= 0 {
			t.Errorf("%q: %s for %v, want %s", tt.name, text(a), a.TTL, tt.text)
		}
	}
	if n := s.udp.Load() + s.tcp.Load(); n != 0 {
		t.Errorf("%d questions reached the server", n)
	}
}

func TestAddressCap(t *testing.T) {
	t.Parallel()
	var records []string
	for i := range 30 {
		records = append(records, fmt.Sprintf("many.test. 60 IN A 192.0.2.%d", i+1), fmt.Sprintf("many.test. 60 IN AAAA 2001:db8::%x", i+1))
	}
	r := newTestResolver(t, patient, newFakeServer(t, records...).addr)
	for want, four := range map[Family]int{V4: 16, V6: 0, Both: 8} {
		a := r.Lookup(context.Background(), "many.test", want)
		n := 0
		for _, addr := range a.Addrs {
			if addr.Is4() {
				n++
			}
		}
		if a.Err != nil || len(a.Addrs) != MaxAddrs || n != four {
			t.Errorf("family %d: %d addresses, %d of them IPv4: %v", want, len(a.Addrs), n, a.Err)
		}
	}
}

func TestTruncation(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "big.test. 60 IN A 192.0.2.1")
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, tcp bool) bool {
		if tcp {
			return false
		}
		m := new(dns.Msg)
		m.SetReply(q)
		m.Truncated = true
		rr, _ := dns.NewRR("big.test. 60 IN A 203.0.113.66")
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
		return true
	})
	r := newTestResolver(t, patient, s.addr)
	if a := r.Lookup(context.Background(), "big.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
	if s.tcp.Load() != 1 {
		t.Errorf("%d questions over TCP", s.tcp.Load())
	}
}

func TestTCPServer(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	r, err := New(config.Resolver{Servers: []config.NameServer{{Addr: s.addr, TCP: true}}}, patient)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
	if s.udp.Load() != 0 || s.tcp.Load() != 1 {
		t.Errorf("%d questions over UDP, %d over TCP", s.udp.Load(), s.tcp.Load())
	}
}

// refusing answers every question with the code.
func refusing(code int) func(dns.ResponseWriter, *dns.Msg, bool) bool {
	return func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		m := new(dns.Msg)
		m.SetRcode(q, code)
		_ = w.WriteMsg(m)
		return true
	}
}

func TestNextServer(t *testing.T) {
	t.Parallel()
	failing, referring := newFakeServer(t), newFakeServer(t)
	failing.setHandle(refusing(dns.RcodeServerFailure))
	referring.setHandle(refusing(dns.RcodeSuccess))
	good := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	for name, first := range map[string]netip.AddrPort{
		"silent": dropped(t), "closed": refused(t), "failing": failing.addr, "referring": referring.addr,
	} {
		r := newTestResolver(t, 200*time.Millisecond, first, good.addr)
		if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
			t.Errorf("after a %s server: %s", name, text(a))
		}
	}
}

func TestSilentServerComesLast(t *testing.T) {
	t.Parallel()
	good := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	r := newTestResolver(t, time.Second, dropped(t), good.addr)
	r.Lookup(context.Background(), "a.test", V4)
	start := time.Now()
	if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
	if d := time.Since(start); d > 900*time.Millisecond {
		t.Errorf("the second lookup waited %v for the silent server", d)
	}
}

func TestServersShareTheDeadline(t *testing.T) {
	t.Parallel()
	good := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	r := newTestResolver(t, time.Hour, dropped(t), good.addr)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a := r.Lookup(ctx, "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
}

func TestTemporaryFailure(t *testing.T) {
	t.Parallel()
	failing := newFakeServer(t)
	failing.setHandle(refusing(dns.RcodeRefused))
	for name, addr := range map[string]netip.AddrPort{"silent": dropped(t), "closed": refused(t), "refusing": failing.addr} {
		r := newTestResolver(t, 100*time.Millisecond, addr)
		a := r.Lookup(context.Background(), "a.test", Both)
		if !errors.Is(a.Err, ErrTemporary) || errors.Is(a.Err, ErrNotFound) || a.TTL != temporaryTTL {
			t.Errorf("%s server: %s for %v", name, text(a), a.TTL)
		}
	}
	r := newTestResolver(t, patient, dropped(t))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	a := r.Lookup(ctx, "a.test", V4)
	if !errors.Is(a.Err, ErrTemporary) || a.TTL != 0 || time.Since(start) > patient/2 {
		t.Errorf("called off: %s for %v after %v", text(a), a.TTL, time.Since(start))
	}
	if r.plan.servers[0].down(time.Now()) {
		t.Error("a lookup that was called off counts against the server")
	}
}

func TestResend(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(dns.ResponseWriter, *dns.Msg, bool) bool { return s.udp.Load() == 1 })
	r := newTestResolver(t, patient, s.addr)
	if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
}

func TestSilentAboutIPv6(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(_ dns.ResponseWriter, q *dns.Msg, _ bool) bool { return q.Question[0].Qtype == dns.TypeAAAA })
	r := newTestResolver(t, patient, s.addr)
	start := time.Now()
	a := r.Lookup(context.Background(), "a.test", Both)
	if text(a) != "192.0.2.1" || a.TTL > temporaryTTL || time.Since(start) > patient/2 {
		t.Errorf("%s for %v after %v", text(a), a.TTL, time.Since(start))
	}
}

func TestWithoutEDNS(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		if q.IsEdns0() == nil {
			return false
		}
		m := &dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Rcode: dns.RcodeFormatError}}
		_ = w.WriteMsg(m)
		return true
	})
	r := newTestResolver(t, patient, s.addr)
	for range 2 {
		if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
			t.Errorf("%s", text(a))
		}
	}
	if n := s.udp.Load(); n != 3 {
		t.Errorf("%d questions, want 3", n)
	}
}

func TestIterativeServer(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		name := q.Question[0].Name
		if name == "a.test." {
			return false
		}
		m := new(dns.Msg)
		m.SetReply(q)
		m.Authoritative = true
		target := map[string]string{"www.test.": "mid.test.", "mid.test.": "a.test."}[name]
		if target == "" {
			target = "x" + name
		}
		rr, _ := dns.NewRR(fmt.Sprintf("%s 7 IN CNAME %s", name, target))
		m.Answer = []dns.RR{rr}
		_ = w.WriteMsg(m)
		return true
	})
	r := newTestResolver(t, patient, s.addr)
	if a := r.Lookup(context.Background(), "www.test", V4); text(a) != "192.0.2.1" || a.TTL != 7*time.Second {
		t.Errorf("%s for %v", text(a), a.TTL)
	}
	before := s.udp.Load()
	if a := r.Lookup(context.Background(), "endless.test", V4); !errors.Is(a.Err, ErrTemporary) {
		t.Errorf("endless aliases: %s", text(a))
	}
	if n := s.udp.Load() - before; n > maxRequery {
		t.Errorf("%d questions for endless aliases", n)
	}
}

// TestForgedAnswers sends answers that differ from the right one in one thing
// before that one.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	forge := func(q *dns.Msg, change func(*dns.Msg)) []byte {
		m := s.answer(q)
		rr, _ := dns.NewRR("a.test. 60 IN A 203.0.113.66")
		m.Answer = []dns.RR{rr}
		change(m)
		wire, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return wire
	}
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		forged := [][]byte{
			forge(q, func(m *dns.Msg) { m.Id++ }),
			forge(q, func(m *dns.Msg) { m.Question[0].Name = "b.test." }),
			forge(q, func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }),
			forge(q, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }),
			forge(q, func(m *dns.Msg) { m.Question = nil }),
			forge(q, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
			forge(q, func(m *dns.Msg) { m.Response = false }),
			forge(q, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }),
			{}, {1}, make([]byte, 12), make([]byte, 3000),
		}
		for _, wire := range forged {
			_, _ = w.Write(wire)
		}
		_, _ = other.WriteTo(forge(q, func(*dns.Msg) {}), w.RemoteAddr())
		return false
	})
	r := newTestResolver(t, patient, s.addr)
	for range 5 {
		if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
			t.Fatalf("%s", text(a))
		}
	}
	if s.tcp.Load() != 0 {
		t.Error("a few forged answers led to TCP")
	}
}

func TestFloodOfForgedAnswers(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, tcp bool) bool {
		if tcp {
			return false
		}
		m := s.answer(q)
		for range maxStray + 1 {
			m.Id++
			_ = w.WriteMsg(m)
		}
		return true
	})
	r := newTestResolver(t, patient, s.addr)
	if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
	if s.tcp.Load() != 1 {
		t.Errorf("%d questions over TCP, want 1", s.tcp.Load())
	}
}

// TestMissingRecords has a server announce more records than it sends.
func TestMissingRecords(t *testing.T) {
	t.Parallel()
	for section := range 3 {
		s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
		s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
			wire, err := s.answer(q).Pack()
			if err != nil {
				t.Error(err)
			}
			wire[7+2*section] += 5
			_, _ = w.Write(wire)
			return true
		})
		r := newTestResolver(t, patient, s.addr)
		if a := r.Lookup(context.Background(), "a.test", V4); a.Err == nil {
			t.Errorf("section %d: %s", section, text(a))
		}
	}
}

// TestUnrelatedRecords checks that records for other names are not used.
func TestUnrelatedRecords(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		m := s.answer(q)
		rr, _ := dns.NewRR("other.test. 60 IN A 203.0.113.66")
		m.Answer = append([]dns.RR{rr}, m.Answer...)
		_ = w.WriteMsg(m)
		return true
	})
	r := newTestResolver(t, patient, s.addr)
	if a := r.Lookup(context.Background(), "a.test", V4); text(a) != "192.0.2.1" {
		t.Errorf("%s", text(a))
	}
}

func TestIDsAndPortsDiffer(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	ids, ports := map[uint16]bool{}, map[string]bool{}
	s.setHandle(func(w dns.ResponseWriter, q *dns.Msg, _ bool) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		ids[q.Id] = true
		ports[w.RemoteAddr().String()] = true
		return false
	})
	r := newTestResolver(t, patient, s.addr)
	for range 50 {
		r.Lookup(context.Background(), "a.test", V4)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) < 45 || len(ports) < 30 {
		t.Errorf("%d ids and %d ports in 50 questions", len(ids), len(ports))
	}
}

func TestSystemFiles(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t, soaText,
		"host.corp.test. 60 IN A 192.0.2.1",
		"a.b.test. 60 IN A 192.0.2.2",
		"a.b.corp.test. 60 IN A 192.0.2.3",
		"rooted.corp.test. 60 IN A 192.0.2.4",
	)
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	write := func(path, text string, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	write(conf, "search corp.test\noptions timeout:9 attempts:1\nnameserver 127.0.0.1\n", time.Hour)
	write(hosts, "192.0.2.77 filed.test filed # a comment\n2001:db8::77 Filed.Test\n0.0.0.0 ads.test\n", time.Hour)

	r, err := New(config.Resolver{}, patient)
	if err != nil {
		t.Fatal(err)
	}
	r.system = newSystem(conf, hosts, patient)
	usePort := func() {
		p, _ := r.system.current(time.Now())
		for _, srv := range p.servers {
			srv.addr = netip.AddrPortFrom(srv.addr.Addr(), s.addr.Port())
		}
	}
	check := func(name, want string) {
		t.Helper()
		if a := r.Lookup(context.Background(), name, V4); text(a) != want {
			t.Errorf("%s: %s, want %s", name, text(a), want)
		}
	}
	usePort()
	check("host", "192.0.2.1")
	check("a.b.test", "192.0.2.2")
	check("a.b", "192.0.2.3")
	check("rooted.", ErrNotFound.Error())
	check("filed.test", "192.0.2.77")
	check("ads.test", ErrNotFound.Error())
	if a := r.Lookup(context.Background(), "FILED", Both); text(a) != "192.0.2.77" {
		t.Errorf("%s", text(a))
	}

	write(hosts, "192.0.2.78 filed.test\n", 0)
	write(conf, "nameserver 127.0.0.1\nsearch other.test\n", 0)
	check("filed.test", "192.0.2.77") // not looked at yet
	r.system.next = time.Time{}
	usePort()
	check("filed.test", "192.0.2.78")
	check("host", ErrNotFound.Error())

	if err := os.Remove(hosts); err != nil {
		t.Fatal(err)
	}
	r.system.next = time.Time{}
	check("filed.test", "192.0.2.78")
}

func TestParseResolvConf(t *testing.T) {
	t.Parallel()
	p := parseResolvConf([]byte("# comment\n; another\nnameserver 192.0.2.1\nnameserver bad\nnameserver fe80::1%eth0\n"+
		"domain d.test\nsearch a.test B.test. -bad!\noptions ndots:99 timeout:2 attempts:7 rotate use-vc edns0 x:y\n"+
		"nameserver 192.0.2.2\nnameserver 192.0.2.3\n"), 10*time.Second)
	var servers []string
	for _, s := range p.servers {
		servers = append(servers, fmt.Sprint(s.addr, s.tcp))
	}
	got := fmt.Sprint(servers, p.search, p.ndots, p.timeout, p.attempts, p.rotate)
	want := "[192.0.2.1:53 true [fe80::1%eth0]:53 true 192.0.2.2:53 true] [a.test b.test] 15 2s 5 true"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if p = parseResolvConf(nil, time.Second); len(p.servers) != 1 || p.servers[0].addr.String() != "127.0.0.1:53" || p.timeout != time.Second {
		t.Errorf("empty file: %v", p)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	p := &plan{servers: []*server{{}, {}, {}}, rotate: true}
	for i := range 6 {
		if got := p.ordered(time.Now()); got[0] != p.servers[i%3] || len(got) != 3 {
			t.Errorf("turn %d begins with the wrong server", i)
		}
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	for _, s := range []netip.AddrPort{{}, netip.MustParseAddrPort("192.0.2.1:0")} {
		if _, err := New(config.Resolver{Servers: []config.NameServer{{Addr: s}}}, 0); err == nil {
			t.Errorf("server %v: no error", s)
		}
	}
	if _, err := New(config.Resolver{}, -1); err == nil {
		t.Error("negative timeout: no error")
	}
}

func TestNoLeak(t *testing.T) {
	s := newFakeServer(t, "a.test. 60 IN A 192.0.2.1")
	r := newTestResolver(t, 50*time.Millisecond, dropped(t), s.addr)
	before := runtime.NumGoroutine()
	for range 20 {
		r.Lookup(context.Background(), "a.test", Both)
	}
	deadline := time.Now().Add(patient)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	if len(r.slots) != 0 {
		t.Errorf("%d slots still taken", len(r.slots))
	}
}

func FuzzAnswer(f *testing.F) {
	q := &question{id: 0x1234, asking: asking{name: "a.test.", qtype: dns.TypeA}}
	for _, text := range []string{"a.test. 60 IN A 192.0.2.1", "a.test. 60 IN CNAME b.test.", "a.test. 1 IN AAAA ::1", soaText} {
		m := new(dns.Msg)
		m.SetQuestion(q.name, q.qtype)
		m.Id, m.Response = q.id, true
		rr, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		m.Answer = []dns.RR{rr}
		wire, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(wire[:len(wire)-3])
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, _, err := q.read(wire)
		if err != nil || m == nil {
			return
		}
		c := follow(m, q.name, q.qtype, maxAliases)
		if len(c.addrs) > MaxAddrs || c.aliases > maxAliases+1 || c.ttl < 0 {
			t.Fatalf("%+v", c)
		}
		for _, a := range c.addrs {
			if !a.Is4() || a.IsUnspecified() {
				t.Fatalf("address %v", a)
			}
		}
		if ttl := negativeTTL(m); ttl < minNegTTL || ttl > maxNegTTL {
			t.Fatalf("negative TTL %v", ttl)
		}
		lame(m)
	})
}

func FuzzSystemFiles(f *testing.F) {
	f.Add([]byte("nameserver 192.0.2.1\nsearch a b\noptions ndots:3 timeout:-1\n"))
	f.Add([]byte("127.0.0.1 localhost a.test # x\n::1 b\n"))
	f.Add([]byte("search\noptions\nnameserver\n\x00 \xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := parseResolvConf(text, 10*time.Second)
		if n := len(p.servers); n < 1 || n > maxServers {
			t.Fatalf("%d servers", n)
		}
		if p.timeout <= 0 || p.timeout > 10*time.Second || p.attempts < 1 || p.attempts > maxAttempts || p.ndots < 0 || p.ndots > maxNdots {
			t.Fatalf("%+v", p)
		}
		for _, name := range p.candidates("host", false) {
			if _, _, ok := hostName(name); !ok {
				t.Fatalf("candidate %q", name)
			}
		}
		for name, addrs := range parseHosts(text) {
			if host, _, ok := hostName(name); !ok || host != name || len(addrs) == 0 || len(addrs) > MaxAddrs {
				t.Fatalf("%q: %v", name, addrs)
			}
		}
	})
}

func FuzzHostName(f *testing.F) {
	for _, s := range []string{"Example.com.", "a..b", "127.1", "0x7f", strings.Repeat("a", 300), "[::1]", "_x.test", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, ok := literal(s); ok && (a.Zone() != "" || a.Is4In6()) {
			t.Fatalf("literal %q: %v", s, a)
		}
		host, _, ok := hostName(s)
		if !ok {
			return
		}
		if again, rooted, ok := hostName(host); !ok || rooted || again != host {
			t.Fatalf("%q: %q is not stable", s, host)
		}
		if _, err := newQuestion(asking{name: dns.Fqdn(host), qtype: dns.TypeA}, true); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
