package worker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// goodFraming are spellings of a body, and what the origin must see of them.
var goodFraming = []struct{ fields, body, framing, data, trailer string }{
	{"", "", "none", "", ""},
	{"Content-Length: 0\r\n", "", "length", "", ""},
	{"content-length:5\r\n", "hello", "length", "hello", ""},
	{"CONTENT-LENGTH: \t 0000000000000000005\t \r\n", "hello", "length", "hello", ""},
	{"Content-Length: 36\r\n", "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n\r\n"[:36], "length", "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n\r\n"[:36], ""},
	{"Transfer-Encoding: chunked\r\n", "0\r\n\r\n", "chunked", "", ""},
	{"transfer-encoding:\tChunked \r\n", "5\r\nhello\r\n0\r\n\r\n", "chunked", "hello", ""},
	{"Transfer-Encoding: CHUNKED\r\n", "0000000000000005\r\nhello\r\n000\r\n\r\n", "chunked", "hello", ""},
	{"Transfer-Encoding: chunked\r\n", "5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", "chunked", "hello", ""},
	{"Transfer-Encoding: chunked\r\n", "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "chunked", "01234567890123456789", ""},
	{"Transfer-Encoding: chunked\r\nTrailer: X\r\n", "2\r\n\r\n\r\n0\r\nX: y\r\nZ:\r\n\r\n", "chunked", "\r\n", "X: y|Z:"},
	{"Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n", "1\r\nx\r\n0\r\n\r\n", "chunked", "x", ""},
	{"Content-Length: 3\r\nConnection: content-length, host\r\n", "abc", "length", "abc", ""},
}

// badFraming are field lines that make the end of a message doubtful, with the
// status they are answered with.
var badFraming = []struct {
	fields string
	status int
}{
	{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
	{"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding: chunked\r\nX: y\r\nContent-length: 0\r\n", 400},
	{"Content-Length: 5\r\nContent-Length: 5\r\n", 400},
	{"Content-Length: 5\r\ncontent-length: 6\r\n", 400},
	{"Content-Length: 5, 5\r\n", 400},
	{"Content-Length: 5,6\r\n", 400},
	{"Content-Length: ,5\r\n", 400},
	{"Content-Length: 5,\r\n", 400},
	{"Content-Length:\r\n", 400},
	{"Content-Length: \t\r\n", 400},
	{"Content-Length: +5\r\n", 400},
	{"Content-Length: -5\r\n", 400},
	{"Content-Length: -0\r\n", 400},
	{"Content-Length: 0x5\r\n", 400},
	{"Content-Length: 5h\r\n", 400},
	{"Content-Length: 5 5\r\n", 400},
	{"Content-Length: 5;x\r\n", 400},
	{"Content-Length: \"5\"\r\n", 400},
	{"Content-Length: 5.0\r\n", 400},
	{"Content-Length: 5e0\r\n", 400},
	{"Content-Length: \xd9\xa5\r\n", 400},
	{"Content-Length: 9223372036854775808\r\n", 400},
	{"Content-Length: 18446744073709551621\r\n", 400},
	{"Content-Length: 00000000000000000005\r\n", 400},
	{"Content-Length: 5\x00\r\n", 400},
	{"Content-Length: \x0b5\r\n", 400},
	{"Content-Length: \x0c5\r\n", 400},
	{"Content-Length : 5\r\n", 400},
	{"Content-Length\t: 5\r\n", 400},
	{"Content-Length\x00: 5\r\n", 400},
	{"Content-Length\x0b: 5\r\n", 400},
	{"Content-Length\xa0: 5\r\n", 400},
	{" Content-Length: 5\r\n", 400},
	{"\tContent-Length: 5\r\n", 400},
	{"X: y\r\n Content-Length: 5\r\n", 400},
	{"X: y\r\n\tContent-Length: 5\r\n", 400},
	{"Content-Length: 5\n", 400},
	{"X: y\nContent-Length: 5\r\n", 400},
	{"X: y\rContent-Length: 5\r\n", 400},
	{"X: y\r\rContent-Length: 5\r\n", 400},
	{"Content-Length:\r\n 5\r\n", 400},
	{"Content Length: 5\r\n", 400},
	{"(Content-Length): 5\r\n", 400},
	{"Transfer-Encoding : chunked\r\n", 400},
	{"Transfer-Encoding\t: chunked\r\n", 400},
	{" Transfer-Encoding: chunked\r\n", 400},
	{"X: y\r\n Transfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding:\r\n chunked\r\n", 400},
	{"Transfer-Encoding:\r\n\tchunked\r\n", 400},
	{"Transfer-Encoding: chunked\n", 400},
	{"X: y\rTransfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding:\r\n", 400},
	{"Transfer-Encoding: ,\r\n", 400},
	{"Transfer-Encoding: chunked,\r\n", 400},
	{"Transfer-Encoding: ,chunked\r\n", 400},
	{"Transfer-Encoding: chunked, chunked\r\n", 400},
	{"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400},
	{"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 400},
	{"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", 400},
	{"Transfer-Encoding: chunked, identity\r\n", 400},
	{"Transfer-Encoding: identity, chunked\r\n", 400},
	{"Transfer-Encoding: gzip, chunked\r\n", 400},
	{"Transfer-Encoding: gzip\r\n", 400},
	{"Transfer-Encoding: identity\r\n", 400},
	{"Transfer-Encoding: foobar\r\n", 400},
	{"Transfer-Encoding: xchunked\r\n", 400},
	{"Transfer-Encoding: chunkedx\r\n", 400},
	{"Transfer-Encoding: chunked x\r\n", 400},
	{"Transfer-Encoding: chunked;q=1\r\n", 400},
	{"Transfer-Encoding: \"chunked\"\r\n", 400},
	{"Transfer-Encoding: 'chunked'\r\n", 400},
	{"Transfer-Encoding: chunked\x00\r\n", 400},
	{"Transfer-Encoding: \x0bchunked\r\n", 400},
	{"Transfer-Encoding: \x0cchunked\r\n", 400},
	{"Transfer-Encoding: chunked\x0b\r\n", 400},
	{"Transfer-Encoding: \xefchunked\r\n", 400},
	{"Transfer-Encoding: \xe2\x84\xaahunked\r\n", 400},
	{"Transfer\x00-Encoding: chunked\r\n", 400},
	{": chunked\r\n", 400},
	{"X\r\n", 400},
	{"X y: z\r\n", 400},
	{"X: y\x00\r\n", 400},
	{"X: \x7f\r\n", 400},
	{"Host: y\r\n", 400},
	{"Expect: 200-maybe\r\n", 417},
}

// badChunks are bodies of a chunked request that are refused, when its head
// has been forwarded perhaps.
var badChunks = []struct {
	body   string
	status int
}{
	{"-1\r\n", 400}, {"+5\r\nhello\r\n0\r\n\r\n", 400}, {" 5\r\nhello\r\n0\r\n\r\n", 400}, {"5 \r\nhello\r\n0\r\n\r\n", 400},
	{"\t5\r\nhello\r\n0\r\n\r\n", 400}, {"0x5\r\nhello\r\n0\r\n\r\n", 400}, {"5x\r\nhello\r\n0\r\n\r\n", 400}, {"g\r\n", 400},
	{"\r\n5\r\nhello\r\n0\r\n\r\n", 400}, {";a\r\nhello\r\n0\r\n\r\n", 400}, {"5_0\r\n", 400}, {"٥\r\n", 400},
	{"5\nhello\r\n0\r\n\r\n", 400}, {"5\rhello\r\n0\r\n\r\n", 400}, {"5\r\nhello\n0\r\n\r\n", 400}, {"5\r\nhello0\r\n\r\n", 400},
	{"5\r\nhello\r\r\n0\r\n\r\n", 400}, {"5\r\nhello!\r\n0\r\n\r\n", 400}, {"5;a\nhello\r\n0\r\n\r\n", 400}, {"5;\x00\r\nhello\r\n0\r\n\r\n", 400},
	{"5;a\rb\r\nhello\r\n0\r\n\r\n", 400}, {"00000000000000005\r\nhello\r\n0\r\n\r\n", 400}, {"10000000000000005\r\n", 400},
	{"ffffffffffffffff\r\n", 400}, {"7fffffffffffffff\r\n", 400}, {"8000000000000000\r\n", 400}, {"1000000000000000\r\n", 400},
	{"5;" + strings.Repeat("a", 1<<20), 400},
	{strings.Repeat("1;aaaaaaa\r\nx\r\n", 600) + "0\r\n\r\n", 400},
	{"5\r\nhello\r\n0\n\r\n", 400}, {"5\r\nhello\r\n0\r\n\n", 400}, {"5\r\nhello\r\n0\r\nX: y\n\r\n", 400},
	{"5\r\nhello\r\n0\r\nX : y\r\n\r\n", 400}, {"5\r\nhello\r\n0\r\n X: y\r\n\r\n", 400}, {"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n", 400},
	{"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n", 400}, {"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	{"5\r\nhello\r\n0\r\nHost: y\r\n\r\n", 400}, {"5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\n\r\n", 400},
	{"5\r\nhello\r\n0\r\n" + strings.Repeat("X: y\r\n", 2000) + "\r\n", 431},
}

// badLines are request lines; ORIGIN stands for the origin's host and port.
var badLines = []struct {
	line   string
	status int
}{
	{"GET http://ORIGIN/ HTTP/1.1 x", 400}, {"GET http://ORIGIN/ HTTP/1.1 /b HTTP/1.1", 400}, {"GET  http://ORIGIN/ HTTP/1.1", 400},
	{"GET http://ORIGIN/  HTTP/1.1", 400}, {"GET http://ORIGIN/ HTTP/1.1 ", 400}, {" GET http://ORIGIN/ HTTP/1.1", 400},
	{"GET\thttp://ORIGIN/ HTTP/1.1", 400}, {"GET http://ORIGIN/\tHTTP/1.1", 400}, {"GET http://ORIGIN/ HTTP/1.1\r", 400},
	{"GET http://ORIGIN/", 400}, {"GET", 400}, {"http://ORIGIN/ HTTP/1.1", 400}, {" http://ORIGIN/ HTTP/1.1", 400},
	{"G(T http://ORIGIN/ HTTP/1.1", 400}, {"GE\x00T http://ORIGIN/ HTTP/1.1", 400}, {strings.Repeat("G", 65) + " http://ORIGIN/ HTTP/1.1", 501},
	{"GET http://ORIGIN/ HTTP/1.2x", 400}, {"GET http://ORIGIN/ HTTP/1", 400}, {"GET http://ORIGIN/ http/1.1", 400},
	{"GET http://ORIGIN/ HTTP/01.1", 400}, {"GET http://ORIGIN/ HTTP/1.10", 400}, {"GET http://ORIGIN/ HTTP/+1.1", 400},
	{"GET http://ORIGIN/ HTTP/0.9", 505}, {"GET http://ORIGIN/ HTTP/2.0", 505}, {"GET http://ORIGIN/ HTTP/3.0", 505}, {"GET http://ORIGIN/ HTTQ/1.1", 400},
	{"GET http://ORIGIN/a b HTTP/1.1", 400}, {"GET http://ORIGIN/a#b HTTP/1.1", 400}, {"GET http://ORIGIN#b HTTP/1.1", 400},
	{"GET http://ORIGIN/\x00 HTTP/1.1", 400}, {"GET http://ORIGIN/\x7f HTTP/1.1", 400}, {"GET http://ORIGIN/\x0b HTTP/1.1", 400},
	{"GET http:/ORIGIN/ HTTP/1.1", 400}, {"GET http:ORIGIN/ HTTP/1.1", 400}, {"GET http:///ORIGIN/ HTTP/1.1", 400}, {"GET //ORIGIN/ HTTP/1.1", 400},
	{"GET ://ORIGIN/ HTTP/1.1", 400}, {"GET http://u:p@ORIGIN/ HTTP/1.1", 400}, {"GET http://@ORIGIN/ HTTP/1.1", 400}, {"GET http://x\\@ORIGIN/ HTTP/1.1", 400},
	{"GET http://ORIGIN\\/ HTTP/1.1", 400}, {"GET http://ORIGIN%00/ HTTP/1.1", 400}, {"GET http://%31ORIGIN/ HTTP/1.1", 400},
	{"GET http://ORIGIN:80/ HTTP/1.1", 400}, {"GET http://127.0.0.1:0/ HTTP/1.1", 400}, {"GET http://127.0.0.1:65536/ HTTP/1.1", 400},
	{"GET http://127.0.0.1:4294967376/ HTTP/1.1", 400}, {"GET http://127.0.0.1:+80/ HTTP/1.1", 400}, {"GET http://127.0.0.1:-80/ HTTP/1.1", 400},
	{"GET http://127.0.0.1:080/ HTTP/1.1", 400}, {"GET http://127.0.0.1:0x50/ HTTP/1.1", 400}, {"GET http://127.0.0.1:80a/ HTTP/1.1", 400},
	{"GET http://[127.0.0.1]/ HTTP/1.1", 400}, {"GET http://[::1/ HTTP/1.1", 400}, {"GET http://::1/ HTTP/1.1", 400}, {"GET http://[::1%25lo]/ HTTP/1.1", 400},
	{"GET http://[::1%lo]/ HTTP/1.1", 400}, {"GET http://[::1]x/ HTTP/1.1", 400}, {"GET http://[name.example]/ HTTP/1.1", 400},
	{"GET http:/// HTTP/1.1", 400}, {"GET http:// HTTP/1.1", 400}, {"GET http://:80/ HTTP/1.1", 400}, {"GET http://a..b/ HTTP/1.1", 400}, {"GET http://.a/ HTTP/1.1", 400},
	{"GET ftp://ORIGIN/ HTTP/1.1", 501}, {"GET https://ORIGIN/ HTTP/1.1", 501}, {"GET gopher://ORIGIN/ HTTP/1.1", 501}, {"GET ws://ORIGIN/ HTTP/1.1", 501},
	{"GET urn:a:b HTTP/1.1", 400}, {"GET mailto:a HTTP/1.1", 400}, {"GET 1http://ORIGIN/ HTTP/1.1", 400},
	{"GET / HTTP/1.1", 400}, {"GET /x HTTP/1.0", 400}, {"GET * HTTP/1.1", 400}, {"POST ORIGIN HTTP/1.1", 400},
	{"GET http://ORIGIN/" + strings.Repeat("a", 33<<10) + " HTTP/1.1", 414}, {"GET http://ORIGIN/" + strings.Repeat("a", 1<<20), 414},
	{"CONNECT ORIGIN/ HTTP/1.1", 400}, {"CONNECT http://ORIGIN/ HTTP/1.1", 400}, {"CONNECT / HTTP/1.1", 400}, {"CONNECT * HTTP/1.1", 400},
	{"CONNECT 127.0.0.1 HTTP/1.1", 400}, {"CONNECT 127.0.0.1: HTTP/1.1", 400}, {"CONNECT :80 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:0 HTTP/1.1", 400},
	{"CONNECT 127.0.0.1:65536 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:4294967318 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:18446744073709551638 HTTP/1.1", 400},
	{"CONNECT 127.0.0.1:+22 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:-22 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:022 HTTP/1.1", 400}, {"CONNECT 127.0.0.1: 22 HTTP/1.1", 400},
	{"CONNECT 127.0.0.1:22 22 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:0x16 HTTP/1.1", 400}, {"CONNECT 127.0.0.1:22a HTTP/1.1", 400}, {"CONNECT 127.0.0.1:22:22 HTTP/1.1", 400},
	{"CONNECT u@127.0.0.1:22 HTTP/1.1", 400}, {"CONNECT u:p@127.0.0.1:22 HTTP/1.1", 400}, {"CONNECT ::1:22 HTTP/1.1", 400}, {"CONNECT [::1]22 HTTP/1.1", 400},
	{"CONNECT [::1%lo]:22 HTTP/1.1", 400}, {"CONNECT [example.com]:22 HTTP/1.1", 400},
	{"CONNECT 127.0.0.1\x00:22 HTTP/1.1", 400}, {"CONNECT 127.0.0.1%00:22 HTTP/1.1", 400}, {"CONNECT 127.0.0.1#:22 HTTP/1.1", 400},
	{"CONNECT 127.0.0.1:22?x HTTP/1.1", 400}, {"CONNECT " + strings.Repeat("a", 300) + ":22 HTTP/1.1", 400}, {"CONNECT " + strings.Repeat("a", 1<<20), 414},
}

// rawCase is one input of the table: what is sent, what the origin must see of
// it, and the statuses the client must get. After a refusal nothing more comes.
type rawCase struct {
	name, in string
	want     []seen
	status   []int
}

// rawCases makes the table: kinds times spellings.
func rawCases(addr string) []rawCase {
	var list []rawCase
	next := "GET http://" + addr + "/next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	nextSeen := seen{"GET", "/next", addr, "none", "", ""}
	line := func(method string) string { return method + " http://" + addr + "/ HTTP/1.1\r\nHost: x\r\n" }
	for i, f := range goodFraming {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "X-Y"} {
			want := seen{method, "/", addr, f.framing, f.data, f.trailer}
			list = append(list, rawCase{
				name: fmt.Sprintf("framing %d, %s", i, method), in: line(method) + f.fields + "\r\n" + f.body + next,
				want: []seen{want, nextSeen}, status: []int{200, 200}})
		}
		if f.framing != "chunked" {
			list = append(list, rawCase{
				name: fmt.Sprintf("framing %d, HTTP/1.0", i), in: "POST http://" + addr + "/ HTTP/1.0\r\nConnection: keep-alive\r\n" + f.fields + "\r\n" + f.body + next,
				want: []seen{{"POST", "/", addr, f.framing, f.data, ""}, nextSeen}, status: []int{200, 200}})
		} else {
			list = append(list, rawCase{
				name: fmt.Sprintf("framing %d, HTTP/1.0", i), in: "POST http://" + addr + "/ HTTP/1.0\r\n" + f.fields + "\r\n" + f.body + next, status: []int{400}})
		}
	}
	for i, f := range badFraming {
		for _, c := range []struct{ name, in string }{
			{"last", line("POST") + "A: b\r\n" + f.fields + "\r\n"},
			{"first", "POST http://" + addr + "/ HTTP/1.1\r\n" + f.fields + "Host: x\r\n\r\n"},
			{"between", line("GET") + f.fields + "A: b\r\n\r\n"},
		} {
			list = append(list, rawCase{name: fmt.Sprintf("bad framing %d, %s", i, c.name), in: c.in + "0\r\n\r\n" + next, status: []int{f.status}})
		}
		list = append(list, rawCase{name: fmt.Sprintf("bad framing %d, second request", i),
			in:   line("POST") + "Content-Length: 2\r\n\r\nab" + line("POST") + f.fields + "\r\n0\r\n\r\n" + next,
			want: []seen{{"POST", "/", addr, "length", "ab", ""}}, status: []int{200, f.status}})
	}
	for i, b := range badChunks {
		for _, prefix := range []string{"", "3\r\nabc\r\n", "3;x\r\nabc\r\n"} {
			list = append(list, rawCase{name: fmt.Sprintf("bad chunks %d after %q", i, prefix),
				in: line("POST") + "Transfer-Encoding: chunked\r\n\r\n" + prefix + b.body, status: []int{b.status}})
		}
	}
	for i, b := range badLines {
		list = append(list, rawCase{name: fmt.Sprintf("bad line %d", i), in: strings.ReplaceAll(b.line, "ORIGIN", addr) + "\r\nHost: x\r\n\r\n" + next, status: []int{b.status}})
	}
	for _, host := range []string{"0x7f.1", "127.1", "2130706433", "0177.0.0.1", "127.0.0.1.1"} {
		list = append(list, rawCase{name: "name " + host, in: "GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n" + next, want: []seen{nextSeen}, status: []int{502, 200}},
			rawCase{name: "CONNECT to name " + host, in: "CONNECT " + host + ":22 HTTP/1.1\r\nHost: x\r\n\r\n" + next, status: []int{502}})
	}
	for n, want := range map[int]int{4: 200, 5: 400} {
		in := strings.Repeat("\r\n", n) + next
		c := rawCase{name: fmt.Sprint(n, " empty lines"), in: in, status: []int{want}}
		if want == 200 {
			c.want = []seen{nextSeen}
		}
		list = append(list, c)
	}
	many := strings.Repeat("a: b\r\n", 256)
	list = append(list,
		rawCase{name: "256 fields", in: line("GET") + many[:6*255] + "\r\n" + next, want: []seen{{"GET", "/", addr, "none", "", ""}, nextSeen}, status: []int{200, 200}},
		rawCase{name: "257 fields", in: line("GET") + many + "\r\n" + next, status: []int{431}},
		rawCase{name: "large head", in: line("GET") + "a: " + strings.Repeat("x", 70<<10) + "\r\n\r\n" + next, status: []int{431}},
		// Lengths that wrap to that of Content-Length in 8 and 16 bits
		// (CVE-2021-40346).
		wrapped(addr, 270, "Content-Length: 3\r\n", "abc", seen{"POST", "/", addr, "length", "abc", ""}),
		wrapped(addr, 270, "", "", seen{"POST", "/", addr, "none", "", ""}),
		wrapped(addr, 270, "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", seen{"POST", "/", addr, "chunked", "abc", ""}),
		wrapped(addr, 256+17, "Content-Length: 3\r\n", "abc", seen{"POST", "/", addr, "length", "abc", ""}),
		wrapped(addr, 32768+14, "Content-Length: 3\r\n", "abc", seen{"POST", "/", addr, "length", "abc", ""}),
		rawCase{name: "name of 65550 bytes", in: line("GET") + wrappedName(65536+14) + ": 5\r\n\r\n" + next, status: []int{431}},
		rawCase{name: "no Host", in: "GET http://" + addr + "/ HTTP/1.1\r\n\r\n" + next, status: []int{400}},
	)
	return list
}

// wrappedName is a field name of n bytes that begins with one about the framing.
func wrappedName(n int) string {
	name := "Content-Length"
	if n%256 == len("Transfer-Encoding") {
		name = "Transfer-Encoding"
	}
	return name + strings.Repeat("a", n-len(name))
}

// wrapped is a request with a field whose name has n bytes before and after others,
// and the request after it.
func wrapped(addr string, n int, fields, body string, want seen) rawCase {
	in := fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: x\r\n", addr)
	long := wrappedName(n) + ": 5\r\n"
	if 2*len(long) < 32<<10 {
		in += long
	}
	in += fields + long + "\r\n" + body + fmt.Sprintf("GET http://%s/next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", addr)
	return rawCase{name: fmt.Sprint("name of ", n, " bytes ", want.framing), in: in,
		want: []seen{want, {"GET", "/next", addr, "none", "", ""}}, status: []int{200, 200}}
}

// TestRawRequests sends every case whole, and the shorter ones in two parts cut
// at several places.
func TestRawRequests(t *testing.T) {
	o := startStrictOrigin(t)
	p := startProxy(t, "internal 127.0.0.1\nnserver 127.0.0.1:1\nauth iponly\nallow * * 127.0.0.1\nproxy -pPORT\n")
	cases := rawCases(o.addr)
	t.Logf("%d cases", len(cases))
	for i, c := range cases {
		cuts := []int{len(c.in)}
		if len(c.in) < 2000 && i%3 == 0 {
			cuts = append(cuts, len(c.in)/3, len(c.in)-len(c.in)/5)
		}
		for _, cut := range cuts {
			t.Run(fmt.Sprint(c.name, "/", cut), func(t *testing.T) { checkRaw(t, p, o, &c, cut) })
		}
	}
	p.waitOpen(0, 0)
}

func checkRaw(t *testing.T, p *proxy, o *strictOrigin, c *rawCase, cut int) {
	cli := p.client(0)
	cli.t = t
	defer cli.Close()
	go func() {
		if _, err := cli.Write([]byte(c.in[:cut])); err != nil || cut == len(c.in) {
			return
		}
		time.Sleep(2 * time.Millisecond)
		_, _ = cli.Write([]byte(c.in[cut:]))
	}()
	var resp *http.Response
	for i, status := range c.status {
		var err error
		resp, _, err = cli.tryAnswer("GET")
		if err != nil {
			t.Fatalf("answer %d to %.300q: %v", i, c.in, err)
		}
		if resp.StatusCode != status {
			t.Fatalf("answer %d to %.300q: status %d, want %d", i, c.in, resp.StatusCode, status)
		}
	}
	if !resp.Close {
		t.Errorf("%.300q: the end is not announced", c.in)
	}
	cli.wantEnd()
	got, err := o.take()
	if err != nil {
		t.Errorf("%.300q: the origin got: %v", c.in, err)
	}
	if !slices.Equal(got, c.want) {
		t.Errorf("%.300q: the origin got %v, want %v", c.in, got, c.want)
	}
}
