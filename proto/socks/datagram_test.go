package socks

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

var datagramCases = []struct {
	name string
	in   string
	err  Failure
	dest string // address or host
	port uint16
	data string
}{
	{name: "ipv4", in: "\x00\x00\x00\x01\x0a\x00\x00\x01\x00\x35query", dest: "10.0.0.1", port: 53, data: "query"},
	{name: "ipv6", in: "\x00\x00\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x35q", dest: "::1", port: 53, data: "q"},
	{name: "mapped ipv4", in: "\x00\x00\x00\x04" + strings.Repeat("\x00", 10) + "\xff\xff\x7f\x00\x00\x01\x00\x35", dest: "127.0.0.1", port: 53},
	{name: "name", in: "\x00\x00\x00\x03\x0bExample.com\x01\xbbdata", dest: "Example.com", port: 443, data: "data"},
	{name: "final dot", in: "\x00\x00\x00\x03\x02a.\x00\x01", dest: "a", port: 1},
	{name: "textual address", in: "\x00\x00\x00\x03\x09127.0.0.1\x00\x35", dest: "127.0.0.1", port: 53},
	{name: "textual zeros", in: "\x00\x00\x00\x03\x070.0.0.0\x00\x35", dest: "0.0.0.0", port: 53},
	{name: "no payload", in: "\x00\x00\x00\x01\x0a\x00\x00\x01\x00\x35", dest: "10.0.0.1", port: 53},
	{name: "port 0", in: "\x00\x00\x00\x01\x0a\x00\x00\x01\x00\x00x", dest: "10.0.0.1", data: "x"},
	{name: "longest name", in: "\x00\x00\x00\x03\xfd" + strings.Repeat("a.", 126) + "b\x00\x35x", dest: strings.Repeat("a.", 126) + "b", port: 53, data: "x"},

	{name: "empty", in: "", err: FailDatagram},
	{name: "short", in: "\x00\x00\x00", err: FailDatagram},
	{name: "reserved first", in: "\x01\x00\x00\x01\x0a\x00\x00\x01\x00\x35", err: FailDatagram},
	{name: "reserved second", in: "\x00\x01\x00\x01\x0a\x00\x00\x01\x00\x35", err: FailDatagram},
	{name: "first fragment", in: "\x00\x00\x01\x01\x0a\x00\x00\x01\x00\x35", err: FailFragment},
	{name: "last fragment", in: "\x00\x00\x81\x01\x0a\x00\x00\x01\x00\x35", err: FailFragment},
	{name: "address type 0", in: "\x00\x00\x00\x00\x0a\x00\x00\x01\x00\x35", err: FailAddressType},
	{name: "address type 2", in: "\x00\x00\x00\x02\x0a\x00\x00\x01\x00\x35", err: FailAddressType},
	{name: "only the type", in: "\x00\x00\x00\x01", err: FailDatagram},
	{name: "cut in the address", in: "\x00\x00\x00\x01\x0a\x00", err: FailDatagram},
	{name: "cut in the port", in: "\x00\x00\x00\x01\x0a\x00\x00\x01\x00", err: FailDatagram},
	{name: "cut before the name", in: "\x00\x00\x00\x03", err: FailDatagram},
	{name: "cut in the name", in: "\x00\x00\x00\x03\x05abc\x00\x35", err: FailDatagram},
	{name: "empty name", in: "\x00\x00\x00\x03\x00\x00\x35", err: FailHost},
	{name: "NUL in the name", in: "\x00\x00\x00\x03\x03a\x00b\x00\x35", err: FailHost},
	{name: "short address", in: "\x00\x00\x00\x03\x05127.1\x00\x35", dest: "127.1", port: 53},
	{name: "name of 255", in: "\x00\x00\x00\x03\xff" + strings.Repeat("a", 255) + "\x00\x35", err: FailHost},
}

func TestDatagram(t *testing.T) {
	for _, c := range datagramCases {
		d, err := ParseDatagram(inBytes(c.in))
		if err != c.err {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if err != FailNone || c.err != FailNone {
			continue
		}
		dest := string(d.Host)
		if d.Addr.IsValid() {
			dest = d.Addr.String()
		}
		if dest != c.dest || d.Port != c.port || string(d.Data) != c.data {
			t.Errorf("%s: %q:%d, payload %q", c.name, dest, d.Port, d.Data)
		}
	}
}

func TestDatagramHeader(t *testing.T) {
	for _, c := range []struct{ from, want string }{
		{"192.0.2.1:53", "\x00\x00\x00\x01\xc0\x00\x02\x01\x00\x35"},
		{"[::ffff:192.0.2.1]:53", "\x00\x00\x00\x01\xc0\x00\x02\x01\x00\x35"},
		{"[2001:db8::1]:8080", "\x00\x00\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x1f\x90"},
	} {
		from := netip.MustParseAddrPort(c.from)
		got := AppendDatagramHeader(nil, from)
		if string(got) != c.want || len(got) > MaxDatagramHeader {
			t.Errorf("%s: % x", c.from, got)
		}
		d, err := ParseDatagram(append(got, "payload"...))
		if err != FailNone || d.Addr != from.Addr().Unmap() || d.Port != from.Port() || string(d.Data) != "payload" {
			t.Errorf("%s: %+v, %v", c.from, d, err)
		}
	}
}

func TestDatagramNoAllocation(t *testing.T) {
	in := []byte("\x00\x00\x00\x03\x0bexample.com\x01\xbbdata")
	from := netip.MustParseAddrPort("192.0.2.1:53")
	var head [MaxDatagramHeader]byte
	if n := testing.AllocsPerRun(100, func() {
		ParseDatagram(in)
		AppendDatagramHeader(head[:0], from)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDatagram checks that a destination is valid, and that an address survives
// being written again.
func FuzzDatagram(f *testing.F) {
	for _, c := range datagramCases {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := ParseDatagram(in)
		if err != FailNone {
			return
		}
		if d.Addr.IsValid() == (d.Host != nil) || d.Addr.Is4In6() || d.Addr.Zone() != "" {
			t.Fatalf("destination %v, %q", d.Addr, d.Host)
		}
		if !bytes.HasSuffix(in, d.Data) || len(in)-len(d.Data) > MaxDatagramHeader && d.Host == nil && in[3] != addrName {
			t.Fatalf("payload of %d bytes in %d", len(d.Data), len(in))
		}
		if !d.Addr.IsValid() {
			return
		}
		again, err := ParseDatagram(append(AppendDatagramHeader(nil, netip.AddrPortFrom(d.Addr, d.Port)), d.Data...))
		if err != FailNone || again.Addr != d.Addr || again.Port != d.Port || !bytes.Equal(again.Data, d.Data) {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
	})
}
