package acl

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"3proxyd/config"
)

// pattern writes a host pattern as a configuration does.
func pattern(s string) config.HostPattern {
	p := config.HostPattern{Name: s}
	p.Name, p.AnyPrefix = strings.CutPrefix(p.Name, "*")
	p.Name, p.AnySuffix = strings.CutSuffix(p.Name, "*")
	return p
}

func patterns(s string) (list []config.HostPattern) {
	for _, w := range strings.Split(s, ",") {
		list = append(list, pattern(w))
	}
	return list
}

// ranges writes address ranges as a configuration does.
func ranges(s string) (list []config.IPRange) {
	for _, w := range strings.Split(s, ",") {
		if a, b, ok := strings.Cut(w, "-"); ok {
			list = append(list, config.IPRange{From: netip.MustParseAddr(a), To: netip.MustParseAddr(b)})
			continue
		}
		if !strings.Contains(w, "/") {
			a := netip.MustParseAddr(w)
			list = append(list, config.IPRange{From: a, To: a})
			continue
		}
		p := netip.MustParsePrefix(w).Masked()
		list = append(list, config.IPRange{From: p.Addr(), To: lastOf(p)})
	}
	return list
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

func TestHostPatterns(t *testing.T) {
	tests := []struct {
		pattern, host string
		want          bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "EXAMPLE.com", true},
		{"example.com", "example.com.", true},
		{"example.com", "example.com..", true},
		{"Example.COM", "example.com", true},
		{"example.com.", "example.com", true},
		{"example.com", "www.example.com", false},
		{"example.com", "badexample.com", false},
		{"example.com", "example.com.evil.net", false},
		{"example.com", "example.co", false},
		{"example.com", "xexample.com", false},
		{"example.com", "example-com", false},
		{"ex-ample.com", "ex-ample.com", true},
		{"ex-ample.com", "example.com", false},
		{"trusted.net", "untrusted.net", false},
		{"*.example.com", "sub.example.com", true},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "SUB.Example.Com.", true},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", "example.com", false},
		{"*.example.com.", "sub.example.com", true},
		{"*example.com", "badexample.com", true},
		{"*example.com", "example.com", true},
		{"*example.com", "example.com.evil", false},
		{"example.*", "example.org", true},
		{"example.*", "example.co.uk", true},
		{"example.*", "example", false},
		{"example.*", "anexample.org", false},
		{"*porn*", "www.porn.example", true},
		{"*porn*", "porn", true},
		{"*porn*", "por.n", false},
		{"*ab*", "xxabxx", true},
		{"*ab*", "axb", false},
		{"*", "anything", true},
		{"127.*", "127.0.0.1", false},
		{"*.0.0.1", "127.0.0.1.", true},
		{"example.com", "", false},
		{"example.com", strings.Repeat("a", 300), false},
		{"*a*", strings.Repeat("a", 300), false},
	}
	for _, tt := range tests {
		many := []config.HostPattern{pattern(tt.pattern)}
		for i := range 2 * fewHosts {
			many = append(many, pattern(fmt.Sprintf("*.filler%d.test", i)))
		}
		for _, hosts := range [][]config.HostPattern{many[:1], many} {
			l := Compile([]config.Rule{
				{TargetHosts: hosts},
				{Sources: ranges("10.0.0.1"), TargetHosts: hosts, Allow: true},
			})
			r := Request{Host: tt.host, Op: config.OpConnect}
			v, _ := l.verdict(&r)
			if got := v == Deny; got != tt.want {
				t.Errorf("%q matches %q with %d patterns: %v, want %v", tt.pattern, tt.host, len(hosts), got, tt.want)
			}
		}
	}
}

func TestNeedAddr(t *testing.T) {
	denyLocal := config.Rule{Targets: ranges("127.0.0.0/8,::1")}
	allowAll := config.Rule{Allow: true}
	tests := []struct {
		name  string
		rules []config.Rule
		req   Request
		want  Verdict
		rule  int
	}{
		{"no rules", nil, Request{Host: "x.test"}, Allow, -1},
		{"loopback block", []config.Rule{denyLocal, allowAll}, Request{Host: "x.test"}, NeedAddr, 1},
		{"resolved to loopback", []config.Rule{denyLocal, allowAll}, Request{Host: "x.test", Addr: addr("127.9.9.9")}, Deny, 0},
		{"resolved to mapped loopback", []config.Rule{denyLocal, allowAll}, Request{Host: "x.test", Addr: addr("::ffff:127.0.0.1")}, Deny, 0},
		{"resolved to ::1", []config.Rule{denyLocal, allowAll}, Request{Host: "x.test", Addr: addr("::1")}, Deny, 0},
		{"resolved elsewhere", []config.Rule{denyLocal, allowAll}, Request{Host: "x.test", Addr: addr("192.0.2.1")}, Allow, 1},
		{"literal in host", []config.Rule{denyLocal, allowAll}, Request{Host: "127.0.0.1"}, Deny, 0},
		{"literal with dot", []config.Rule{denyLocal, allowAll}, Request{Host: "127.0.0.1."}, NeedAddr, 1},
		{"v6 literal in host", []config.Rule{denyLocal, allowAll}, Request{Host: "::ffff:127.0.0.1"}, Deny, 0},
		{"no address ever", []config.Rule{denyLocal, allowAll}, Request{NoAddr: true}, Allow, 1},
		{"same verdict", []config.Rule{{Allow: true, Targets: ranges("10.0.0.0/8")}, allowAll}, Request{Host: "x.test"}, Allow, 1},
		{"host decides first", []config.Rule{{Allow: true, TargetHosts: patterns("*.test")}, denyLocal}, Request{Host: "x.test"}, Allow, 0},
		{"mixed list by host", []config.Rule{{TargetHosts: patterns("*.test"), Targets: ranges("10.0.0.0/8")}, allowAll}, Request{Host: "x.test"}, Deny, 0},
		{"mixed list by address", []config.Rule{{TargetHosts: patterns("*.test"), Targets: ranges("10.0.0.0/8")}, allowAll}, Request{Host: "x.org", Addr: addr("10.1.1.1")}, Deny, 0},
		{"mixed list unknown", []config.Rule{{TargetHosts: patterns("*.test"), Targets: ranges("10.0.0.0/8")}, allowAll}, Request{Host: "x.org"}, NeedAddr, 1},
		{"other field excludes", []config.Rule{{Targets: ranges("10.0.0.0/8"), Users: []string{"bob"}}, allowAll}, Request{Host: "x.org"}, Allow, 1},
		{"nothing matches", []config.Rule{{Targets: ranges("10.0.0.0/8")}}, Request{Addr: addr("192.0.2.1")}, NoMatch, -1},
		{"v6 range holds no v4", []config.Rule{{Targets: ranges("::/0")}, allowAll}, Request{Addr: addr("192.0.2.1")}, Allow, 1},
	}
	for _, tt := range tests {
		tt.req.Op = config.OpConnect
		v, rule := Compile(tt.rules).verdict(&tt.req)
		if v != tt.want || rule != tt.rule {
			t.Errorf("%s: %v by %d, want %v by %d", tt.name, v, rule, tt.want, tt.rule)
		}
	}
}

// pick returns one of the words.
func pick[T any](rng *rand.Rand, words []T) T { return words[rng.IntN(len(words))] }

var (
	someUsers = []string{"ann", "bob", "eve", "Bob"}
	someHosts = []string{"a.test", "b.a.test", "ba.test", "test", "x.org", "www.x.org", "abcabc.net", "net"}
	someMasks = []string{"a.test", "*.a.test", "*a.test", "www.*", "*bca*", "*.org", "x.org", "*a*", "*", "nosuch", "a*"}
	someAddrs = []string{"10.0.0.1", "10.0.0.2", "10.1.0.1", "192.0.2.7", "0.0.0.0", "255.255.255.255", "2001:db8::1", "2001:db8::2", "::1", "::ffff:10.0.0.1", "2002:a00:1::1", "64:ff9b::192.0.2.7", "64:ff9b:1::10.0.0.2", "::10.0.0.1", "::ffff:0:10.0.0.1", "2001:0:1::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}
	someNets  = []string{"10.0.0.0/8", "10.0.0.1", "10.0.0.0-10.0.0.1", "10.0.0.2-10.1.0.0", "0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/32", "2001:db8::1", "10.0.0.2", "::ffff:10.1.0.1", "2002::/16", "2002:a00::/24", "64:ff9b::/96", "2001::/16", "2000::/3", "::/96", "::-::1", "::1-64:ff9b::", "255.255.255.255"}
)

func randomRule(rng *rand.Rand, density float64) config.Rule {
	c := config.Rule{Allow: rng.IntN(2) == 0}
	on := func() bool { return rng.Float64() < density }
	for on() {
		c.Users = append(c.Users, pick(rng, someUsers))
	}
	for on() {
		c.Sources = append(c.Sources, ranges(pick(rng, someNets))...)
	}
	for on() {
		c.Targets = append(c.Targets, ranges(pick(rng, someNets))...)
	}
	for on() {
		c.TargetHosts = append(c.TargetHosts, pattern(pick(rng, someMasks)))
	}
	for on() {
		from := uint16(rng.IntN(5))
		c.Ports = append(c.Ports, config.PortRange{From: from, To: from + uint16(rng.IntN(3))})
	}
	if on() {
		c.Operations = config.Operations(1 + rng.IntN(7))
	}
	if on() {
		c.Weekdays = uint8(rng.IntN(128))
	}
	for on() {
		from := rng.IntN(10)
		c.Times = append(c.Times, config.TimeRange{From: from, To: from + rng.IntN(10)})
	}
	return c
}

func randomRequest(rng *rand.Rand) Request {
	r := Request{
		Client:  addr(pick(rng, someAddrs)),
		Port:    uint16(rng.IntN(6)),
		Op:      1 << rng.IntN(3),
		Weekday: rng.IntN(7),
		Second:  rng.IntN(12),
		NoAddr:  rng.IntN(8) == 0,
	}
	if rng.IntN(3) > 0 {
		r.User = pick(rng, someUsers)
	}
	if rng.IntN(3) > 0 {
		r.Host = pick(rng, someHosts)
	}
	if rng.IntN(8) == 0 {
		r.Host = pick(rng, someAddrs)
	}
	if rng.IntN(2) == 0 {
		r.Addr = addr(pick(rng, someAddrs))
	}
	return r
}

func TestListAgainstReference(t *testing.T) {
	const lists, requests = 1500, 60
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range lists {
		var rules []config.Rule
		density := rng.Float64() * 0.7
		for range rng.IntN(40) {
			rules = append(rules, randomRule(rng, density))
		}
		l := Compile(rules)
		for range requests {
			r := randomRequest(rng)
			v, rule := l.verdict(&r)
			wantV, wantRule := naiveCheck(rules, &r)
			if v != wantV || rule != wantRule {
				t.Fatalf("list %d: %v by %d, want %v by %d\nrequest %+v\nrules %+v", i, v, rule, wantV, wantRule, r, rules)
			}
		}
	}
}

// shapes are the usual long lists; each ends with a rule for everything else.
var shapes = []struct {
	name string
	rule func(i int) config.Rule
	req  Request
}{
	{"users", func(i int) config.Rule {
		return config.Rule{Allow: true, Users: []string{fmt.Sprintf("user%d", i)}}
	}, Request{User: "user0", Addr: addr("192.0.2.1")}},
	{"sources", func(i int) config.Rule {
		return config.Rule{Allow: true, Sources: ranges(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))}
	}, Request{Client: addr("10.0.0.9"), Addr: addr("192.0.2.1")}},
	{"targets", func(i int) config.Rule {
		return config.Rule{Targets: ranges(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))}
	}, Request{Addr: addr("192.0.2.1")}},
	{"hosts", func(i int) config.Rule {
		return config.Rule{TargetHosts: patterns(fmt.Sprintf("site%d.example.net", i))}
	}, Request{Host: "www.elsewhere.example.org"}},
	{"suffixes", func(i int) config.Rule {
		return config.Rule{TargetHosts: patterns(fmt.Sprintf("*site%d.example.net", i))}
	}, Request{Host: "www.elsewhere.example.org"}},
	{"words", func(i int) config.Rule {
		return config.Rule{TargetHosts: patterns(fmt.Sprintf("*%dsite*", i))}
	}, Request{Host: "www.elsewhere.example.org"}},
	{"nested", func(i int) config.Rule {
		return config.Rule{Sources: ranges(fmt.Sprintf("10.0.0.0-10.1.%d.%d", i>>8, i&255)), TargetHosts: patterns(fmt.Sprintf("site%d.example.net", i))}
	}, Request{Client: addr("10.0.0.9"), Host: "www.elsewhere.example.org"}},
	{"targets by name", func(i int) config.Rule {
		return config.Rule{Targets: ranges(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)), Sources: ranges(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))}
	}, Request{Client: addr("192.0.2.9"), Host: "www.elsewhere.example.org"}},
}

func shapeRules(rule func(int) config.Rule, n int) []config.Rule {
	var rules []config.Rule
	for i := range n {
		rules = append(rules, rule(i))
	}
	return append(rules, config.Rule{Allow: true})
}

func TestLongLists(t *testing.T) {
	for _, s := range shapes {
		rules := shapeRules(s.rule, 300)
		l := Compile(rules)
		r := s.req
		r.Op = config.OpConnect
		v, rule := l.verdict(&r)
		wantV, wantRule := naiveCheck(rules, &r)
		if v != wantV || rule != wantRule {
			t.Errorf("%s: %v by %d, want %v by %d", s.name, v, rule, wantV, wantRule)
		}
		if n := testing.AllocsPerRun(100, func() { l.verdict(&r) }); n != 0 {
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
}

// One rule with a long list must be as fast as many rules.
func BenchmarkOneLongRule(b *testing.B) {
	var c config.Rule
	for i := range 10000 {
		c.Users = append(c.Users, fmt.Sprintf("user%d", i))
		c.Sources = append(c.Sources, ranges(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))...)
		c.TargetHosts = append(c.TargetHosts, pattern(fmt.Sprintf("*.site%d.example.net", i)))
	}
	c.Allow = true
	l := Compile([]config.Rule{c})
	r := Request{User: "user77", Client: addr("10.3.3.3"), Host: "www.site4711.example.net", Op: config.OpConnect}
	if v, _ := l.verdict(&r); v != Allow {
		b.Fatal(v)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.verdict(&r)
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, s := range shapes {
		for _, n := range []int{1, 10000} {
			b.Run(fmt.Sprintf("%s/%d", s.name, n), func(b *testing.B) {
				l := Compile(shapeRules(s.rule, n))
				r := s.req
				r.Op = config.OpConnect
				b.ReportAllocs()
				for b.Loop() {
					l.verdict(&r)
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			rules := shapeRules(s.rule, 10000)
			b.ReportAllocs()
			for b.Loop() {
				Compile(rules)
			}
		})
	}
}
