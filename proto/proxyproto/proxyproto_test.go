package proxyproto

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

// binaryHeader is a header of version 2.
func binaryHeader(command, family byte, body ...byte) string {
	return signature + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + string(body)
}

var (
	body4    = []byte{192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 1, 0xbb}
	bodyMap  = append(append(append([]byte(nil), mapped(192, 0, 2, 1)...), mapped(198, 51, 100, 2)...), 0x30, 0x39, 1, 0xbb)
	bodyComp = append(append(append([]byte(nil), compatible(192, 0, 2, 1)...), compatible(198, 51, 100, 2)...), 0x30, 0x39, 1, 0xbb)
	body6    = append(append(append([]byte(nil), v6(1)...), v6(2)...), 0x30, 0x39, 1, 0xbb)
	bodyUnix = make([]byte, sizeUnix)
)

func mapped(b ...byte) []byte     { return append([]byte{10: 0xff, 11: 0xff}, b...) }
func compatible(b ...byte) []byte { return append(make([]byte, 12), b...) }
func v6(last byte) []byte         { return []byte{0: 0x20, 1: 1, 2: 0xd, 3: 0xb8, 15: last} }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

const (
	addr4 = "192.0.2.1:12345 198.51.100.2:443"
	addr6 = "[2001:db8::1]:12345 [2001:db8::2]:443"
)

var cases = []struct {
	what string
	in   string
	want string // "SOURCE DESTINATION", "own", "unix"; empty when refused
	err  error
}{
	{"TCP4", "PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\r\n", addr4, nil},
	{"TCP6", "PROXY TCP6 2001:db8::1 2001:db8::2 12345 443\r\n", addr6, nil},
	{"v4-mapped", "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.2 12345 443\r\n", addr4, nil},
	{"v4-mapped in hexadecimal", "PROXY TCP6 ::ffff:c000:201 ::ffff:c633:6402 12345 443\r\n", addr4, nil},
	{"v4-compatible", "PROXY TCP6 ::192.0.2.1 ::c633:6402 12345 443\r\n", addr4, nil},
	{"longest addresses", "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535 [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", nil},
	{"port 0", "PROXY TCP4 192.0.2.1 198.51.100.2 0 0\r\n", "192.0.2.1:0 198.51.100.2:0", nil},
	{"UNKNOWN", "PROXY UNKNOWN\r\n", "own", nil},
	{"UNKNOWN with addresses", "PROXY UNKNOWN ffff::1 ::1 65535 65535\r\n", "own", nil},
	{"the longest UNKNOWN", "PROXY UNKNOWN " + strings.Repeat("x", maxLine-16) + "\r\n", "own", nil},

	{"too long", "PROXY UNKNOWN " + strings.Repeat("x", maxLine-15) + "\r\n", "", ErrTooLong},
	{"no end", "PROXY TCP4 " + strings.Repeat("1", 200), "", ErrTooLong},
	{"bare LF", "PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\n", "", ErrLine},
	{"bare CR", "PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\rGET\r\n", "", ErrLine},
	{"nothing", "PROXY \r\n", "", ErrLine},
	{"lower case", "proxy TCP4 192.0.2.1 198.51.100.2 12345 443\r\n", "", ErrNoHeader},
	{"UDP4", "PROXY UDP4 192.0.2.1 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"kind in lower case", "PROXY tcp4 192.0.2.1 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"UNKNOWNS", "PROXY UNKNOWNS\r\n", "", ErrLine},
	{"IPv6 as TCP4", "PROXY TCP4 2001:db8::1 2001:db8::2 12345 443\r\n", "", ErrLine},
	{"v4-mapped as TCP4", "PROXY TCP4 ::ffff:192.0.2.1 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"IPv4 as TCP6", "PROXY TCP6 192.0.2.1 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"zone", "PROXY TCP6 fe80::1%eth0 fe80::2 12345 443\r\n", "", ErrLine},
	{"brackets", "PROXY TCP6 [2001:db8::1] [2001:db8::2] 12345 443\r\n", "", ErrLine},
	{"name", "PROXY TCP4 localhost 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"leading zero", "PROXY TCP4 192.0.2.01 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"three numbers", "PROXY TCP4 192.0.2 198.51.100.2 12345 443\r\n", "", ErrLine},
	{"port 65536", "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n", "", ErrLine},
	{"port that wraps", "PROXY TCP4 192.0.2.1 198.51.100.2 4294967297 443\r\n", "", ErrLine},
	{"port with a sign", "PROXY TCP4 192.0.2.1 198.51.100.2 +1 443\r\n", "", ErrLine},
	{"port with leading zero", "PROXY TCP4 192.0.2.1 198.51.100.2 01 443\r\n", "", ErrLine},
	{"no ports", "PROXY TCP4 192.0.2.1 198.51.100.2\r\n", "", ErrLine},
	{"five fields", "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n", "", ErrLine},
	{"two blanks", "PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n", "", ErrLine},
	{"final blank", "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n", "", ErrLine},
	{"tab", "PROXY\tTCP4 192.0.2.1 198.51.100.2 1 2\r\n", "", ErrNoHeader},
	{"NUL", "PROXY TCP4 192.0.2.1\x00 198.51.100.2 1 2\r\n", "", ErrLine},
	{"HTTP", "GET / HTTP/1.1\r\n\r\n", "", ErrNoHeader},
	{"PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", ErrNoHeader},
	{"TLS", "\x16\x03\x01\x02\x00", "", ErrNoHeader},
	{"empty lines", "\r\n\r\nGET / HTTP/1.1\r\n", "", ErrNoHeader},

	{"v2 TCP4", binaryHeader(0x21, 0x11, body4...), addr4, nil},
	{"v2 TCP6", binaryHeader(0x21, 0x21, body6...), addr6, nil},
	{"v2 v4-compatible", binaryHeader(0x21, 0x21, bodyComp...), addr4, nil},
	{"v2 v4-mapped", binaryHeader(0x21, 0x21, bodyMap...), addr4, nil},
	{"v2 Unix", binaryHeader(0x21, 0x31, bodyUnix...), "unix", nil},
	{"v2 with vectors", binaryHeader(0x21, 0x11, join(body4, []byte{4, 0, 0}, []byte{1, 0, 2, 'h', '2'})...), addr4, nil},
	{"v2 of the greatest size", binaryHeader(0x21, 0x11, join(body4, []byte{4, 0x3f, 0xe1}, make([]byte, MaxSize-fixed2-sizeInet-3))...), addr4, nil},
	{"v2 LOCAL", binaryHeader(0x20, 0), "own", nil},
	{"v2 LOCAL with addresses", binaryHeader(0x20, 0x11, body4...), "own", nil},
	{"v2 LOCAL with anything", binaryHeader(0x20, 0xff, 1, 2, 3), "own", nil},
	{"v2 unspecified", binaryHeader(0x21, 0), "own", nil},
	{"v2 unspecified with vectors", binaryHeader(0x21, 0, 4, 0, 1, 0), "own", nil},

	{"v2 version 1", binaryHeader(0x11, 0x11, body4...), "", ErrBinary},
	{"v2 version 3", binaryHeader(0x31, 0x11, body4...), "", ErrBinary},
	{"v2 command 2", binaryHeader(0x22, 0x11, body4...), "", ErrBinary},
	{"v2 UDP4", binaryHeader(0x21, 0x12, body4...), "", ErrFamily},
	{"v2 UDP6", binaryHeader(0x21, 0x22, body6...), "", ErrFamily},
	{"v2 IPv4 without transport", binaryHeader(0x21, 0x10, body4...), "", ErrFamily},
	{"v2 Unix datagrams", binaryHeader(0x21, 0x32, bodyUnix...), "", ErrFamily},
	{"v2 family 4", binaryHeader(0x21, 0x41, body4...), "", ErrBinary},
	{"v2 transport 3", binaryHeader(0x21, 0x13, body4...), "", ErrBinary},
	{"v2 short TCP4", binaryHeader(0x21, 0x11, body4[:11]...), "", ErrBinary},
	{"v2 short TCP6", binaryHeader(0x21, 0x21, body6[:35]...), "", ErrBinary},
	{"v2 short Unix", binaryHeader(0x21, 0x31, bodyUnix[:215]...), "", ErrBinary},
	{"v2 empty TCP4", binaryHeader(0x21, 0x11), "", ErrBinary},
	{"v2 vector over the end", binaryHeader(0x21, 0x11, join(body4, []byte{1, 0, 3, 'h', '2'})...), "", ErrBinary},
	{"v2 cut vector", binaryHeader(0x21, 0x11, join(body4, []byte{1, 0})...), "", ErrBinary},
	{"v2 too long", binaryHeader(0x21, 0x11, make([]byte, MaxSize-fixed2+1)...), "", ErrTooLong},
	{"v2 of 65535 bytes", signature + "\x21\x11\xff\xff", "", ErrTooLong},
	{"bad signature", signature[:11] + "\r\x21\x11\x00\x00", "", ErrNoHeader},
}

func describe(h Header) string {
	switch {
	case !h.Known:
		return "own"
	case !h.Source.IsValid():
		return "unix"
	}
	return h.Source.String() + " " + h.Destination.String()
}

func TestParse(t *testing.T) {
	for _, c := range cases {
		for _, rest := range []string{"", "payload", "\r\n"} {
			n, h, err := Parse([]byte(c.in + rest))
			switch {
			case c.want == "":
				if err != c.err || n != 0 {
					t.Errorf("%s: %d, %v, want %v", c.what, n, err, c.err)
				}
			case err != nil || n != len(c.in) || describe(h) != c.want:
				t.Errorf("%s: %d of %d bytes, %s, %v", c.what, n, len(c.in), describe(h), err)
			}
		}
	}
}

// TestPieces feeds every case byte by byte: a good header is complete with its
// last byte, a bad one is refused with its last byte at the latest.
func TestPieces(t *testing.T) {
	for _, c := range cases {
		for n := range len(c.in) {
			used, _, err := Parse([]byte(c.in[:n]))
			if used != 0 || err != nil && c.want != "" {
				t.Errorf("%s: %d of %d bytes: %d, %v", c.what, n, len(c.in), used, err)
				break
			}
			if err != nil {
				break
			}
		}
	}
}

func TestAppend(t *testing.T) {
	ap := netip.MustParseAddrPort
	cases := []struct {
		from, to netip.AddrPort
		line     string
	}{
		{ap("192.0.2.1:1"), ap("198.51.100.2:65535"), "PROXY TCP4 192.0.2.1 198.51.100.2 1 65535\r\n"},
		{ap("[2001:db8::1]:1"), ap("[::1]:2"), "PROXY TCP6 2001:db8::1 ::1 1 2\r\n"},
		{ap("192.0.2.1:1"), ap("[2001:db8::1]:2"), "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n"},
		{ap("[::ffff:192.0.2.1]:1"), ap("198.51.100.2:2"), "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\n"},
		{ap("[fe80::1%eth0]:1"), ap("[fe80::2%eth0]:2"), "PROXY TCP6 fe80::1 fe80::2 1 2\r\n"},
		{netip.AddrPort{}, ap("198.51.100.2:2"), "PROXY UNKNOWN\r\n"},
		{ap("192.0.2.1:1"), netip.AddrPort{}, "PROXY UNKNOWN\r\n"},
	}
	for _, c := range cases {
		line := Append1(nil, c.from, c.to)
		if string(line) != c.line {
			t.Errorf("%v to %v: %q", c.from, c.to, line)
		}
		for _, header := range [][]byte{line, Append2([]byte{}, c.from, c.to)} {
			n, h, err := Parse(header)
			plain := func(a netip.AddrPort) netip.AddrPort {
				return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
			}
			known := c.from.IsValid() && c.to.IsValid()
			if err != nil || n != len(header) || h.Known != known ||
				known && (h.Source != plain(c.from) || h.Destination != plain(c.to)) {
				t.Errorf("%q: %d, %+v, %v", header, n, h, err)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	b := make([]byte, 0, 256)
	from, to := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("198.51.100.2:2")
	if n := testing.AllocsPerRun(100, func() {
		b = Append2(Append1(b[:0], from, to), from, to)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse checks that what is accepted is the same whole and cut, and that
// its addresses survive being written again.
func FuzzParse(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.in + "rest"))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n, h, err := Parse(in)
		if n < 0 || n > len(in) || n > MaxSize || err != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(in), err)
		}
		if n == 0 {
			return
		}
		for i := range n {
			if m, _, err := Parse(in[:i]); m != 0 || err != nil {
				t.Fatalf("the first %d of %d bytes: %d, %v", i, n, m, err)
			}
		}
		if !h.Known || !h.Source.IsValid() {
			return
		}
		for _, again := range [][]byte{Append1(nil, h.Source, h.Destination), Append2(nil, h.Source, h.Destination)} {
			m, h2, err := Parse(again)
			if err != nil || m != len(again) || h2 != h {
				t.Fatalf("%+v, written as %q, is %+v, %v", h, again, h2, err)
			}
		}
	})
}
