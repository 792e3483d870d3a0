package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"testing"
)

// nominations are fields that name themselves, each other, or what cannot be named
// (CVE-2023-49606), with the names of the fields that remain.
var nominations = []struct{ fields, remain string }{
	{"Connection: connection\r\n", ""},
	{"Connection: Connection, Connection\r\nConnection: connection\r\n", ""},
	{"Proxy-Connection: Proxy-Connection\r\n", ""},
	{"Connection: Proxy-Connection\r\n", ""},
	{"Connection: Proxy-Connection\r\nProxy-Connection: Connection\r\n", ""},
	{"Proxy-Connection: connection, proxy-connection\r\nConnection: proxy-connection, connection\r\n", ""},
	{"Connection: Keep-Alive, keep-alive\r\nKeep-Alive: Keep-Alive\r\n", ""},
	{"Connection: X-A\r\nX-A: X-A, Connection\r\n", ""},
	{"Connection: X-A\r\nX-A: X-B\r\nX-B: X-A\r\n", "X-B"},
	{"X-A: 1\r\nX-A: 2\r\nConnection: x-a\r\nX-A: 3\r\n", ""},
	{"Connection: X-A\r\nConnection: X-B\r\nX-B: 1\r\nX-A: 1\r\nX-Ab: 1\r\n", "X-Ab"},
	{"Connection:\r\nX-A: 1\r\n", "X-A"},
	{"Connection: , ,\t, \r\nX-A: 1\r\n", "X-A"},
	{"Connection: TE, Trailer\r\nTE: TE\r\nTrailer: Trailer\r\n", "Trailer"},
	{"Connection: Via\r\nVia: 1.1 Via\r\n", "Via"},
	{"Connection: Upgrade, Upgrade\r\nUpgrade: h2c\r\n", ""},
	{"Connection: HTTP2-Settings\r\nHTTP2-Settings: HTTP2-Settings\r\n", ""},
	{"Connection: Proxy-A, Proxy-Authorization\r\nProxy-A: Proxy-A\r\n", ""},
}

// fieldNames returns the names of the fields in a head that are not among those of
// every message here, each once.
func fieldNames(t *testing.T, head string) string {
	t.Helper()
	_, fields, _ := strings.Cut(head, "\r\n")
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(fields))).ReadMIMEHeader()
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	if v := h["Via"]; len(v) == 1 {
		h.Del("Via") // the proxy's own
	}
	for _, name := range []string{"Host", "Forwarded", "Content-Length"} {
		h.Del(name)
	}
	var names []string
	for name := range h {
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestNominations(t *testing.T) {
	next := make(chan string, 1)
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: 5\r\n\r\nhello", <-next)
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for _, test := range nominations {
		next <- ""
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.addr, test.fields)
		c.want("GET", 200, "hello")
		if got := fieldNames(t, o.last()); got != test.remain {
			t.Errorf("request with %q: the server got %q, want %q", test.fields, got, test.remain)
		}
		next <- test.fields
		c.get(o, "/")
		head, err := readHead(c.r)
		if err != nil {
			t.Fatal(err)
		}
		if got := fieldNames(t, head); got != test.remain {
			t.Errorf("response with %q: the client got %q, want %q", test.fields, got, test.remain)
		}
		if _, err := io.ReadFull(c.r, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if n := o.accepts.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
