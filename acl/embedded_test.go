package acl

import (
	"testing"

	"3proxyd/config"
)

// Every spelling of a denied address is denied, whatever IPv6 is allowed before,
// and an allowed address is allowed in every spelling.
func TestEmbeddedAddresses(t *testing.T) {
	const op = config.OpConnect
	deny := config.Rule{Targets: ranges("127.0.0.0/8,10.0.0.0/8")}
	all := config.Rule{Allow: true}
	allow := func(s string) config.Rule { return config.Rule{Allow: true, Targets: ranges(s)} }
	for _, s := range []string{
		"127.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::127.0.0.1",
		"2002:7f00:1::", "2002:7f00:1:ffff::1", "::ffff:0:127.0.0.1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
		"10.9.8.7", "::10.9.8.7", "64:ff9b::10.9.8.7", "2002:a09:807:1::2",
	} {
		for i, rules := range [][]config.Rule{
			{deny, all},
			{allow("2000::/3"), deny, all},
			{allow("::/0"), deny, all},
			{allow("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), deny},
			{allow("::/0")},
			{allow("192.0.2.0/24,2001:db8::/32")},
		} {
			for _, host := range []string{"", "name.test"} {
				if i == 4 && addr(s).Is4() {
					continue
				}
				if v, _ := Compile(rules).verdict(&Request{Addr: addr(s), Host: host, Op: op}); v == Allow {
					t.Errorf("%s is allowed by list %d", s, i)
				}
			}
		}
		if v, _ := Compile([]config.Rule{allow("127.0.0.0/8,10.0.0.0/8")}).verdict(&Request{Addr: addr(s), Op: op}); v != Allow {
			t.Errorf("%s: %v", s, v)
		}
	}
	for _, test := range []struct {
		rules []config.Rule
		addr  string
		want  Verdict
	}{
		{[]config.Rule{allow("2002::/16"), deny}, "2002:a00:1::1", Allow},
		{[]config.Rule{allow("64:ff9b::/96"), deny}, "64:ff9b::10.0.0.1", Allow},
		{[]config.Rule{{Targets: ranges("::/0")}, all}, "64:ff9b::192.0.2.1", Deny},
		{[]config.Rule{{Targets: ranges("2002::/16")}, all}, "2002:c000:201::", Deny},
		{[]config.Rule{deny, all}, "64:ff9b::192.0.2.1", Allow},
		{[]config.Rule{allow("::/0")}, "::1", Allow},
		{[]config.Rule{allow("::/0")}, "2001:db8::1", Allow},
		{[]config.Rule{allow("2001::/16")}, "2001:db8::1", Allow},
		{[]config.Rule{allow("2001::/16")}, "2001::1", NoMatch},
		{[]config.Rule{allow("ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")}, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Allow},
	} {
		if v, _ := Compile(test.rules).verdict(&Request{Addr: addr(test.addr), Op: op}); v != test.want {
			t.Errorf("%s: %v, want %v by %+v", test.addr, v, test.want, test.rules)
		}
	}
	// A client is who it is: its address is not read in two ways.
	sources := []config.Rule{{Allow: true, Sources: ranges("10.0.0.0/8")}}
	if v, _ := Compile(sources).verdict(&Request{Client: addr("2002:a00:1::1"), Addr: addr("192.0.2.1"), Op: op}); v != NoMatch {
		t.Errorf("a client of 6to4 is taken for the IPv4 address: %v", v)
	}
}
