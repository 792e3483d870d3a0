package tlshello

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vector prefixes the concatenation of parts with its length in n bytes.
func vector(n int, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	var b []byte
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(len(body)>>(8*i)))
	}
	return append(b, body...)
}

func ext(kind int, data []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind)}, vector(2, data)...)
}

func sni(name string) []byte {
	return ext(extServerName, vector(2, []byte{0}, vector(2, []byte(name))))
}

// message is a ClientHello with these extensions; nil is a hello without the
// list of them.
func message(extensions []byte) []byte {
	body := append([]byte{3, 3}, make([]byte, randomSize)...)
	body = append(body, 0)                           // session id
	body = append(body, 0, 4, 0x1a, 0x1a, 0x13, 0x1) // suites, the first GREASE
	body = append(body, 1, 0)                        // compression
	if extensions != nil {
		body = append(body, vector(2, extensions)...)
	}
	return append([]byte{msgClientHello}, vector(3, body)...)
}

// records spreads a message over records of at most size bytes.
func records(msg []byte, size int) []byte {
	var b []byte
	for len(msg) > 0 {
		n := min(size, len(msg))
		b = append(b, RecordHandshake, 3, 1)
		b = append(b, vector(2, msg[:n])...)
		msg = msg[n:]
	}
	return b
}

func whole(extensions ...[]byte) []byte {
	return records(message(bytes.Join(extensions, nil)), maxRecord)
}

// parseSplit feeds in in pieces of n bytes.
func parseSplit(in []byte, n int) (h *Hello, done bool, err error) {
	var s Scan
	h = new(Hello)
	for end := min(n, len(in)); ; end = min(end+n, len(in)) {
		done, err = h.Parse(&s, in[:end])
		if done || err != nil || end == len(in) {
			return h, done, err
		}
	}
}

func TestNames(t *testing.T) {
	grease := ext(0x4a4a, nil)
	long := strings.Repeat("a.", 126) + "b"
	cases := []struct {
		what string
		in   []byte
		name string
		err  *Error
	}{
		{what: "plain", in: whole(sni("example.com")), name: "example.com"},
		{what: "upper case", in: whole(sni("WWW.Example.COM")), name: "www.example.com"},
		{what: "final dot", in: whole(sni("example.com.")), name: "example.com"},
		{what: "underscore", in: whole(sni("a_b.example")), name: "a_b.example"},
		{what: "a number", in: whole(sni("2130706433")), name: "2130706433"},
		{what: "hexadecimal", in: whole(sni("0x7f.1")), name: "0x7f.1"},
		{what: "longest", in: whole(sni(long)), name: long},
		{what: "after others", in: whole(grease, ext(10, []byte{0, 2, 0, 29}), sni("example.com"), ext(0xfafa, []byte{0})), name: "example.com"},
		{what: "no name", in: whole(grease)},
		{what: "no extensions", in: records(message(nil), maxRecord)},
		{what: "empty list of extensions", in: records(message([]byte{}), maxRecord)},
		{what: "followed by data", in: append(whole(sni("example.com")), 20, 3, 3, 0, 1, 1), name: "example.com"},

		{what: "too long a name", in: whole(sni(long + "b.c")), err: ErrName},
		{what: "IPv4", in: whole(sni("127.0.0.1")), err: ErrName},
		{what: "IPv6", in: whole(sni("::1")), err: ErrName},
		{what: "bracketed", in: whole(sni("[::1]")), err: ErrName},
		{what: "with port", in: whole(sni("example.com:443")), err: ErrName},
		{what: "NUL", in: whole(sni("example.com\x00.evil")), err: ErrName},
		{what: "blank", in: whole(sni("example .com")), err: ErrName},
		{what: "not ASCII", in: whole(sni("b\xc3\xbccher.example")), err: ErrName},
		{what: "dot", in: whole(sni(".")), err: ErrName},
		{what: "empty name", in: whole(sni("")), err: ErrDecode},
		{what: "empty extension", in: whole(ext(extServerName, nil)), err: ErrDecode},
		{what: "empty list", in: whole(ext(extServerName, []byte{0, 0})), err: ErrDecode},
		{what: "other type of name", in: whole(ext(extServerName, vector(2, []byte{1}, vector(2, []byte("a"))))), err: ErrDecode},
		{what: "two names", in: whole(ext(extServerName, vector(2, []byte{0, 0, 1, 'a'}, []byte{0, 0, 1, 'b'}))), err: ErrDecode},
		{what: "rest after the list", in: whole(ext(extServerName, append(vector(2, []byte{0, 0, 1, 'a'}), 0))), err: ErrDecode},
		{what: "list longer than the extension", in: whole(ext(extServerName, []byte{0, 9, 0, 0, 1, 'a'})), err: ErrDecode},
		{what: "name longer than the list", in: whole(ext(extServerName, []byte{0, 4, 0, 0, 9, 'a'})), err: ErrDecode},
		{what: "the extension twice", in: whole(sni("a.example"), sni("b.example")), err: ErrTwice},
	}
	for _, c := range cases {
		for _, n := range []int{1, 7, len(c.in)} {
			h, done, err := parseSplit(c.in, n)
			if c.err != nil {
				if done || err != c.err {
					t.Errorf("%s in pieces of %d: %v, %v, want %v", c.what, n, done, err, c.err)
				}
				continue
			}
			if !done || err != nil || string(h.Name) != c.name || (h.Name == nil) != (c.name == "") {
				t.Errorf("%s in pieces of %d: %v, %v, name %q, want %q", c.what, n, done, err, h.Name, c.name)
			}
		}
	}
}

func TestFraming(t *testing.T) {
	hello := message(sni("example.com"))
	edit := func(at int, b byte) []byte {
		in := whole(sni("example.com"))
		in[at] = b
		return in
	}
	cases := []struct {
		what string
		in   []byte
		err  *Error
	}{
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), ErrNotTLS},
		{"SOCKS", []byte{5, 1, 0}, ErrNotTLS},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, ErrNotTLS},
		{"major version", edit(1, 2), ErrNotTLS},
		{"alert first", []byte{recordAlert, 3, 1, 0, 2, 2, 40}, ErrNotTLS},
		{"empty record", []byte{RecordHandshake, 3, 1, 0, 0}, ErrRecord},
		{"record over 16 KB", []byte{RecordHandshake, 3, 1, 0x40, 1}, ErrRecord},
		{"another message", edit(5, msgServerHello), ErrMessage},
		{"too short a hello", []byte{RecordHandshake, 3, 1, 0, 4, msgClientHello, 0, 0, 0}, ErrDecode},
		{"too long a hello", []byte{RecordHandshake, 3, 1, 0, 4, msgClientHello, 1, 0, 0}, ErrTooLong},
		{"hello version", edit(9, 2), ErrDecode},
		{"session id", edit(43, 33), ErrDecode},
		{"odd suites", edit(45, 3), ErrDecode},
		{"another record between", append(records(hello[:20], 20), 23, 3, 3, 0, 1, 0), ErrNotTLS},
		{"empty record between", append(records(hello[:20], 20), RecordHandshake, 3, 3, 0, 0), ErrRecord},
		{"message ends within a field", records(append([]byte{msgClientHello}, vector(3, hello[4:len(hello)-1])...), maxRecord), ErrDecode},
		{"rest after the extensions", records(append([]byte{msgClientHello}, vector(3, hello[4:], []byte{0})...), maxRecord), ErrDecode},
	}
	for _, c := range cases {
		for _, n := range []int{1, 7, len(c.in)} {
			if _, done, err := parseSplit(c.in, n); done || err != c.err {
				t.Errorf("%s in pieces of %d: %v, %v, want %v", c.what, n, done, err, c.err)
			}
		}
	}
}

// TestIncomplete cuts a hello everywhere.
func TestIncomplete(t *testing.T) {
	in := records(message(sni("example.com")), 11)
	for n := range in {
		var h Hello
		if done, err := h.Parse(new(Scan), in[:n]); done || err != nil {
			t.Errorf("%d of %d bytes: %v, %v", n, len(in), done, err)
		}
	}
}

// TestRecords spreads hellos of all sizes over records of all sizes.
func TestRecords(t *testing.T) {
	for _, padding := range []int{0, 500, 16000, 40000, 62000} {
		msg := message(append(sni("example.com"), ext(21, make([]byte, padding))...))
		for _, size := range []int{1, 2, 3, 5, 100, 4096, maxRecord} {
			in := records(msg, size)
			h, done, err := parseSplit(in, 997)
			if len(in) > MaxSize {
				if err != ErrTooLong {
					t.Errorf("%d bytes in records of %d: %v", len(msg), size, err)
				}
				continue
			}
			if !done || err != nil || string(h.Name) != "example.com" {
				t.Errorf("%d bytes in records of %d: %v, %v, %q", len(msg), size, done, err, h.Name)
			}
		}
	}
}

// TestWorstCase feeds the longest hello in the smallest records byte by byte:
// the time must not grow with the square of the length.
func TestWorstCase(t *testing.T) {
	in := records(message(append(sni("example.com"), ext(21, make([]byte, 10700))...)), 1)
	if len(in) > MaxSize || len(in) < MaxSize-1000 {
		t.Fatalf("%d bytes", len(in))
	}
	if _, done, err := parseSplit(in, 1); !done || err != nil {
		t.Fatal(done, err)
	}
}

func TestRealClients(t *testing.T) {
	want := map[string]struct {
		name, alpn string
		version    uint16
	}{
		"openssl":        {"www.example.com", "", TLS13},
		"openssl-tls12":  {"www.example.com", "", 0x0303},
		"openssl-noname": {"", "", TLS13},
		"openssl-alpn":   {"www.example.com", "h2", TLS13},
		"curl":           {"www.example.com", "h2", TLS13},
		"node":           {"www.example.com", "", TLS13},
		"python":         {"www.example.com", "", TLS13},
		"go":             {"www.example.com", "", TLS13},
	}
	for name, w := range want {
		in, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		h, done, err := parseSplit(in, 1)
		if !done || err != nil || string(h.Name) != w.name || string(h.ALPN) != w.alpn || h.Version != w.version {
			t.Errorf("%s: %v, %v, name %q, protocol %q, version %x", name, done, err, h.Name, h.ALPN, h.Version)
		}
	}
}

func TestExtensions(t *testing.T) {
	h, done, err := parseSplit(whole(
		ext(extVersions, vector(1, []byte{0x2a, 0x2a, 3, 4, 3, 3})),
		ext(extALPN, vector(2, vector(1, []byte{0x3a, 0x3a}), vector(1, []byte("h2")), vector(1, []byte("http/1.1")))),
		ext(extECH, []byte{0, 0, 1}),
		sni("public.example"),
	), 3)
	if !done || err != nil || h.Version != TLS13 || string(h.ALPN) != "h2" || !h.ECH || string(h.Name) != "public.example" {
		t.Errorf("%v, %v, %+v", done, err, h)
	}
	bad := map[string][]byte{
		"odd versions":       ext(extVersions, []byte{3, 3, 4, 3}),
		"no versions":        ext(extVersions, []byte{0}),
		"no protocols":       ext(extALPN, []byte{0, 0}),
		"an empty protocol":  ext(extALPN, []byte{0, 1, 0}),
		"a cut protocol":     ext(extALPN, []byte{0, 2, 9, 'h'}),
		"longer than it all": {0, 77, 0, 9, 1},
	}
	for what, e := range bad {
		if _, done, err := parseSplit(whole(e), 1000); done || err != ErrDecode {
			t.Errorf("%s: %v, %v", what, done, err)
		}
	}
}

func TestCheckServer(t *testing.T) {
	body := append([]byte{3, 3}, make([]byte, randomSize)...)
	body = append(body, 0, 0x13, 1, 0)
	hello := func(body ...byte) []byte {
		return records(append([]byte{msgServerHello}, vector(3, body)...), 16)
	}
	full := append(body[:len(body):len(body)], vector(2, ext(extVersions, []byte{3, 4}))...)
	bad := append([]byte(nil), body...)
	bad[0] = 2
	cases := []struct {
		what string
		in   []byte
		ok   bool
	}{
		{"without extensions", hello(body...), true},
		{"with extensions", hello(full...), true},
		{"an alert", AppendAlert(nil, HandshakeFailure), true},
		{"cut extensions", hello(full[:len(full)-1]...), false},
		{"a bad version", hello(bad...), false},
		{"a client's hello", whole(sni("a.example")), false},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n"), false},
		{"a long alert", []byte{recordAlert, 3, 3, 0, 3, 1, 2, 3}, false},
		{"a strange alert", []byte{recordAlert, 4, 3, 0, 2, 1, 2}, false},
	}
	for _, c := range cases {
		var s Scan
		var done bool
		var err error
		for n := 1; n <= len(c.in) && !done && err == nil; n++ {
			done, err = CheckServer(&s, c.in[:n])
		}
		if done != c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %v, %v", c.what, done, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	in := whole(sni("www.example.com"))
	h := new(Hello)
	if n := testing.AllocsPerRun(100, func() { _, _ = h.Parse(new(Scan), in) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse checks that input split at any place gives what it gives whole, and
// that a name is one that can be looked up.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		in, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(in, 7)
	}
	f.Add(records(message(append(sni("example.com"), ext(extECH, []byte{1})...)), 9), 1)
	f.Add(records(message(nil), 1), 2)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		if n <= 0 {
			n = 1
		}
		a, doneA, errA := parseSplit(in, len(in)+1)
		b, doneB, errB := parseSplit(in, n)
		// A piece may show a mistake before the rest shows another.
		if doneA != doneB || (errA == nil) != (errB == nil) {
			t.Fatalf("whole: %v, %v; in pieces of %d: %v, %v", doneA, errA, n, doneB, errB)
		}
		if !doneA {
			return
		}
		if !bytes.Equal(a.Name, b.Name) || a.Version != b.Version || !bytes.Equal(a.ALPN, b.ALPN) {
			t.Fatalf("%+v and %+v", a, b)
		}
		if len(a.Name) > 253 || bytes.ContainsAny(a.Name, " :/\x00ABCXYZ") || bytes.HasSuffix(a.Name, []byte(".")) {
			t.Fatalf("name %q", a.Name)
		}
		_, _ = CheckServer(new(Scan), in)
	})
}
