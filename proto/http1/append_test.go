package http1

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

var requestHeads = []struct {
	name, in string
	o        RequestOptions
	want     string
}{
	{
		"plain", lines("GET http://a.example/b?c HTTP/1.1", "User-Agent: x", "Host: other", "Accept: */*"),
		RequestOptions{KeepAlive: true},
		lines("GET /b?c HTTP/1.1", "Host: a.example", "User-Agent: x", "Accept: */*"),
	}, {
		"close", get(), RequestOptions{}, lines("GET / HTTP/1.1", "Host: example.com", "Connection: close"),
	}, {
		"port", lines("GET http://A:8080 HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: A:8080"),
	}, {
		"default port", lines("GET http://a:80/ HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: a"),
	}, {
		"IPv6", lines("GET http://[2001:DB8:0::1]:81/ HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: [2001:db8::1]:81"),
	}, {
		"IPv4", lines("GET http://127.0.0.1/ HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: 127.0.0.1"),
	}, {
		"query without path", lines("GET http://a?b HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("GET /?b HTTP/1.1", "Host: a"),
	}, {
		"options for the server", lines("OPTIONS http://a:8001 HTTP/1.0"), RequestOptions{KeepAlive: true},
		lines("OPTIONS * HTTP/1.1", "Host: a:8001"),
	}, {
		"max-forwards", lines("OPTIONS http://a/ HTTP/1.0", "max-forwards: 010"), RequestOptions{KeepAlive: true},
		lines("OPTIONS /"+" HTTP/1.1", "Host: a", "Max-Forwards: 9"),
	}, {
		"max-forwards of another method", lines("GET http://a/ HTTP/1.0", "Max-Forwards: 10"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: a", "Max-Forwards: 10"),
	}, {
		"nominated fields", get("Connection: X-A, close", "X-A: 1", "x-a: 2", "X-B: 3", "X-AB: 4"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "X-B: 3", "X-AB: 4"),
	}, {
		"nominated by Proxy-Connection", get("Proxy-Connection: X-A", "X-A: 1"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com"),
	}, {
		"nominated framing", get("Connection: Host, Content-Length, Transfer-Encoding, Expect, Via, Max-Forwards", "Content-Length: 5", "Expect: 100-continue", "Via: 1.1 x"),
		RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "Content-Length: 5", "Expect: 100-continue", "Via: 1.1 x"),
	}, {
		"nominated coding", get("Connection: transfer-encoding, trailer", "Transfer-Encoding: chunked", "Trailer: x"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "Transfer-Encoding: chunked", "Trailer: x"),
	}, {
		"hop-by-hop fields", get("Keep-Alive: 5", "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic YTpi", "proxy-x: y",
			"TE: trailers, gzip", "Upgrade: h2c", "HTTP2-Settings: a", "Proxy-Authenticate: Basic", "ProXY-:", "A: b"),
		RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "A: b"),
	}, {
		"Connection of itself", get("Connection: connection, proxy-connection", "Proxy-Connection: connection"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com"),
	}, {
		"upgrade", get("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Connection: Upgrade"),
	}, {
		"upgrade not asked for", get("Upgrade: websocket"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com"),
	}, {
		"spelling of the length", get("content-LENGTH:   005"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "Content-Length: 5"),
	}, {
		"spelling of the coding", get("transfer-encoding:cHUNKED"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "Transfer-Encoding: chunked"),
	}, {
		"expectation of HTTP/1.0", lines("PUT http://a/ HTTP/1.0", "Expect: 100-continue", "Content-Length: 1"), RequestOptions{KeepAlive: true},
		lines("PUT / HTTP/1.1", "Host: a", "Content-Length: 1"),
	}, {
		"via", lines("GET http://a/ HTTP/1.0", "Via: 1.1 x"), RequestOptions{KeepAlive: true, Via: "3proxyd"},
		lines("GET / HTTP/1.1", "Host: a", "Via: 1.1 x", "Via: 1.0 3proxyd"),
	}, {
		"white space around values", get("A: \t b  c \t"), RequestOptions{KeepAlive: true},
		lines("GET / HTTP/1.1", "Host: example.com", "A: b  c"),
	},
}

func TestAppendRequestHead(t *testing.T) {
	for _, c := range requestHeads {
		var r Request
		if n, err := r.Parse([]byte(c.in)); n == 0 || err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := string(AppendRequestHead(nil, &r, c.o)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

var testClient = netip.MustParseAddrPort("192.0.2.7:1234")

// TestClientFields checks what each way to tell of the client sends.
func TestClientFields(t *testing.T) {
	received := []string{"Forwarded: for=a", "X-Forwarded-For: b", "X-FORWARDED-Host: c", "X-Forwarded: d", "X-Real-IP: e",
		"client-ip: f", "X-Client-IP: g", "Via: 1.1 h", "X-Other: i", "Accept: j"}
	kept := append([]string{"GET / HTTP/1.1", "Host: example.com"}, received...)
	stripped := []string{"GET / HTTP/1.1", "Host: example.com", "X-Other: i", "Accept: j"}
	for _, c := range []struct {
		name string
		o    RequestOptions
		want []string
	}{
		{"nothing", RequestOptions{}, kept},
		{"Forwarded", RequestOptions{Via: "p", Tell: Forwarded, Client: testClient},
			append(kept[:len(kept):len(kept)], "Via: 1.1 p", `Forwarded: for="192.0.2.7:1234";by=_p`)},
		{"Forwarded, IPv6", RequestOptions{Tell: Forwarded, Client: netip.MustParseAddrPort("[2001:db8::1]:2")},
			append(kept[:len(kept):len(kept)], `Forwarded: for="[2001:db8::1]:2"`)},
		{"Forwarded, Unix socket", RequestOptions{Tell: Forwarded}, append(kept[:len(kept):len(kept)], "Forwarded: for=unknown")},
		{"X-Forwarded-For", RequestOptions{Via: "p", Tell: XForwardedFor, Client: testClient},
			append(kept[:len(kept):len(kept)], "Via: 1.1 p", "X-Forwarded-For: 192.0.2.7")},
		{"X-Forwarded-For, Unix socket", RequestOptions{Tell: XForwardedFor}, append(kept[:len(kept):len(kept)], "X-Forwarded-For: unknown")},
		{"anonymous", RequestOptions{Anonymous: true}, stripped},
		{"another address", RequestOptions{Via: "p", Anonymous: true, Tell: XForwardedFor, Client: testClient},
			append(stripped[:len(stripped):len(stripped)], "Via: 1.1 p", "X-Forwarded-For: 192.0.2.7")},
	} {
		var r Request
		if _, err := r.Parse([]byte(get(received...))); err != nil {
			t.Fatal(err)
		}
		c.o.KeepAlive = true
		if got, want := string(AppendRequestHead(nil, &r, c.o)), lines(c.want...); got != want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, want)
		}
	}
}

func TestAppendOwnFields(t *testing.T) {
	var r Request
	if _, err := r.Parse([]byte(get())); err != nil {
		t.Fatal(err)
	}
	r.Fields = append(r.Fields,
		Field{Name: []byte("X-Forwarded-For"), Value: []byte("192.0.2.1")},
		Field{Name: []byte("Connection"), Value: []byte("close")})
	want := lines("GET / HTTP/1.1", "Host: example.com", "X-Forwarded-For: 192.0.2.1")
	if got := string(AppendRequestHead(nil, &r, RequestOptions{KeepAlive: true})); got != want {
		t.Errorf("got %q", got)
	}
}

var responseHeads = []struct {
	name, in string
	o        ResponseOptions
	want     string
}{
	{"plain", ok("Content-Length: 05"), ResponseOptions{}, ok("Content-Length: 5")},
	{"HTTP/1.0 server", lines("HTTP/1.0 200 OK", "Content-Length: 5", "Connection: close"), ResponseOptions{}, lines("HTTP/1.1 200 OK", "Content-Length: 5")},
	{"close", ok("Content-Length: 5", "Connection: keep-alive"), ResponseOptions{Close: true}, ok("Content-Length: 5", "Connection: close")},
	{"keep for HTTP/1.0", ok("Content-Length: 5"), ResponseOptions{HTTP10: true}, ok("Content-Length: 5", "Connection: keep-alive")},
	{"close for HTTP/1.0", ok("Content-Length: 5"), ResponseOptions{HTTP10: true, Close: true}, ok("Content-Length: 5", "Connection: close")},
	{"until close", ok(), ResponseOptions{HTTP10: true}, ok("Connection: close")},
	{"chunked", ok("Transfer-encoding: Chunked", "Trailer: A"), ResponseOptions{}, ok("Transfer-Encoding: chunked", "Trailer: A")},
	{"dechunked", ok("Transfer-Encoding: chunked", "Trailer: A"), ResponseOptions{Dechunk: true, HTTP10: true}, ok("Connection: close")},
	{"hop-by-hop", ok("Content-Length: 5", "Connection: A, upgrade", "A: b", "Keep-Alive: 5", "Upgrade: h2", "Proxy-Connection: x",
		"Proxy-Authenticate: Basic realm=x", "Proxy-Authentication-Info: y", "TE: z", "Set-Cookie: c"), ResponseOptions{},
		ok("Content-Length: 5", "Set-Cookie: c")},
	{"nominated framing", ok("Content-Length: 5", "Connection: content-length"), ResponseOptions{}, ok("Content-Length: 5")},
	{"switching protocols", lines("HTTP/1.1 101 Switching", "Upgrade: websocket", "Connection: Upgrade"), ResponseOptions{Close: true},
		lines("HTTP/1.1 101 Switching", "Upgrade: websocket", "Connection: Upgrade")},
	{"upgrade required", lines("HTTP/1.1 426 Upgrade", "Upgrade: x", "Content-Length: 0"), ResponseOptions{},
		lines("HTTP/1.1 426 Upgrade", "Upgrade: x", "Content-Length: 0", "Connection: Upgrade")},
	{"upgrade required and close", lines("HTTP/1.1 426 Upgrade", "Upgrade: x", "Content-Length: 0"), ResponseOptions{Close: true},
		lines("HTTP/1.1 426 Upgrade", "Upgrade: x", "Content-Length: 0", "Connection: Upgrade, close")},
	{"continue", lines("HTTP/1.1 100 Continue", "Content-Length: 0"), ResponseOptions{Close: true}, lines("HTTP/1.1 100 Continue")},
	{"no content", lines("HTTP/1.1 204 No", "Content-Length: 0", "Transfer-Encoding2: x"), ResponseOptions{}, lines("HTTP/1.1 204 No", "Transfer-Encoding2: x")},
	{"not modified", lines("HTTP/1.1 304 No", "Content-Length: 7"), ResponseOptions{}, lines("HTTP/1.1 304 No", "Content-Length: 7")},
	{"no reason", lines("HTTP/1.1 200", "Content-Length: 5"), ResponseOptions{}, lines("HTTP/1.1 200 ", "Content-Length: 5")},
	{"LF and blank before colon", "HTTP/1.1 200 OK\nA : b\nContent-Length: 1\n\n", ResponseOptions{}, lines("HTTP/1.1 200 OK", "A: b", "Content-Length: 1")},
	{"via", lines("HTTP/1.0 200 OK", "Content-Length: 5"), ResponseOptions{Via: "p"}, lines("HTTP/1.1 200 OK", "Content-Length: 5", "Via: 1.0 p")},
}

func TestAppendResponseHead(t *testing.T) {
	for _, c := range responseHeads {
		var r Response
		if n, err := r.Parse([]byte(c.in), false, false); n == 0 || err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := string(AppendResponseHead(nil, &r, c.o)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestAppendError(t *testing.T) {
	statuses := []int{400, 403, 404, 405, 407, 408, 413, 414, 417, 431, 500, 501, 502, 503, 504, 505, 508}
	for _, status := range statuses {
		o := AnswerOptions{Realm: `a "b" \` + "\r\n\x00", Allow: "GET, HEAD", Close: status%2 == 0}
		page := AppendError(nil, status, o)
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(page)), nil)
		if err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || int64(len(body)) != resp.ContentLength || resp.Close != o.Close {
			t.Errorf("%d: status %d, length %d of %d, close %v, %v", status, resp.StatusCode, len(body), resp.ContentLength, resp.Close, err)
		}
		if !bytes.HasSuffix(page, []byte("</html>\n")) || len(bytes.SplitAfter(page, []byte("</html>\n"))[0]) != len(page) {
			t.Errorf("%d: ends with %q", status, page[len(page)-10:])
		}
		challenge := resp.Header.Get("Proxy-Authenticate")
		if want := `Basic realm="a \"b\" \\", charset="UTF-8"`; status == 407 && challenge != want || status != 407 && challenge != "" {
			t.Errorf("%d: challenge %q", status, challenge)
		}
		if (resp.Header.Get("Allow") != "") != (status == 405) {
			t.Errorf("%d: Allow %q", status, resp.Header.Get("Allow"))
		}
		o.Head = true
		if head := AppendError(nil, status, o); !bytes.HasPrefix(page, head) || !bytes.HasSuffix(head, []byte("\r\n\r\n")) || len(page)-len(head) != len(body) {
			t.Errorf("%d: head %q", status, head)
		}
	}
	if got := string(AppendError(nil, 299, AnswerOptions{HTTP10: true})); !strings.HasPrefix(got, "HTTP/1.1 500 ") || !strings.Contains(got, "\r\nConnection: keep-alive\r\n") {
		t.Errorf("unknown status: %q", got)
	}
}

func TestAppendEstablished(t *testing.T) {
	for minor, want := range []string{"HTTP/1.0 200 Connection established\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\n"} {
		if got := string(AppendEstablished(nil, minor)); got != want {
			t.Errorf("1.%d: %q", minor, got)
		}
	}
}

// TestErrorFormats checks that every page is valid in every format.
func TestErrorFormats(t *testing.T) {
	for _, p := range pages {
		for format, contentType := range contentTypes {
			o := AnswerOptions{Format: Format(format), Reason: "malformed request line"}
			resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(AppendError(nil, p.status, o))), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.Header.Get("Content-Type") != contentType || !bytes.Contains(body, []byte(o.Reason)) {
				t.Errorf("%d: %q, %q, %v", p.status, resp.Header.Get("Content-Type"), body, err)
			}
			var fields struct {
				Status                int
				Title, Detail, Reason string
			}
			if o.Format == JSON {
				if err := json.Unmarshal(body, &fields); err != nil || fields.Status != p.status || fields.Title != p.title || fields.Detail != p.detail {
					t.Errorf("%d: %+v, %v", p.status, fields, err)
				}
			}
		}
	}
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]Format{
		"":          HTML,
		"*/*":       HTML,
		"image/png": HTML,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": HTML,
		"application/json":                            JSON,
		"application/json, text/plain, */*":           JSON,
		"text/plain, application/json":                Text,
		"text/plain":                                  Text,
		"Text/Plain;charset=utf-8":                    Text,
		"application/problem+json":                    JSON,
		"application/*":                               JSON,
		"text/html;q=0.5, application/json":           JSON,
		"text/html, application/json;q=0.9":           HTML,
		"application/json;q=0":                        HTML,
		"application/json;q=2":                        HTML,
		"application/json;q=0.x":                      HTML,
		"application/json; v=1 ; q=0.1":               JSON,
		"text/plain;q=0.001, text/html;q=.9":          Text,
		",,,text/plain":                               Text,
		strings.Repeat(",", maxRanges) + "text/plain": HTML,
	} {
		if got := Negotiate([]byte(accept)); got != want {
			t.Errorf("%q: %d, want %d", accept, got, want)
		}
	}
}

// TestErrorPages checks that every status a parser asks for has a page.
func TestErrorPages(t *testing.T) {
	for _, c := range refused {
		if c.status != 0 && findPage(c.status).status != c.status {
			t.Errorf("%d has no page", c.status)
		}
	}
}
