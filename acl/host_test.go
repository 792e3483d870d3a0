package acl

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	tests := []struct{ in, name, addr string }{
		{"Example.COM.", "example.com", ""},
		{"a_b-c.test", "a_b-c.test", ""},
		{"192.0.2.1", "", "192.0.2.1"},
		{"192.0.2.1.", "", "192.0.2.1"},
		{"::1", "", "::1"},
		{"[::1]", "", "::1"},
		{"[::ffff:127.0.0.1]", "", "127.0.0.1"},
		{"::ffff:127.0.0.1", "", "127.0.0.1"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", ""},
		{strings.Repeat("a", 253), strings.Repeat("a", 253), ""},
		{"0xg.test0", "0xg.test0", ""},
	}
	for _, tt := range tests {
		name, a, err := ParseHost(tt.in)
		if err != nil || name != tt.name || a != addr(tt.addr) {
			t.Errorf("ParseHost(%q) = %q, %v, %v", tt.in, name, a, err)
		}
	}
	bad := []string{
		"", ".", "..", "[example.com]", "[192.0.2.1]", "[::1", "[]", "::1]", "fe80::1%eth0", "[fe80::1%eth0]",
		"127.1", "0x7f.1", "2130706433", "0x7f000001", "0x", "host.0x", "1.2.3.4.5", "256.1.1.1", "example.com:80",
		"a b", "a\tb", "a\x00b", "a\nb", "a/b", "a@b", "a%2e", "a\\b", "b\u00fccher.example", strings.Repeat("a", 254), ":::",
	}
	for _, s := range bad {
		if name, a, err := ParseHost(s); err == nil {
			t.Errorf("ParseHost(%q) = %q, %v, want an error", s, name, a)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"Example.com.", "192.0.2.1", "[::1]", "fe80::1%eth0", "0x7f.1", "[example.com]", ".", "a..b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, a, err := ParseHost(s)
		if err != nil {
			if name != "" || a.IsValid() {
				t.Fatal("result beside an error")
			}
			return
		}
		if (name != "") == a.IsValid() {
			t.Fatalf("%q: name %q and address %v", s, name, a)
		}
		if a.Is4In6() || a.Zone() != "" {
			t.Fatalf("%q: address %v", s, a)
		}
		if name == "" {
			return
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Fatalf("%q: name %q is an address", s, name)
		}
		again, _, err := ParseHost(name)
		if err != nil || again != name {
			t.Fatalf("%q: %q is not stable: %q, %v", s, name, again, err)
		}
	})
}
