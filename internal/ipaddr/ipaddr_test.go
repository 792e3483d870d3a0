package ipaddr

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, test := range []struct{ in, canonical, embedded string }{
		{"192.0.2.1", "192.0.2.1", ""},
		{"::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"::127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"::7f00:1", "127.0.0.1", "127.0.0.1"},
		{"::2", "0.0.0.2", "0.0.0.2"},
		{"::", "::", ""},
		{"::1", "::1", ""},
		{"::ffff:0.0.0.0", "0.0.0.0", "0.0.0.0"},
		{"::ffff:0:10.0.0.1", "::ffff:0:a00:1", "10.0.0.1"},
		{"64:ff9b::10.1.2.3", "64:ff9b::a01:203", "10.1.2.3"},
		{"64:ff9b:0:0:0:1::1", "64:ff9b::1:0:1", ""},
		{"64:ff9b:1::10.1.2.3", "64:ff9b:1::a01:203", "10.1.2.3"},
		{"64:ff9b:1:ffff::10.1.2.3", "64:ff9b:1:ffff::a01:203", "10.1.2.3"},
		{"64:ff9b:2::10.1.2.3", "64:ff9b:2::a01:203", ""},
		{"2002:7f00:1::", "2002:7f00:1::", "127.0.0.1"},
		{"2002:a00:1:5::9", "2002:a00:1:5::9", "10.0.0.1"},
		{"2003:a00:1::", "2003:a00:1::", ""},
		{"2001:0:4136:e378:8000:63bf:f5ff:fffe", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "10.0.0.1"},
		{"2001:1::f5ff:fffe", "2001:1::f5ff:fffe", ""},
		{"2001:db8::1", "2001:db8::1", ""},
		{"fe80::1", "fe80::1", ""},
		{"1::7f00:1", "1::7f00:1", ""},
	} {
		a := netip.MustParseAddr(test.in)
		if got := Canonical(a).String(); got != test.canonical {
			t.Errorf("Canonical(%s) = %s, want %s", a, got, test.canonical)
		}
		v4, ok := Embedded(a)
		if got := v4.String(); ok != (test.embedded != "") || ok && got != test.embedded {
			t.Errorf("Embedded(%s) = %s %v, want %q", a, got, ok, test.embedded)
		}
		inside := false
		for _, p := range Prefixes() {
			inside = inside || p.Contains(a)
		}
		if ok && !inside && !a.Is4In6() {
			t.Errorf("%s is in none of the prefixes", a)
		}
	}
	if got := Canonical(netip.Addr{}); got.IsValid() {
		t.Errorf("Canonical of no address is %v", got)
	}
	if _, ok := Embedded(netip.Addr{}); ok {
		t.Error("no address embeds one")
	}
}

func TestNoAllocation(t *testing.T) {
	a := netip.MustParseAddr("2002:a00:1::1")
	if n := testing.AllocsPerRun(100, func() { Canonical(a); Embedded(a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
