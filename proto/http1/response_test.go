package http1

import (
	"fmt"
	"strings"
	"testing"
)

// ok is a good response with further field lines.
func ok(fields ...string) string {
	return lines(append([]string{"HTTP/1.1 200 OK", "Server: x"}, fields...)...)
}

var responsesRefused = []struct{ name, in string }{
	{"HTTP/0.9", "<html>\r\n\r\n"},
	{"junk", "\x15\x03\x01"},
	{"empty line first", "\r\nHTTP/1.1 200 OK\r\n\r\n"},
	{"ICY", lines("ICY 200 OK")},
	{"lower case", lines("http/1.1 200 OK")},
	{"HTTP/2", lines("HTTP/2.0 200 OK")},
	{"version", lines("HTTP/1.x 200 OK")},
	{"version long", lines("HTTP/1.10 200 OK")},
	{"no status", lines("HTTP/1.1")},
	{"no status after blank", lines("HTTP/1.1 ")},
	{"status short", lines("HTTP/1.1 20 OK")},
	{"status long", lines("HTTP/1.1 2000 OK")},
	{"status with sign", lines("HTTP/1.1 +20 OK")},
	{"status below 100", lines("HTTP/1.1 099 OK")},
	{"two blanks", lines("HTTP/1.1  200 OK")},
	{"tab", lines("HTTP/1.1\t200 OK")},
	{"control in reason", lines("HTTP/1.1 200 O\x00K")},
	{"CR in reason", lines("HTTP/1.1 200 O\rK")},
	{"folded", ok("A: b", " c")},
	{"no colon", ok("abc")},
	{"empty name", ok(": x")},
	{"blank in name", ok("A B: c")},
	{"NUL in value", ok("A: b\x00")},
	{"bare CR in value", ok("A: b\rContent-Length: 5")},
	{"too many fields", ok(make257()...)},
	{"too many fields without end", strings.TrimSuffix(ok(make257()...), "\r\n")},
	{"too many empty lines", strings.Repeat("\r\n", 9) + ok()},
	{"too large", ok("A: " + strings.Repeat("a", MaxHead))},
	{"without end", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", MaxHead)},
	{"length and chunked", ok("Content-Length: 5", "Transfer-Encoding: chunked")},
	{"two lengths", ok("Content-Length: 5", "Content-Length: 6")},
	{"three lengths", ok("Content-Length: 5", "Content-Length: 5", "Content-Length: 6")},
	{"length list", ok("Content-Length: 5, 6")},
	{"list and length", ok("Content-Length: 5, 5", "Content-Length: 6")},
	{"list with an empty element", ok("Content-Length: 5,")},
	{"list with an empty first element", ok("Content-Length: , 5")},
	{"second length empty", ok("Content-Length: 5", "Content-Length:")},
	{"lengths and chunked", ok("Content-Length: 5, 5", "Transfer-Encoding: chunked")},
	{"length empty", ok("Content-Length:")},
	{"length negative", ok("Content-Length: -1")},
	{"length junk", ok("Content-Length: 1x")},
	{"length large", ok("Content-Length: 9223372036854775808")},
	{"coding unknown", ok("Transfer-Encoding: gzip")},
	{"coding list", ok("Transfer-Encoding: gzip, chunked")},
	{"coding identity", ok("Transfer-Encoding: identity")},
	{"coding twice", ok("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")},
	{"coding in 1.0", lines("HTTP/1.0 200 OK", "Transfer-Encoding: chunked")},
	{"length and chunked with blank", ok("Content-Length: 5", "Transfer-Encoding : chunked")},
	{"Connection names too much", ok("Connection: " + strings.Repeat("a,", maxNominated+1))},
}

func TestResponseRefused(t *testing.T) {
	for _, c := range responsesRefused {
		for _, head := range []bool{false, true} {
			var r Response
			if n, err := r.Parse([]byte(c.in), head, false); n != 0 || statusOf(err) != 502 {
				t.Errorf("%s: %d, %v", c.name, n, err)
			}
		}
	}
}

// One length that is given several times is one, and is sent on once.
func TestResponseLengthFolded(t *testing.T) {
	for _, fields := range [][]string{
		{"Content-Length: 5", "Content-Length: 5"},
		{"Content-Length: 5, 5"},
		{"Content-Length: 5,5 ,\t5", "content-length: 05"},
	} {
		in := ok(append(fields, "A: b")...)
		var r Response
		n, err := r.Parse([]byte(in), false, false)
		if n != len(in) || err != nil || r.ContentLength != 5 || r.Body != BodyLength {
			t.Errorf("%q: %d, %v, length %d", in, n, err, r.ContentLength)
			continue
		}
		const want = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\nA: b\r\n\r\n"
		if got := string(AppendResponseHead(nil, &r, ResponseOptions{})); got != want {
			t.Errorf("%q is sent on as %q", in, got)
		}
	}
}

func TestKeepAliveFor(t *testing.T) {
	for value, want := range map[string]int{
		"timeout=5": 5, "timeout=5, max=100": 5, "max=1,TIMEOUT = 7": 7, "timeout=0": 0,
		"": -1, "5": -1, "timeout": -1, "timeout=": -1, "timeout=-1": -1, "timeout=99999999999": -1, "xtimeout=5": -1,
	} {
		var r Response
		if _, err := r.Parse([]byte(ok("Content-Length: 5", "Keep-Alive: "+value)), false, false); err != nil || r.KeepAliveFor != want {
			t.Errorf("%q: %d, %v, want %d", value, r.KeepAliveFor, err, want)
		}
	}
}

func describeResponse(r *Response) string {
	kinds := [...]string{"none", "length", "chunked", "close"}
	s := fmt.Sprintf("1.%d %d %q %s %d", r.Minor, r.Status, r.Reason, kinds[r.Body], r.ContentLength)
	for _, flag := range []struct {
		set  bool
		name string
	}{{r.Chunked, "chunked"}, {r.KeepAlive, "keep"}, {r.Upgrade, "upgrade"}} {
		if flag.set {
			s += " " + flag.name
		}
	}
	return s
}

var responsesAccepted = []struct {
	in            string
	head, connect bool
	want          string
}{
	{in: ok(), want: `1.1 200 "OK" close -1`},
	{in: ok("Content-Length: 5"), want: `1.1 200 "OK" length 5 keep`},
	{in: ok("Content-Length : 5"), want: `1.1 200 "OK" length 5 keep`},
	{in: ok("Content-Length: 0"), want: `1.1 200 "OK" none 0 keep`},
	{in: ok("Transfer-Encoding: CHUNKED"), want: `1.1 200 "OK" chunked -1 chunked keep`},
	{in: ok("Content-Length: 5", "Connection: close"), want: `1.1 200 "OK" length 5`},
	{in: ok("Content-Length: 5"), head: true, want: `1.1 200 "OK" none 5 keep`},
	{in: ok("Transfer-Encoding: chunked"), head: true, want: `1.1 200 "OK" none -1 chunked keep`},
	{in: ok(), head: true, want: `1.1 200 "OK" none -1 keep`},
	{in: ok("Content-Length: 5"), connect: true, want: `1.1 200 "OK" none -1 keep`},
	{in: ok("Content-Length: 5", "Content-Length: 6", "Transfer-Encoding: x"), connect: true, want: `1.1 200 "OK" none -1 keep`},
	{in: lines("HTTP/1.1 407 No", "Content-Length: 5"), connect: true, want: `1.1 407 "No" length 5 keep`},
	{in: lines("HTTP/1.1 204 No Content"), want: `1.1 204 "No Content" none -1 keep`},
	{in: lines("HTTP/1.1 204 No Content", "Content-Length: 5"), want: `1.1 204 "No Content" none 5 keep`},
	{in: lines("HTTP/1.1 304 Not Modified", "Content-Length: 5"), want: `1.1 304 "Not Modified" none 5 keep`},
	{in: lines("HTTP/1.1 100 Continue"), want: `1.1 100 "Continue" none -1 keep`},
	{in: lines("HTTP/1.1 103 Early Hints", "Link: x"), want: `1.1 103 "Early Hints" none -1 keep`},
	{in: lines("HTTP/1.1 101 Switching", "Upgrade: x", "Connection: upgrade"), want: `1.1 101 "Switching" none -1 upgrade`},
	{in: lines("HTTP/1.1 205 Reset", "Content-Length: 0"), want: `1.1 205 "Reset" none 0 keep`},
	{in: lines("HTTP/1.0 200 OK", "Content-Length: 5"), want: `1.0 200 "OK" length 5`},
	{in: lines("HTTP/1.0 200 OK", "Content-Length: 5", "Connection: keep-alive"), want: `1.0 200 "OK" length 5 keep`},
	{in: lines("HTTP/1.0 200 OK", "Connection: keep-alive"), want: `1.0 200 "OK" close -1`},
	{in: lines("HTTP/1.1 200"), want: `1.1 200 "" close -1`},
	{in: lines("HTTP/1.1 200 "), want: `1.1 200 "" close -1`},
	{in: lines("HTTP/1.1 999 \xc3\xa4 \t"), want: `1.1 999 "ä \t" close -1`},
	{in: "HTTP/1.1 200 OK\nContent-Length: 5\n\n", want: `1.1 200 "OK" length 5 keep`},
	{in: "HTTP/1.1 200 OK\r\nContent-Length: 5\n\r\n", want: `1.1 200 "OK" length 5 keep`},
}

func TestResponseAccepted(t *testing.T) {
	var r Response
	for _, c := range responsesAccepted {
		n, err := r.Parse([]byte(c.in+"body"), c.head, c.connect)
		if err != nil || n != len(c.in) || describeResponse(&r) != c.want {
			t.Errorf("%q: %d, %v\n got %s\nwant %s", c.in, n, err, describeResponse(&r), c.want)
		}
		for i := range len(c.in) {
			if n, err := r.Parse([]byte(c.in[:i]), c.head, c.connect); n != 0 || err != nil {
				t.Fatalf("%q: %d, %v", c.in[:i], n, err)
			}
		}
		n, err = r.Parse([]byte(c.in), c.head, c.connect)
		if err != nil || n != len(c.in) || describeResponse(&r) != c.want {
			t.Errorf("%q in pieces: %d, %v, %s", c.in, n, err, describeResponse(&r))
		}
	}
}
