package http1

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func statusOf(err error) int {
	var e *Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Status
}

// lines joins the lines of a head with CRLF and ends it.
func lines(l ...string) string { return strings.Join(l, "\r\n") + "\r\n\r\n" }

// get is a good request with further field lines.
func get(fields ...string) string {
	return lines(append([]string{"GET http://example.com/ HTTP/1.1", "Host: example.com"}, fields...)...)
}

// refused are requests with the status each is answered with.
var refused = []struct {
	name   string
	in     string
	status int
}{
	// Request line.
	{"no method", lines(" http://x/ HTTP/1.1", "Host: x"), 400},
	{"no target", lines("GET HTTP/1.1", "Host: x"), 400},
	{"two blanks", lines("GET  http://x/ HTTP/1.1", "Host: x"), 400},
	{"blank after version", lines("GET http://x/ HTTP/1.1 ", "Host: x"), 400},
	{"tab as blank", lines("GET\thttp://x/\tHTTP/1.1", "Host: x"), 400},
	{"second request line", lines("GET /a HTTP/1.1 /b HTTP/1.1", "Host: x"), 400},
	{"method only", lines("GET"), 400},
	{"version 0.9", lines("GET http://x/"), 400},
	{"method not a token", lines("GE(T http://x/ HTTP/1.1", "Host: x"), 400},
	{"method in quotes", lines(`"GET" http://x/ HTTP/1.1`, "Host: x"), 400},
	{"method too long", lines(strings.Repeat("A", MaxMethod+1)+" http://x/ HTTP/1.1", "Host: x"), 501},
	{"HTTP/2", lines("GET http://x/ HTTP/2.0", "Host: x"), 505},
	{"HTTP/0.9", lines("GET http://x/ HTTP/0.9", "Host: x"), 505},
	{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\n", 505},
	{"version in lower case", lines("GET http://x/ http/1.1", "Host: x"), 400},
	{"version with more digits", lines("GET http://x/ HTTP/1.10", "Host: x"), 400},
	{"version with sign", lines("GET http://x/ HTTP/1.+", "Host: x"), 400},
	{"no version number", lines("GET http://x/ HTTP/", "Host: x"), 400},
	{"other protocol", lines("GET http://x/ ICY/1.1", "Host: x"), 400},
	{"TLS", "\x16\x03\x01\x02\x00", 400},
	{"SOCKS 5", "\x05\x01\x00", 400},

	// Line ends.
	{"bare LF", "GET http://x/ HTTP/1.1\nHost: x\n\n", 400},
	{"bare LF in a field", "GET http://x/ HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400},
	{"bare LF at the end", "GET http://x/ HTTP/1.1\r\nHost: x\r\n\n", 400},
	{"bare LF before the request", "\nGET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"bare CR", "GET http://x/ HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400},
	{"CR CR LF", "GET http://x/ HTTP/1.1\r\nHost: x\r\r\n\r\n", 400},
	{"CR in the request line", "GET http://x/\rHTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"empty lines without end", strings.Repeat("\r\n", 5), 400},

	// Target.
	{"no scheme", lines("GET example.com/ HTTP/1.1", "Host: x"), 400},
	{"authority form without CONNECT", lines("GET example.com:80 HTTP/1.1", "Host: x"), 400},
	{"asterisk without OPTIONS", lines("GET * HTTP/1.1", "Host: x"), 400},
	{"https", lines("GET https://x/ HTTP/1.1", "Host: x"), 501},
	{"ftp", lines("GET ftp://x/ HTTP/1.1", "Host: x"), 501},
	{"ftp with long head", lines("GET ftp://x/ HTTP/1.1", "Host: x", "A: "+strings.Repeat("a", 60000)), 501},
	{"gopher", lines("GET gopher://x/ HTTP/1.1", "Host: x"), 501},
	{"ws", lines("GET ws://x/ HTTP/1.1", "Host: x"), 501},
	{"urn", lines("GET urn:isbn:1 HTTP/1.1", "Host: x"), 400},
	{"javascript", lines("GET javascript:alert(1) HTTP/1.1", "Host: x"), 400},
	{"scheme junk", lines("GET ht!tp://x/ HTTP/1.1", "Host: x"), 400},
	{"scheme missing", lines("GET ://x/ HTTP/1.1", "Host: x"), 400},
	{"one slash", lines("GET http:/x/ HTTP/1.1", "Host: x"), 400},
	{"no slash", lines("GET http:x HTTP/1.1", "Host: x"), 400},
	{"empty authority", lines("GET http:///a HTTP/1.1", "Host: x"), 400},
	{"nothing after the scheme", lines("GET http:// HTTP/1.1", "Host: x"), 400},
	{"fragment", lines("GET http://h/a#.png HTTP/1.1", "Host: h"), 400},
	{"fragment in authority", lines("GET http://h#@x/ HTTP/1.1", "Host: h"), 400},
	{"fragment in origin form", lines("GET /a#b HTTP/1.1", "Host: h"), 400},
	{"user", lines("GET http://user@x/ HTTP/1.1", "Host: x"), 400},
	{"user and password", lines("GET http://user:pw@x/ HTTP/1.1", "Host: x"), 400},
	{"empty user", lines("GET http://@x/ HTTP/1.1", "Host: x"), 400},
	{"backslash in authority", lines(`GET http://x\@y/ HTTP/1.1`, "Host: x"), 400},
	{"backslash instead of slash", lines(`GET http://x\y HTTP/1.1`, "Host: x"), 400},
	{"percent in authority", lines("GET http://x%2ey/ HTTP/1.1", "Host: x"), 400},
	{"NUL escape in authority", lines("GET http://x%00/ HTTP/1.1", "Host: x"), 400},
	{"control character", lines("GET http://x/\x01 HTTP/1.1", "Host: x"), 400},
	{"NUL", lines("GET http://x/\x00 HTTP/1.1", "Host: x"), 400},
	{"DEL", lines("GET http://x/\x7f HTTP/1.1", "Host: x"), 400},
	{"tab in target", lines("GET http://x/\ta HTTP/1.1", "Host: x"), 400},
	{"tab in authority", lines("GET http://x\t/ HTTP/1.1", "Host: x"), 400},
	{"name in brackets", lines("GET http://[example.com]/ HTTP/1.1", "Host: x"), 400},
	{"zone", lines("GET http://[fe80::1%25lo]/ HTTP/1.1", "Host: x"), 400},
	{"IPv6 without brackets", lines("GET http://::1/ HTTP/1.1", "Host: x"), 400},
	{"UTF-8 in authority", lines("GET http://b\xc3\xbccher.example/ HTTP/1.1", "Host: x"), 400},
	{"empty label", lines("GET http://a..b/ HTTP/1.1", "Host: x"), 400},
	{"name of 254", lines("GET http://"+strings.Repeat("a.", 127)+"/ HTTP/1.1", "Host: x"), 0},
	{"name of 255", lines("GET http://"+strings.Repeat("a.", 127)+"b/ HTTP/1.1", "Host: x"), 400},
	{"label of 64", lines("GET http://"+strings.Repeat("a", 64)+"/ HTTP/1.1", "Host: x"), 400},
	{"port 0", lines("GET http://x:0/ HTTP/1.1", "Host: x"), 400},
	{"port 65536", lines("GET http://x:65536/ HTTP/1.1", "Host: x"), 400},
	{"port wraps 32 bits", lines("GET http://x:4294972296/ HTTP/1.1", "Host: x"), 400},
	{"port wraps 64 bits", lines("GET http://x:18446744073709551638/ HTTP/1.1", "Host: x"), 400},
	{"port with sign", lines("GET http://x:+22/ HTTP/1.1", "Host: x"), 400},
	{"port negative", lines("GET http://x:-22/ HTTP/1.1", "Host: x"), 400},
	{"port with zero", lines("GET http://x:022/ HTTP/1.1", "Host: x"), 400},
	{"two ports", lines("GET http://x:80:80/ HTTP/1.1", "Host: x"), 400},
	{"target too long", lines("GET http://x/"+strings.Repeat("a", MaxTarget)+" HTTP/1.1", "Host: x"), 414},
	{"target without end, half a head", "GET http://x/" + strings.Repeat("a", MaxTarget+MaxMethod), 414},
	{"target without end", "GET http://x/" + strings.Repeat("a", MaxHead), 414},

	// CONNECT.
	{"CONNECT without port", lines("CONNECT x HTTP/1.1", "Host: x"), 400},
	{"CONNECT with empty port", lines("CONNECT x: HTTP/1.1", "Host: x"), 400},
	{"CONNECT without host", lines("CONNECT :443 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port 0", lines("CONNECT x:0 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port 65536", lines("CONNECT x:65536 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port wraps", lines("CONNECT x:4294967318 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port sign", lines("CONNECT x:+22 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port zero", lines("CONNECT x:022 HTTP/1.1", "Host: x"), 400},
	{"CONNECT port blank", lines("CONNECT x: 22 HTTP/1.1", "Host: x"), 400},
	{"CONNECT absolute form", lines("CONNECT http://x:80/ HTTP/1.1", "Host: x"), 400},
	{"CONNECT origin form", lines("CONNECT / HTTP/1.1", "Host: x"), 400},
	{"CONNECT path", lines("CONNECT x:443/ HTTP/1.1", "Host: x"), 400},
	{"CONNECT user", lines("CONNECT u@x:443 HTTP/1.1", "Host: x"), 400},
	{"CONNECT name in brackets", lines("CONNECT [example.com]:443 HTTP/1.1", "Host: x"), 400},
	{"CONNECT too long", "CONNECT " + strings.Repeat("a", 1<<20), 414},
	{"CONNECT with length", lines("CONNECT x:443 HTTP/1.1", "Host: x", "Content-Length: 1"), 400},
	{"CONNECT with chunks", lines("CONNECT x:443 HTTP/1.1", "Host: x", "Transfer-Encoding: chunked"), 400},

	// Fields.
	{"empty name", get(": x"), 400},
	{"colon only", get(":"), 400},
	{"no colon", get("abc"), 400},
	{"blank before colon", get("Content-Length : 5"), 400},
	{"tab before colon", get("A\t: 5"), 400},
	{"blank in name", get("A B: 5"), 400},
	{"folded", get("A: b", " c"), 400},
	{"folded by tab", get("A: b", "\tc"), 400},
	{"folded first field", lines("GET http://x/ HTTP/1.1", " Host: x"), 400},
	{"line of blanks", get("  "), 400},
	{"name with quote", get(`"A": b`), 400},
	{"name with NUL", get("A\x00: b"), 400},
	{"name not ASCII", get("\xc3\xa4: b"), 400},
	{"name in brackets", get("[a]: b"), 400},
	{"NUL in value", get("A: b\x00c"), 400},
	{"control in value", get("A: bbbbbbbbbbbbbbb\x0bc"), 400},
	{"DEL in value", get("A: b\x7fc"), 400},
	{"too many fields", get(make257()...), 431},
	{"100000 fields", get(strings.Split(strings.Repeat("a:b\n", 100000), "\n")...), 431},
	{"too many fields without end", strings.TrimSuffix(get(make257()...), "\r\n"), 431},
	{"head too large", get("A: " + strings.Repeat("a", MaxHead)), 431},
	{"field without end", "GET http://x/ HTTP/1.1\r\nA: " + strings.Repeat("a", MaxHead), 431},
	{"X-Forwarded-For of 1 MiB", get("X-Forwarded-For: " + strings.Repeat("1.1.1.1, ", 1<<17)), 431},
	{"Proxy-Authorization of 2 MB", get("Proxy-Authorization: Digest " + strings.Repeat("a", 2<<20)), 431},
	{"Connection names too much", get("Connection: " + strings.Repeat("a,", maxNominated+1)), 400},
	{"two Proxy-Authorization", get("Proxy-Authorization: Basic YTpi", "Proxy-Authorization: Basic YTpj"), 400},
	{"expectation", get("Expect: 200-ok"), 417},
	{"expectation list", get("Expect: 100-continue, x"), 417},

	// Host.
	{"no Host", lines("GET http://x/ HTTP/1.1"), 400},
	{"no Host in origin form", lines("GET / HTTP/1.1"), 400},
	{"two Host", get("Host: other"), 400},
	{"two same Host", get("Host: example.com"), 400},
	{"two Host in 1.0", lines("GET http://x/ HTTP/1.0", "Host: a", "Host: b"), 400},
	{"Host with user", lines("GET http://x/ HTTP/1.1", "Host: u@x"), 400},
	{"Host with path", lines("GET http://x/ HTTP/1.1", "Host: x/y"), 400},
	{"Host list", lines("GET http://x/ HTTP/1.1", "Host: x, y"), 400},
	{"Host with blank", lines("GET http://x/ HTTP/1.1", "Host: x y"), 400},
	{"Host with bad port", lines("GET http://x/ HTTP/1.1", "Host: x:65536"), 400},

	// Framing.
	{"length and chunked", get("Content-Length: 5", "Transfer-Encoding: chunked"), 400},
	{"chunked and length", get("Transfer-Encoding: chunked", "Content-Length: 5"), 400},
	{"length 0 and chunked", get("Content-Length: 0", "Transfer-Encoding: chunked"), 400},
	{"two lengths, same", get("Content-Length: 5", "Content-Length: 5"), 400},
	{"two lengths, other", get("Content-Length: 5", "content-length: 6"), 400},
	{"length list", get("Content-Length: 5, 5"), 400},
	{"length list, other", get("Content-Length: 5,6"), 400},
	{"length list, empty first", get("Content-Length: ,5"), 400},
	{"length empty", get("Content-Length:"), 400},
	{"length blank", get("Content-Length: \t "), 400},
	{"length with sign", get("Content-Length: +5"), 400},
	{"length negative", get("Content-Length: -5"), 400},
	{"length hexadecimal", get("Content-Length: 0x5"), 400},
	{"length with junk", get("Content-Length: 5a"), 400},
	{"length with blank inside", get("Content-Length: 5 5"), 400},
	{"length in quotes", get(`Content-Length: "5"`), 400},
	{"length with point", get("Content-Length: 5.0"), 400},
	{"length not ASCII", get("Content-Length: \xd9\xa5"), 400},
	{"length over int64", get("Content-Length: 9223372036854775808"), 400},
	{"length wraps", get("Content-Length: 18446744073709551621"), 400},
	{"length with many zeros", get("Content-Length: 00000000000000000005"), 400},
	{"coding foobar", get("Transfer-Encoding: foobar"), 400},
	{"coding identity", get("Transfer-Encoding: identity"), 400},
	{"coding gzip", get("Transfer-Encoding: gzip"), 400},
	{"coding gzip, chunked", get("Transfer-Encoding: gzip, chunked"), 400},
	{"coding identity, chunked", get("Transfer-Encoding: identity, chunked"), 400},
	{"coding chunked, gzip", get("Transfer-Encoding: chunked, gzip"), 400},
	{"coding chunked, chunked", get("Transfer-Encoding: chunked, chunked"), 400},
	{"coding chunked twice", get("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400},
	{"coding in two lines", get("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400},
	{"coding empty", get("Transfer-Encoding:"), 400},
	{"coding with comma", get("Transfer-Encoding: chunked,"), 400},
	{"coding after comma", get("Transfer-Encoding: ,chunked"), 400},
	{"coding with parameter", get("Transfer-Encoding: chunked;a=b"), 400},
	{"coding in quotes", get(`Transfer-Encoding: "chunked"`), 400},
	{"coding xchunked", get("Transfer-Encoding: xchunked"), 400},
	{"coding chunked x", get("Transfer-Encoding: chunked x"), 400},
	{"coding with vertical tab", get("Transfer-Encoding: \x0bchunked"), 400},
	{"coding with blank before colon", get("Transfer-Encoding : chunked"), 400},
	{"coding in HTTP/1.0", lines("POST http://x/ HTTP/1.0", "Transfer-Encoding: chunked"), 400},
	{"TRACE with length", lines("TRACE http://x/ HTTP/1.1", "Host: x", "Content-Length: 1"), 400},
	{"TRACE with chunks", lines("TRACE http://x/ HTTP/1.1", "Host: x", "Transfer-Encoding: chunked"), 400},
	{"Max-Forwards negative", lines("TRACE http://x/ HTTP/1.1", "Host: x", "Max-Forwards: -1"), 400},
	{"Max-Forwards empty", lines("OPTIONS http://x/ HTTP/1.1", "Host: x", "Max-Forwards:"), 400},
	{"two Max-Forwards", lines("OPTIONS http://x/ HTTP/1.1", "Host: x", "Max-Forwards: 1", "Max-Forwards: 1"), 400},
}

func make257() []string {
	fields := make([]string, MaxFields)
	for i := range fields {
		fields[i] = fmt.Sprintf("a%d: b", i)
	}
	return fields
}

func TestRequestRefused(t *testing.T) {
	for _, c := range refused {
		var r Request
		n, err := r.Parse([]byte(c.in))
		if statusOf(err) != c.status || err != nil && n != 0 || err == nil && n != len(c.in) {
			t.Errorf("%s: %d, %v; want status %d", c.name, n, err, c.status)
		}
	}
}

// TestRequestRefusedInPieces checks that a refusal does not depend on how the
// input arrives.
func TestRequestRefusedInPieces(t *testing.T) {
	for _, c := range refused {
		if len(c.in) > 1000 {
			continue
		}
		var r Request
		var err error
		for i := 0; i <= len(c.in) && err == nil; i++ {
			var n int
			if n, err = r.Parse([]byte(c.in[:i])); n > 0 {
				break
			}
		}
		if statusOf(err) != c.status {
			t.Errorf("%s: %v; want status %d", c.name, err, c.status)
		}
	}
}

// describe prints what Parse found, for the table below.
func describe(r *Request) string {
	dest := string(r.Host)
	if r.Addr.IsValid() {
		dest = r.Addr.String()
	}
	forms := [...]string{"origin", "absolute", "authority", "asterisk"}
	s := fmt.Sprintf("%s %s %s %d %s 1.%d", r.Method, forms[r.Form], dest, r.Port, r.Path, r.Minor)
	if r.ContentLength >= 0 {
		s += fmt.Sprintf(" length=%d", r.ContentLength)
	}
	if r.MaxForwards >= 0 {
		s += fmt.Sprintf(" max=%d", r.MaxForwards)
	}
	if r.ProxyAuth != nil {
		s += fmt.Sprintf(" auth=%q", r.ProxyAuth)
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{
		{r.Chunked, "chunked"}, {r.KeepAlive, "keep"}, {r.Expect100, "expect"},
		{r.Upgrade, "upgrade"}, {r.HasHostField, "host"},
	} {
		if flag.set {
			s += " " + flag.name
		}
	}
	return s
}

var accepted = []struct{ in, want string }{
	{get(), "GET absolute example.com 80 / 1.1 keep host"},
	{lines("GET http://a/b?c HTTP/1.1", "Host: other:8080"), "GET absolute a 80 /b?c 1.1 keep host"},
	{lines("GET http://a/ HTTP/1.1", "Host:"), "GET absolute a 80 / 1.1 keep host"},
	{lines("GET HTTP://A.Example:8080 HTTP/1.1", "Host: a"), "GET absolute A.Example 8080 / 1.1 keep host"},
	{lines("GET http://a.example.:/x HTTP/1.1", "Host: a"), "GET absolute a.example 80 /x 1.1 keep host"},
	{lines("GET http://a?q=http://b/ HTTP/1.1", "Host: a"), "GET absolute a 80 ?q=http://b/ 1.1 keep host"},
	{lines("GET http://a/@b:c HTTP/1.1", "Host: a"), "GET absolute a 80 /@b:c 1.1 keep host"},
	{lines("GET http://a//../%2e%00%zz\\\xc3\xa4|{}\" HTTP/1.1", "Host: a"), "GET absolute a 80 //../%2e%00%zz\\\xc3\xa4|{}\" 1.1 keep host"},
	{lines("GET http://[::1]:8080/ HTTP/1.1", "Host: [::1]:8080"), "GET absolute ::1 8080 / 1.1 keep host"},
	{lines("GET http://[::ffff:7f00:1]/ HTTP/1.1", "Host: x"), "GET absolute 127.0.0.1 80 / 1.1 keep host"},
	{lines("GET http://127.0.0.1:81/ HTTP/1.1", "Host: x"), "GET absolute 127.0.0.1 81 / 1.1 keep host"},
	{lines("GET / HTTP/1.1", "Host: a:81"), "GET origin a 81 / 1.1 keep host"},
	{lines("GET / HTTP/1.1", "Host: a"), "GET origin a 80 / 1.1 keep host"},
	{lines("GET / HTTP/1.1", "Host:"), "GET origin  0 / 1.1 keep host"},
	{lines("GET / HTTP/1.0"), "GET origin  0 / 1.0"},
	{lines("GET http://a/ HTTP/1.0"), "GET absolute a 80 / 1.0"},
	{lines("GET http://a/ HTTP/1.9", "Host: a"), "GET absolute a 80 / 1.1 keep host"},
	{"\r\n\r\nGET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET absolute a 80 / 1.1 keep host"},
	{lines("!#$%&'*+-.^_`|~0aZ http://a/ HTTP/1.1", "Host: a"), "!#$%&'*+-.^_`|~0aZ absolute a 80 / 1.1 keep host"},

	{lines("CONNECT a:443 HTTP/1.1", "Host: b"), "CONNECT authority a 443  1.1 keep host"},
	{lines("CONNECT a:443 HTTP/1.1"), "CONNECT authority a 443  1.1 keep"},
	{lines("CONNECT a:443 HTTP/1.0"), "CONNECT authority a 443  1.0"},
	{lines("CONNECT [2001:db8::1]:443 HTTP/1.1", "Host: a"), "CONNECT authority 2001:db8::1 443  1.1 keep host"},
	{lines("CONNECT a:443 HTTP/1.1", "Host: a", "Content-Length: 0"), "CONNECT authority a 443  1.1 length=0 keep host"},
	{lines("CONNECT a:443 HTTP/1.1", "Host: a", "Upgrade: x", "Connection: upgrade"), "CONNECT authority a 443  1.1 keep host"},

	{lines("OPTIONS * HTTP/1.1", "Host: a:81"), "OPTIONS asterisk a 81 * 1.1 keep host"},
	{lines("OPTIONS http://a HTTP/1.1", "Host: a"), "OPTIONS absolute a 80 * 1.1 keep host"},
	{lines("OPTIONS http://a/ HTTP/1.1", "Host: a"), "OPTIONS absolute a 80 / 1.1 keep host"},
	{lines("OPTIONS http://a?x HTTP/1.1", "Host: a"), "OPTIONS absolute a 80 ?x 1.1 keep host"},
	{lines("OPTIONS http://a/ HTTP/1.1", "Host: a", "Max-Forwards: 0"), "OPTIONS absolute a 80 / 1.1 max=0 keep host"},
	{lines("TRACE http://a/ HTTP/1.1", "Host: a", "Max-Forwards: 9999999999"), "TRACE absolute a 80 / 1.1 max=999999999 keep host"},
	{lines("GET http://a/ HTTP/1.1", "Host: a", "Max-Forwards: x"), "GET absolute a 80 / 1.1 keep host"},

	{get("Content-Length: 0"), "GET absolute example.com 80 / 1.1 length=0 keep host"},
	{get("Content-Length:\t 007 "), "GET absolute example.com 80 / 1.1 length=7 keep host"},
	{get("content-length: 9223372036854775807"), "GET absolute example.com 80 / 1.1 length=9223372036854775807 keep host"},
	{get("Transfer-Encoding: Chunked"), "GET absolute example.com 80 / 1.1 chunked keep host"},
	{get("tRANSFER-eNCODING: \t CHUNKED\t"), "GET absolute example.com 80 / 1.1 chunked keep host"},
	{get("Content-Length2: 5", "X-Transfer-Encoding: gzip"), "GET absolute example.com 80 / 1.1 keep host"},
	{get(strings.Repeat("a", 256) + "content-length: 5"), "GET absolute example.com 80 / 1.1 keep host"},

	{get("Connection: close"), "GET absolute example.com 80 / 1.1 host"},
	{get("Connection: a, CLOSE ,b"), "GET absolute example.com 80 / 1.1 host"},
	{get("Connection: keep-alive, close"), "GET absolute example.com 80 / 1.1 host"},
	{get("Connection: connection"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Proxy-Connection: proxy-connection, ,"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Connection:", "Connection: ,,"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Proxy-Connection: close"), "GET absolute example.com 80 / 1.1 host"},
	{lines("GET http://a/ HTTP/1.0", "Connection: Keep-Alive"), "GET absolute a 80 / 1.0 keep"},
	{lines("GET http://a/ HTTP/1.0", "Proxy-Connection: keep-alive"), "GET absolute a 80 / 1.0 keep"},
	{lines("GET http://a/ HTTP/1.0", "Proxy-Connection: keep-alive", "Connection: close"), "GET absolute a 80 / 1.0"},

	{get("Expect: 100-Continue", "Content-Length: 5"), "GET absolute example.com 80 / 1.1 length=5 keep expect host"},
	{lines("PUT http://a/ HTTP/1.0", "Expect: 100-continue", "Content-Length: 5"), "PUT absolute a 80 / 1.0 length=5"},
	{get("Upgrade: websocket", "Connection: Upgrade"), "GET absolute example.com 80 / 1.1 keep upgrade host"},
	{get("Upgrade: websocket"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Upgrade:", "Connection: upgrade"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AA"), "GET absolute example.com 80 / 1.1 keep host"},
	{get("Upgrade: websocket", "Upgrade: x, H2C", "Connection: upgrade"), "GET absolute example.com 80 / 1.1 keep host"},
	{lines("GET http://a/ HTTP/1.0", "Upgrade: websocket", "Connection: upgrade"), "GET absolute a 80 / 1.0"},
	{get("Proxy-Authorization:  Basic YTpi "), `GET absolute example.com 80 / 1.1 auth="Basic YTpi" keep host`},
	{get("Proxy-Authorization:"), `GET absolute example.com 80 / 1.1 auth="" keep host`},
}

func TestRequestAccepted(t *testing.T) {
	var r Request
	for _, c := range accepted {
		in := c.in + "GET rest"
		n, err := r.Parse([]byte(in))
		if err != nil || n != len(c.in) {
			t.Errorf("%q: %d, %v", c.in, n, err)
			continue
		}
		if got := describe(&r); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// TestRequestInPieces parses each request byte by byte, the buffer moving each
// time, on one Request with the Scan kept aside.
func TestRequestInPieces(t *testing.T) {
	var r Request
	for _, c := range accepted {
		var scan Scan
		for i := range len(c.in) {
			r.Scan = scan
			if n, err := r.Parse([]byte(c.in[:i])); n != 0 || err != nil {
				t.Fatalf("%q: %d, %v", c.in[:i], n, err)
			}
			scan = r.Scan
			r.Reset()
		}
		r.Scan = scan
		n, err := r.Parse([]byte(c.in))
		if err != nil || n != len(c.in) || describe(&r) != c.want {
			t.Errorf("%q: %d, %v, %s", c.in, n, err, describe(&r))
		}
	}
}

func TestRequestLimits(t *testing.T) {
	fields := make257()[:MaxFields-1]
	var r Request
	if n, err := r.Parse([]byte(get(fields...))); n == 0 || err != nil || len(r.Fields) != MaxFields {
		t.Errorf("%d fields: %d, %v", MaxFields, n, err)
	}
	room := MaxHead - len(get("A: "))
	longest := get("A: " + strings.Repeat("a", room))
	if n, err := r.Parse([]byte(longest)); n != MaxHead || err != nil {
		t.Errorf("longest head: %d, %v", n, err)
	}
	blank := strings.Repeat("\r\n", maxBlankLines)
	if n, err := r.Parse([]byte(blank + longest)); n != len(blank)+MaxHead || err != nil {
		t.Errorf("longest head after empty lines: %d, %v", n, err)
	}
	if _, err := r.Parse([]byte(get("A: " + strings.Repeat("a", room+1)))); statusOf(err) != 431 {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := r.Parse([]byte(longest[:MaxHead-1])); err != nil {
		t.Errorf("one byte missing: %v", err)
	}
	r.Reset()
	target := "http://x/" + strings.Repeat("a", MaxTarget-len("http://x/"))
	if n, err := r.Parse([]byte(lines("GET "+target+" HTTP/1.1", "Host: x"))); n == 0 || err != nil {
		t.Errorf("longest target: %d, %v", n, err)
	}
}

// TestRequestAfterError checks what an access log and an error page need.
func TestRequestAfterError(t *testing.T) {
	var r Request
	if _, err := r.Parse([]byte(lines("HEAD http://x/ HTTP/1.1"))); statusOf(err) != 400 {
		t.Fatal(err)
	}
	if string(r.Method) != "HEAD" || string(r.Target) != "http://x/" {
		t.Errorf("after an error: %q %q", r.Method, r.Target)
	}
	if _, err := r.Parse([]byte(lines("(", "Host: x"))); err == nil || r.Method != nil {
		t.Errorf("%v, method %q", err, r.Method)
	}
}

func TestHasVia(t *testing.T) {
	var r Request
	if _, err := r.Parse([]byte(get("Via: 1.0 fred, 1.1 p.example (x)", "via:1.1 3proxyd"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"fred": true, "p.example": true, "3proxyd": true, "1.1": false, "(x)": false, "": false} {
		if r.HasVia(name) != want {
			t.Errorf("HasVia(%q) = %v", name, !want)
		}
	}
}
