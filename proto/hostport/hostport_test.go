package hostport

import (
	"net/netip"
	"strings"
	"testing"

	"3proxyd/internal/ipaddr"
)

var hostCases = []struct {
	in   string
	addr string // when an address is expected
	host string // when a name is expected; both empty: refused
}{
	{in: "example.com", host: "example.com"},
	{in: "EXAMPLE.com", host: "EXAMPLE.com"},
	{in: "example.com.", host: "example.com"},
	{in: "localhost", host: "localhost"},
	{in: "a_b.example", host: "a_b.example"},
	{in: "r5---sn-x.example", host: "r5---sn-x.example"},
	{in: "1a", host: "1a"},
	{in: "0xg", host: "0xg"},
	{in: "3com.example", host: "3com.example"},
	{in: "xn--bcher-kva.example", host: "xn--bcher-kva.example"},
	{in: strings.Repeat("a", 63) + ".b", host: strings.Repeat("a", 63) + ".b"},
	{in: strings.Repeat("a.", 126) + "b", host: strings.Repeat("a.", 126) + "b"},
	{in: strings.Repeat("a.", 126) + "b.", host: strings.Repeat("a.", 126) + "b"},

	{in: "127.0.0.1", addr: "127.0.0.1"},
	{in: "::127.0.0.1", addr: "127.0.0.1"},
	{in: "[::7f00:1]", addr: "127.0.0.1"},
	{in: "::ffff:0.0.0.0", addr: "0.0.0.0"},
	{in: "2002:7f00:1::", addr: "2002:7f00:1::"},

	{in: "127.0.0.1.", host: "127.0.0.1."},
	{in: "127.1", host: "127.1"},
	{in: "127.1.", host: "127.1"},
	{in: "127.0.1", host: "127.0.1"},
	{in: "2130706433", host: "2130706433"},
	{in: "0x7f.1", host: "0x7f.1"},
	{in: "0x7f000001", host: "0x7f000001"},
	{in: "0X7F000001", host: "0X7F000001"},
	{in: "0x", host: "0x"},
	{in: "a.0x1", host: "a.0x1"},
	{in: "example.1", host: "example.1"},
	{in: "017700000001", host: "017700000001"},
	{in: "0177.0.0.1", host: "0177.0.0.1"},
	{in: "127.0.0.01", host: "127.0.0.01"},
	{in: "127.0.0.256", host: "127.0.0.256"},
	{in: "127.0.0.1.1", host: "127.0.0.1.1"},
	{in: "255.255.255.255", addr: "255.255.255.255"},
	{in: "0.0.0.0", addr: "0.0.0.0"},
	{in: "[::1]", addr: "::1"},
	{in: "::1", addr: "::1"},
	{in: "::", addr: "::"},
	{in: "[2001:DB8::a:0]", addr: "2001:db8::a:0"},
	{in: "1:2:3:4:5:6:7:8", addr: "1:2:3:4:5:6:7:8"},
	{in: "1:2:3:4:5:6:7::", addr: "1:2:3:4:5:6:7:0"},
	{in: "[::ffff:127.0.0.1]", addr: "127.0.0.1"},
	{in: "::ffff:7f00:1", addr: "127.0.0.1"},
	{in: "64:ff9b::1.2.3.4", addr: "64:ff9b::102:304"},

	{in: ""},
	{in: "."},
	{in: ".."},
	{in: ".example.com"},
	{in: "example..com"},
	{in: "example.com.."},
	{in: "example .com"},
	{in: " example.com"},
	{in: "example.com\t"},
	{in: "example.com\x00"},
	{in: "exam\rple.com"},
	{in: "exa%6dple.com"},
	{in: "example.com%00"},
	{in: "user@example.com"},
	{in: "example.com/"},
	{in: `example.com\x`},
	{in: "b\xc3\xbccher.example"},
	{in: "example.com,other.com"},
	{in: "*"},
	{in: strings.Repeat("a", 64)},
	{in: strings.Repeat("a.", 127) + "b"},
	{in: strings.Repeat("a.", 127) + "b."},
	{in: strings.Repeat("a", 255)},
	{in: strings.Repeat("a", 256)},

	{in: "127.0.0.1.."},
	{in: "127..0.1"},
	{in: "127.0.0.+1"},
	{in: "127.0.0.1 "},

	{in: "["},
	{in: "[]"},
	{in: "[::1"},
	{in: "::1]"},
	{in: "[example.com]"},
	{in: "[127.0.0.1]"},
	{in: "[::1%eth0]"},
	{in: "[fe80::1%25eth0]"},
	{in: "fe80::1%1"},
	{in: "[[::1]]"},
	{in: "[::1]x"},
	{in: "[v1.x]"},
	{in: ":"},
	{in: ":::"},
	{in: "1::2::3"},
	{in: "1:2:3:4:5:6:7"},
	{in: "1:2:3:4:5:6:7:8:9"},
	{in: "1:2:3:4:5:6:7:8::"},
	{in: "12345::"},
	{in: "::1:"},
	{in: ":1::"},
	{in: "::g"},
	{in: "::1.2.3"},
	{in: "1.2.3.4::"},
	{in: "1:2:3:4:5:6:7:1.2.3.4"},
	{in: "example.com:80"},
}

func TestParseHost(t *testing.T) {
	for _, c := range hostCases {
		addr, host, ok := ParseHost([]byte(c.in))
		if want := c.addr != "" || c.host != ""; ok != want {
			t.Errorf("ParseHost(%q): ok %v, want %v", c.in, ok, want)
			continue
		}
		if string(host) != c.host {
			t.Errorf("ParseHost(%q): host %q, want %q", c.in, host, c.host)
		}
		if c.addr == "" && addr.IsValid() || c.addr != "" && addr != netip.MustParseAddr(c.addr) {
			t.Errorf("ParseHost(%q): addr %v, want %q", c.in, addr, c.addr)
		}
	}
}

func TestParsePort(t *testing.T) {
	cases := map[string]uint16{
		"1": 1, "22": 22, "80": 80, "65535": 65535,
		"": 0, "0": 0, "022": 0, "+22": 0, " 22": 0, "22 ": 0, "-1": 0, "65536": 0, "99999": 0,
		"100000": 0, "4294967318": 0, "4294972296": 0, "0x16": 0, "2e1": 0, "2_2": 0, "22\x00": 0, "٢": 0,
	}
	for in, want := range cases {
		got, ok := ParsePort([]byte(in))
		if got != want || ok != (want != 0) {
			t.Errorf("ParsePort(%q) = %d, %v; want %d", in, got, ok, want)
		}
	}
}

func TestParseAuthority(t *testing.T) {
	cases := []struct {
		in, host string
		port     uint16
		ok       bool
	}{
		{"example.com", "example.com", 0, true},
		{"example.com:8080", "example.com", 8080, true},
		{"example.com.:8080", "example.com", 8080, true},
		{"example.com:", "example.com", 0, true},
		{"[::1]:443", "::1", 443, true},
		{"[::1]", "::1", 0, true},
		{"[::1]:", "::1", 0, true},
		{"127.0.0.1:1", "127.0.0.1", 1, true},
		{"", "", 0, false},
		{":80", "", 0, false},
		{"::1", "", 0, false},
		{"::1:443", "", 0, false},
		{"[::1]443", "", 0, false},
		{"[::1]]:443", "", 0, false},
		{"[::1", "", 0, false},
		{"[example.com]:443", "", 0, false},
		{"a:b:80", "", 0, false},
		{"a:80:80", "", 0, false},
		{"user@a:80", "", 0, false},
		{"user:pw@a:80", "", 0, false},
		{"a:0", "", 0, false},
		{"a:65536", "", 0, false},
		{"a:4294972296", "", 0, false},
		{"a:+22", "", 0, false},
		{"a: 22", "", 0, false},
		{"a:022", "", 0, false},
		{"a :22", "", 0, false},
		{`a\:22`, "", 0, false},
		{"a:22/", "", 0, false},
		{"a:22#", "", 0, false},
	}
	for _, c := range cases {
		addr, host, port, ok := ParseAuthority([]byte(c.in))
		got := string(host)
		if addr.IsValid() {
			got = addr.String()
		}
		if ok != c.ok || ok && (got != c.host || port != c.port) {
			t.Errorf("ParseAuthority(%q) = %q, %d, %v", c.in, got, port, ok)
		}
	}
}

func TestAppendLower(t *testing.T) {
	if got := string(AppendLower([]byte("x"), []byte("A-Z_[`{é"))); got != "xa-z_[`{é" {
		t.Errorf("AppendLower = %q", got)
	}
}

func TestNoAllocation(t *testing.T) {
	inputs := [][]byte{[]byte("www.example.com:8080"), []byte("[2001:db8::1]:443"), []byte("192.0.2.1")}
	dst := make([]byte, 0, 64)
	n := testing.AllocsPerRun(100, func() {
		for _, in := range inputs {
			ParseAuthority(in)
			dst = AppendLower(dst[:0], in)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParseHost checks the address parsers against netip and that an accepted
// name is one.
func FuzzParseHost(f *testing.F) {
	for _, c := range hostCases {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		addr, host, ok := ParseHost([]byte(in))
		if !ok && (addr.IsValid() || host != nil) || ok && addr.IsValid() == (host != nil) {
			t.Fatalf("ParseHost(%q) = %v, %q, %v", in, addr, host, ok)
		}
		bare := in
		if strings.HasPrefix(in, "[") && strings.HasSuffix(in, "]") && strings.Contains(in, ":") {
			bare = in[1 : len(in)-1]
		}
		want, err := netip.ParseAddr(bare)
		isAddr := err == nil && want.Zone() == ""
		if isAddr != addr.IsValid() || isAddr && ipaddr.Canonical(want) != addr {
			t.Fatalf("ParseHost(%q) = %v, netip says %v, %v", in, addr, want, err)
		}
		if host != nil && (len(strings.TrimSuffix(string(host), ".")) > MaxName || strings.ContainsAny(string(host), " %@/\\:\x00\r\n")) {
			t.Fatalf("ParseHost(%q) accepted name %q", in, host)
		}
	})
}

// FuzzParseAuthority checks that an accepted port is the one written.
func FuzzParseAuthority(f *testing.F) {
	for _, s := range []string{"a:80", "[::1]:443", "a:", ":1", "[::1]x:1", "a:99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		_, _, port, ok := ParseAuthority([]byte(in))
		if !ok || port == 0 {
			return
		}
		want, err := netip.ParseAddrPort("1.1.1.1" + in[strings.LastIndexByte(in, ':'):])
		if err != nil || want.Port() != port {
			t.Fatalf("ParseAuthority(%q): port %d, want %v, %v", in, port, want, err)
		}
	})
}
