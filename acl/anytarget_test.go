package acl

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"3proxyd/config"
)

// TestAnyTarget asks lists about a request whose target is not known yet, as
// the UDP ASSOCIATE of SOCKS is.
func TestAnyTarget(t *testing.T) {
	allow := config.Rule{Allow: true}
	loopback := config.Rule{Targets: ranges("127.0.0.0/8")}
	for name, c := range map[string]struct {
		rules   []config.Rule
		verdict Verdict
		rule    int
	}{
		"no list":                    {nil, Allow, -1},
		"some addresses denied":      {[]config.Rule{loopback, allow}, Allow, 1},
		"some names denied":          {[]config.Rule{{TargetHosts: patterns("*.example")}, allow}, Allow, 1},
		"some ports denied":          {[]config.Rule{{Ports: []config.PortRange{{From: 25, To: 25}}}, allow}, Allow, 1},
		"one port allowed":           {[]config.Rule{{Allow: true, Ports: []config.PortRange{{From: 53, To: 53}}}}, Allow, 0},
		"one name allowed":           {[]config.Rule{{Allow: true, TargetHosts: patterns("a.example")}, {}}, Allow, 0},
		"all denied first":           {[]config.Rule{{}, allow}, Deny, 0},
		"another operation allowed":  {[]config.Rule{{Allow: true, Operations: config.OpConnect}}, NoMatch, -1},
		"operation denied":           {[]config.Rule{{Operations: config.OpUDPAssoc}, allow}, Deny, 0},
		"another user allowed":       {[]config.Rule{{Allow: true, Users: []string{"bob"}}}, NoMatch, -1},
		"another source allowed":     {[]config.Rule{{Allow: true, Sources: ranges("192.0.2.0/24")}}, NoMatch, -1},
		"only denials of some":       {[]config.Rule{loopback}, NoMatch, -1},
		"another weekday":            {[]config.Rule{{Weekdays: 1 << 3}, allow}, Allow, 1},
		"denied to others before it": {[]config.Rule{{Users: []string{"bob"}}, allow}, Allow, 1},
	} {
		r := &Request{User: "ann", Client: addr("10.0.0.1"), Op: config.OpUDPAssoc, AnyAddr: true, AnyPort: true}
		if v, rule := Compile(c.rules).verdict(r); v != c.verdict || rule != c.rule {
			t.Errorf("%s: %v by %d, want %v by %d", name, v, rule, c.verdict, c.rule)
		}
	}
}

// TestAnyPort asks about a request whose port is not known yet, as that of a BIND
// may be, and about one whose address is not.
func TestAnyPort(t *testing.T) {
	denied := config.Rule{Targets: ranges("10.0.0.1")}
	deniedName := config.Rule{TargetHosts: patterns("bad.example")}
	port80 := []config.PortRange{{From: 80, To: 80}}
	only := config.Rule{Allow: true, Targets: ranges("10.0.0.2")}
	allow := config.Rule{Allow: true}
	for name, c := range map[string]struct {
		rules   []config.Rule
		r       Request
		verdict Verdict
	}{
		"address denied":            {[]config.Rule{denied, allow}, Request{Addr: addr("10.0.0.1"), AnyPort: true}, Deny},
		"carried address denied":    {[]config.Rule{denied, allow}, Request{Addr: addr("64:ff9b::10.0.0.1"), AnyPort: true}, Deny},
		"another denied":            {[]config.Rule{denied, allow}, Request{Addr: addr("10.0.0.2"), AnyPort: true}, Allow},
		"a port denied":             {[]config.Rule{{Ports: port80}, allow}, Request{Addr: addr("10.0.0.2"), AnyPort: true}, Allow},
		"a port of it allowed":      {[]config.Rule{{Allow: true, Ports: port80, Targets: ranges("10.0.0.1")}}, Request{Addr: addr("10.0.0.1"), AnyPort: true}, Allow},
		"another allowed":           {[]config.Rule{only}, Request{Addr: addr("10.0.0.1"), AnyPort: true}, NoMatch},
		"name denied":               {[]config.Rule{deniedName, allow}, Request{Host: "bad.example", AnyPort: true}, Deny},
		"name may be allowed":       {[]config.Rule{only}, Request{Host: "a.example", AnyPort: true}, Allow},
		"name has no address":       {[]config.Rule{only}, Request{Host: "a.example", NoAddr: true, AnyPort: true}, NoMatch},
		"its address may be denied": {[]config.Rule{denied, allow}, Request{Host: "a.example", AnyPort: true}, Allow},
		"any address, port allowed": {[]config.Rule{{Allow: true, Ports: port80}}, Request{AnyAddr: true, Port: 80}, Allow},
		"any address, another port": {[]config.Rule{{Allow: true, Ports: port80}}, Request{AnyAddr: true, Port: 81}, NoMatch},
		"any address, port denied":  {[]config.Rule{{Ports: port80}, allow}, Request{AnyAddr: true, Port: 80}, Deny},
		"any address, some denied":  {[]config.Rule{denied, deniedName, allow}, Request{AnyAddr: true, Port: 80}, Allow},
	} {
		c.r.Client, c.r.Op = addr("10.0.0.9"), config.OpBind
		if v, rule := Compile(c.rules).verdict(&c.r); v != c.verdict {
			t.Errorf("%s: %v by %d, want %v", name, v, rule, c.verdict)
		}
	}
}

// TestAnyTargetIsNotNarrower checks that what is allowed for some target is
// allowed without one.
func TestAnyTargetIsNotNarrower(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var rules []config.Rule
		for range rng.IntN(20) {
			rules = append(rules, randomRule(rng, 0.4))
		}
		l := Compile(rules)
		for range 40 {
			r := randomRequest(rng)
			verdict, rule := l.verdict(&r)
			if verdict != Allow {
				continue
			}
			for _, open := range []Request{{AnyAddr: true}, {AnyPort: true}, {AnyAddr: true, AnyPort: true}} {
				r.AnyAddr, r.AnyPort = open.AnyAddr, open.AnyPort
				if v, _ := l.verdict(&r); v != Allow {
					t.Fatalf("%v without all of the target, allowed by %d\nrequest %+v\nrules %+v", v, rule, r, rules)
				}
			}
		}
	}
}

// TestDecideAgain decides for a user whose password has been looked at once.
func TestDecideAgain(t *testing.T) {
	both := []config.AuthMethod{config.AuthIPOnly, config.AuthStrong}
	inside := config.Rule{Allow: true, Targets: ranges("10.0.0.0/8")}
	annAnywhere := config.Rule{Allow: true, Users: []string{"ann"}}
	p := NewPolicy(both, Compile([]config.Rule{inside, annAnywhere}), testUsers)
	for _, c := range []struct {
		user, pass, target string
		want               Code
	}{
		{"ann", "secret", "192.0.2.1", OK},
		{"ann", "wrong", "192.0.2.1", WrongPassword},
		{"ann", "wrong", "10.0.0.1", OK},
		{"", "", "10.0.0.1", OK},
		{"", "", "192.0.2.1", NoUser},
	} {
		r := &Request{Client: addr("127.0.0.1"), Addr: netip.MustParseAddr(c.target), Op: config.OpUDPAssoc}
		verified := p.Verified(login(c.user, c.pass))
		if d := p.DecideAgain(r, c.user, verified); d.Code != c.want {
			t.Errorf("%s:%s to %s: %d, want %d", c.user, c.pass, c.target, d.Code, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { p.DecideAgain(r, c.user, verified) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	if NewPolicy([]config.AuthMethod{config.AuthNone}, nil, testUsers).Verified(login("ann", "secret")) {
		t.Error("verified by a service that does not ask")
	}
}
