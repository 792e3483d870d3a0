package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"3proxyd/ipc"
)

func TestKeepAliveBothSides(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for range 100 {
		c.get(o, "/x")
		c.want("GET", 200, "hello")
	}
	if n := o.accepts.Load(); n != 1 {
		t.Errorf("%d connections to the origin", n)
	}
	p.waitCounter(0, ipc.Requests, 100)
	// Another client of the same service uses the same connection.
	c.Close()
	p.waitOpen(0, 0)
	d := p.client(0)
	d.get(o, "/y")
	d.want("GET", 200, "hello")
	if n := o.accepts.Load(); n != 1 {
		t.Errorf("%d connections to the origin", n)
	}
}

// A connection on which a large body ended serves the request that follows at
// once: no client has a second one opened for it.
func TestKeepAliveAfterBulk(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 32<<10)
	for name, answer := range map[string]string{
		"length":  ok(body),
		"chunked": fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		t.Run(name, func(t *testing.T) {
			o := startOrigin(t, say(answer, true))
			p := startProxy(t, proxyConfig)
			var all sync.WaitGroup
			for range 8 {
				c := p.client(0)
				all.Go(func() {
					for range 60 {
						c.send("GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\n\r\n", o.addr)
						if _, got, err := c.tryAnswer("GET"); err != nil || got != body {
							t.Errorf("%d bytes, %v", len(got), err)
							return
						}
					}
				})
			}
			all.Wait()
			if n := o.accepts.Load(); n > 8 {
				t.Errorf("%d connections to the origin for 8 clients", n)
			}
		})
	}
}

func TestPipelining(t *testing.T) {
	var origins []*origin
	for i := range 3 {
		origins = append(origins, startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool {
			path := strings.Fields(head)[1]
			_, err := io.WriteString(c, ok(fmt.Sprint(i, path)))
			return err == nil
		}))
	}
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	var all strings.Builder
	const n = 100
	for i := range n {
		o := origins[i%3]
		fmt.Fprintf(&all, "GET http://%s/%d HTTP/1.1\r\nHost: x\r\n\r\n", o.addr, i)
	}
	go io.WriteString(c, all.String())
	for i := range n {
		c.want("GET", 200, fmt.Sprint(i%3, "/", i))
	}
	for i, o := range origins {
		if n := o.accepts.Load(); n != 1 {
			t.Errorf("origin %d: %d connections", i, n)
		}
	}
}

// A client that sends its requests and its FIN at once gets every answer.
func TestPipelinedThenFIN(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	one := fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", o.addr)
	c.send(one + one + one)
	c.CloseWrite()
	for range 3 {
		c.want("GET", 200, "hello")
	}
	c.wantEnd()
	p.waitOpen(0, 0)
}

// A client that pipelines without reading is not read for ever: what waits for
// it is bounded.
func TestPipeliningWithoutReading(t *testing.T) {
	body := strings.Repeat("x", 60<<10)
	o := startOrigin(t, say(ok(body), true))
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	one := fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", o.addr)
	const n = 3000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range n {
			if _, err := io.WriteString(c, one); err != nil {
				return
			}
		}
	}()
	// The origin stops being asked once the client's socket is full.
	last := -1
	for i := 0; i < 200 && o.requests() != last; i++ {
		last = o.requests()
		time.Sleep(50 * time.Millisecond)
	}
	if last > 300 {
		t.Errorf("%d requests were answered to a client that does not read", last)
	}
	for range n {
		c.want("GET", 200, body)
	}
	<-sent
}

// The service's connections are shared neither between users nor services.
func TestPoolIsolation(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers a:CL:pa b:CL:pb\nauth strong\nproxy -pPORT\nproxy -pPORT\n")
	ask := func(service int, auth string) {
		t.Helper()
		c := p.client(service)
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n", o.addr, auth)
		c.want("GET", 200, "hello")
		c.Close()
	}
	const a, b = "YTpwYQ==", "YjpwYg=="
	for i, step := range []struct {
		service int
		auth    string
		want    int64
	}{{0, a, 1}, {0, b, 2}, {1, a, 3}, {1, b, 4}, {0, a, 4}, {0, b, 4}, {1, a, 4}, {1, b, 4}} {
		ask(step.service, step.auth)
		if n := o.accepts.Load(); n != step.want {
			t.Errorf("step %d: %d connections, want %d", i, n, step.want)
		}
	}
}

// Another user on the same client connection gets another server connection.
func TestUserChangesOnConnection(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers a:CL:pa b:CL:pb\nauth strong\nproxy -pPORT\n")
	c := p.client(0)
	for i, auth := range []string{"YTpwYQ==", "YjpwYg==", "YTpwYQ==", "YTpwYg==", "YjpwYg=="} {
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n", o.addr, auth)
		if i == 3 {
			c.want("GET", 407, "")
			continue
		}
		c.want("GET", 200, "hello")
	}
	if n := o.accepts.Load(); n > 3 {
		t.Errorf("%d connections", n)
	}
}

// The origin closes an idle connection: the next request gets a new one.
func TestIdleOriginCloses(t *testing.T) {
	closed := make(chan struct{}, 10)
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
		_, _ = io.WriteString(c, ok("hello"))
		closed <- struct{}{}
		return false
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for range 5 {
		c.get(o, "/")
		c.want("GET", 200, "hello")
		<-closed
		time.Sleep(20 * time.Millisecond)
	}
	if n := o.accepts.Load(); n != 5 {
		t.Errorf("%d connections", n)
	}
}

// A pooled connection that the server closes upon the next request: a GET is
// sent again once, a POST is not.
func TestStalePooledConnection(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool {
		if n == 1 {
			return false
		}
		if strings.HasPrefix(head, "POST") {
			_, _ = io.CopyN(io.Discard, r, 3)
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	c.get(o, "/1")
	c.want("GET", 200, "hello")
	once := p.counter(0, ipc.BytesOut)
	c.get(o, "/2")
	c.want("GET", 200, "hello")
	if n := o.accepts.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	if n := p.counter(0, ipc.BytesOut); n != 2*once {
		t.Errorf("%d bytes were counted for two requests, %d for one", n, once)
	}
	if n := o.requests(); n != 3 {
		t.Errorf("%d requests", n)
	}
	c.send("POST http://%s/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", o.addr)
	if resp := c.want("POST", 502, ""); resp.Close {
		t.Error("connection ends after a request that has been read whole")
	}
	c.get(o, "/4")
	c.want("GET", 200, "hello")
	// A connection that is closed twice in a row is not tried a third time.
	o2 := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, n int) bool {
		if strings.Contains(head, "/die") {
			return false
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	d := p.client(0)
	d.get(o2, "/")
	d.want("GET", 200, "hello")
	d.get(o2, "/die")
	d.want("GET", 502, "")
	if n := o2.requests(); n != 3 {
		t.Errorf("%d requests", n)
	}
	d.get(o2, "/")
	d.want("GET", 200, "hello")
}

// A short body of an idempotent request is sent again with it, whole.
func TestStaleConnectionAndBody(t *testing.T) {
	for _, test := range []struct {
		method, fields, body string
		status               int
	}{
		{"PUT", "Content-Length: 3\r\n", "abc", 200},
		{"DELETE", "Content-Length: 3\r\n", "abc", 200},
		{"PUT", fmt.Sprintf("Content-Length: %d\r\n", maxRetryBody), strings.Repeat("x", maxRetryBody), 200},
		{"PUT", fmt.Sprintf("Content-Length: %d\r\n", maxRetryBody+1), strings.Repeat("x", maxRetryBody+1), 502},
		{"PUT", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", 502},
		{"POST", "Content-Length: 3\r\n", "abc", 502},
		{"PATCH", "Content-Length: 3\r\n", "abc", 502},
	} {
		o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool {
			if n == 1 {
				return false
			}
			if !strings.HasPrefix(head, "GET") {
				b := make([]byte, len(test.body))
				if _, err := io.ReadFull(r, b); err != nil || string(b) != test.body {
					t.Errorf("%s: the server got %q, %v", test.method, b, err)
				}
			}
			_, err := io.WriteString(c, ok("hello"))
			return err == nil
		})
		p := startProxy(t, proxyConfig)
		c := p.client(0)
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.send("%s http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n%s", test.method, o.addr, test.fields, test.body)
		c.want(test.method, test.status, "")
		c.get(o, "/")
		c.want("GET", 200, "hello")
	}
}

// A server that ends a reused connection after an interim response has got the
// request: it is not sent again.
func TestEndAfterInterimResponse(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "/die") {
			_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
			return false
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	for i, version := range []string{"1.1", "1.0"} {
		c := p.client(0)
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.send("GET http://%s/die HTTP/%s\r\nHost: x\r\n\r\n", o.addr, version)
		if version == "1.1" {
			c.want("GET", 103, "")
		}
		c.want("GET", 502, "")
		c.Close()
		if n := o.requests(); n != 2*i+2 {
			t.Errorf("HTTP/%s: %d requests", version, n)
		}
	}
}

// NTLM and Negotiate authenticate the connection: it stays with the client.
func TestConnectionAuthenticationPins(t *testing.T) {
	for _, scheme := range []string{"NTLM", "Negotiate"} {
		challenge := "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: " + scheme + "\r\nContent-Length: 0\r\n\r\n"
		whose := func(c *net.TCPConn, _ *bufio.Reader, head string, n int) bool {
			if n == 0 && !strings.Contains(head, "Authorization: ") {
				_, err := io.WriteString(c, challenge)
				return err == nil
			}
			_, err := io.WriteString(c, ok(c.RemoteAddr().String()))
			return err == nil
		}
		o, other := startOrigin(t, whose), startOrigin(t, whose)
		p := startProxy(t, proxyConfig)
		c := p.client(0)
		c.get(o, "/")
		c.want("GET", 401, "")
		auth := func(o *origin) string {
			t.Helper()
			c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nAuthorization: %s abc\r\n\r\n", o.addr, scheme)
			_, body := c.answer("GET")
			return body
		}
		first := auth(o)
		c.get(o, "/")
		if _, second := c.answer("GET"); second != first {
			t.Errorf("%s: request went over %s after %s", scheme, second, first)
		}
		// Others never meet it, neither now nor when its client turns to
		// another server and authenticates there at once.
		strange := func(o *origin, mine string) {
			t.Helper()
			d := p.client(0)
			d.get(o, "/")
			if _, body := d.answer("GET"); body == mine {
				t.Errorf("%s: somebody else's connection was used", scheme)
			}
			d.Close()
		}
		strange(o, first)
		mine := auth(other)
		strange(o, first)
		strange(other, mine)
		c.Close()
		p.waitOpen(0, 0)
		strange(other, mine)
	}
}

// What an origin sends beyond its response, at once or later, never reaches a
// client.
func TestSurplusFromOrigin(t *testing.T) {
	evil := ok("evil")
	for name, f := range map[string]script{
		"length":  say(ok("good")+evil, true),
		"chunked": say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"+evil, true),
		"none":    say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"+evil, true),
		"split": func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
			text := ok("good") + evil
			_, _ = io.WriteString(c, text[:len(text)-len(evil)-2])
			time.Sleep(20 * time.Millisecond)
			_, err := io.WriteString(c, text[len(text)-len(evil)-2:])
			return err == nil
		},
		"later": func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
			_, _ = io.WriteString(c, ok("good"))
			time.Sleep(20 * time.Millisecond)
			_, err := io.WriteString(c, evil)
			return err == nil
		},
		"pinned": func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nWWW-Authenticate: NTLM\r\nContent-Length: 4\r\n\r\ngood")
			time.Sleep(20 * time.Millisecond)
			_, err := io.WriteString(c, evil)
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := startOrigin(t, f)
			p := startProxy(t, proxyConfig)
			c := p.client(0)
			for range 4 {
				c.get(o, "/")
				resp, body := c.answer("GET")
				if name == "none" && body != "" || name != "none" && body != "good" {
					t.Fatalf("%d %q", resp.StatusCode, body)
				}
				time.Sleep(40 * time.Millisecond)
			}
			if c.r.Buffered() > 0 {
				t.Error("more than the answer arrived")
			}
		})
	}
}

// After a reload nobody is served over a connection opened under the settings
// before: new clients get new ones, and so does the one that was there.
func TestPoolAfterReload(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, proxyConfig)
	old := p.client(0)
	old.get(o, "/")
	old.want("GET", 200, "hello")
	p.load(p.cfg)
	for range 3 {
		c := p.client(0)
		c.get(o, "/")
		c.want("GET", 200, "hello")
		old.get(o, "/")
		old.want("GET", 200, "hello")
		c.Close()
	}
	if n := o.accepts.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// Another address than the client's has connections of its own, and so has
// another source address of the service.
func TestPoolOfClientAddress(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nproxy -pPORT\nproxy -pPORT -e127.0.0.3\n")
	for i, step := range []struct {
		service int
		from    string
		want    int64
	}{
		{0, "127.0.0.1", 1}, {0, "127.0.0.2", 2}, {0, "127.0.0.1", 2}, {0, "127.0.0.2", 2},
		{1, "127.0.0.1", 3}, {1, "127.0.0.2", 4}, {1, "127.0.0.1", 4},
	} {
		c := p.clientFrom(step.service, step.from)
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.Close()
		p.waitOpen(step.service, 0)
		if n := o.accepts.Load(); n != step.want {
			t.Errorf("step %d: %d connections, want %d", i, n, step.want)
		}
	}
}

// The idle connections are bounded in number; the oldest go first.
func TestPoolIsBounded(t *testing.T) {
	const clients = 2*poolMaxEach + 100
	release := make(chan struct{})
	var open atomic.Int64
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, _ string, _ int) bool {
		open.Add(1)
		<-release
		_, _ = io.WriteString(c, ok("hello"))
		_, _ = r.Peek(1)
		open.Add(-1)
		return false
	})
	p := startProxy(t, "internal 127.0.0.1\nmaxconn 2000\nproxy -pPORT\n")
	var list []*client
	for i := range clients {
		c := p.clientFrom(0, []string{"127.0.0.1", "127.0.0.2"}[i%2])
		c.get(o, "/")
		list = append(list, c)
	}
	for deadline := time.Now().Add(20 * time.Second); o.requests() < clients; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests", o.requests())
		}
	}
	close(release)
	for _, c := range list {
		c.want("GET", 200, "hello")
		c.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); open.Load() != poolMax; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are idle, want %d", open.Load(), poolMax)
		}
	}
	p.drain(20_000)
	for deadline := time.Now().Add(20 * time.Second); open.Load() != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are idle in a drain", open.Load())
		}
	}
}

// A drain closes no connection before its first request.
func TestDrainAwaitsFirstRequest(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, proxyConfig)
	fresh, idle := p.client(0), p.client(0)
	idle.get(o, "/")
	idle.want("GET", 200, "hello")
	p.drain(4000)
	idle.wantEnd()
	fresh.get(o, "/")
	if resp := fresh.want("GET", 200, "hello"); !resp.Close {
		t.Error("the end is not announced")
	}
	fresh.wantEnd()
	fresh.Close()
}

// A drain ends idle clients at once and lets a request finish, which then ends
// its connection.
func TestDrainOfHTTP(t *testing.T) {
	release := make(chan struct{})
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "/wait") {
			<-release
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	idle, busy := p.client(0), p.client(0)
	idle.get(o, "/")
	idle.want("GET", 200, "hello")
	busy.get(o, "/wait")
	o.awaitRequests(t, 2)
	p.drain(20_000)
	idle.wantEnd()
	close(release)
	if resp := busy.want("GET", 200, "hello"); !resp.Close {
		t.Error("the end is not announced")
	}
	busy.wantEnd()
	busy.Close()
}

func TestRequestForms(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, proxyConfig)
	self := p.addrs[0]
	for _, test := range []struct {
		name, request string
		status        int
		keeps         bool
	}{
		{"absolute", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 200, true},
		{"scheme in capitals", "GET HTTP://ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 200, true},
		{"no path", "GET http://ORIGIN HTTP/1.1\r\nHost: x\r\n\r\n", 200, true},
		{"query only", "GET http://ORIGIN?q HTTP/1.1\r\nHost: x\r\n\r\n", 200, true},
		{"http 1.0", "GET http://ORIGIN/ HTTP/1.0\r\n\r\n", 200, false},
		{"http 1.0 kept", "GET http://ORIGIN/ HTTP/1.0\r\nProxy-Connection: keep-alive\r\n\r\n", 200, true},
		{"close", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, false},
		{"origin form", "GET / HTTP/1.1\r\nHost: ORIGIN\r\n\r\n", 400, false},
		{"no host", "GET http://ORIGIN/ HTTP/1.1\r\n\r\n", 400, false},
		{"two hosts", "GET http://ORIGIN/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, false},
		{"userinfo", "GET http://u:secret@ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"fragment", "GET http://ORIGIN/#a HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"https", "GET https://ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 501, false},
		{"ftp", "GET ftp://ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 501, false},
		{"urn", "GET urn:a HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"port 0", "GET http://127.0.0.1:0/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"port wraps", "GET http://127.0.0.1:4294967376/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"connect without port", "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"http 2", "GET http://ORIGIN/ HTTP/2.0\r\nHost: x\r\n\r\n", 505, false},
		{"not http", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, false},
		{"leading blank", " GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, false},
		{"bare lf", "GET http://ORIGIN/ HTTP/1.1\nHost: x\n\n", 400, false},
		{"length and chunked", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, false},
		{"two lengths", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, false},
		{"list of lengths", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc", 400, false},
		{"no length", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400, false},
		{"signed length", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc", 400, false},
		{"blank before colon", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc", 400, false},
		{"foreign coding", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: foobar\r\n\r\n", 400, false},
		{"chunked not last", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 400, false},
		{"chunked in 1.0", "POST http://ORIGIN/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, false},
		{"chunk size", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n", 400, false},
		{"huge chunk", "POST http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n", 400, false},
		{"folded", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, false},
		{"empty name", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", 400, false},
		{"expectation", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417, false},
		{"long target", "GET http://ORIGIN/" + strings.Repeat("a", 40<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 414, false},
		{"long head", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 70<<10) + "\r\n\r\n", 431, false},
		{"many fields", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 5000) + "\r\n", 431, false},
		{"trace", "TRACE http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n", 200, true},
		{"options", "OPTIONS http://ORIGIN HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n", 200, true},
		{"options forwarded", "OPTIONS http://ORIGIN HTTP/1.1\r\nHost: x\r\nMax-Forwards: 7\r\n\r\n", 200, true},
		{"loop", "GET http://SELF/ HTTP/1.1\r\nHost: x\r\n\r\n", 508, true},
		{"via", "GET http://ORIGIN/ HTTP/1.1\r\nHost: x\r\nVia: 1.1 " + viaName(p.cfg.Services[0].ID) + "\r\n\r\n", 508, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := p.client(0)
			c.t = t
			defer c.Close()
			request := strings.NewReplacer("ORIGIN", o.addr, "SELF", self).Replace(test.request)
			go io.WriteString(c, request)
			method, _, _ := strings.Cut(request, " ")
			resp, body := c.answer(method)
			if resp.StatusCode != test.status {
				t.Fatalf("status %d, want %d", resp.StatusCode, test.status)
			}
			if strings.Contains(body, "secret") || strings.Contains(body, o.addr) && method != "TRACE" {
				t.Errorf("the page tells what was asked: %q", body)
			}
			if !test.keeps {
				if !resp.Close && resp.ProtoAtLeast(1, 1) {
					t.Error("the end is not announced")
				}
				c.wantEnd()
				return
			}
			c.get(o, "/again")
			c.want("GET", 200, "hello")
		})
	}
	if head := o.last(); !strings.Contains(head, "GET /again") {
		t.Errorf("last request: %q", head)
	}
	p.waitOpen(0, 0)
}

// The head that reaches the origin: target in origin form, Host from it, no
// field of this hop, no credentials for the proxy; and the same for responses.
func TestFieldsOfOneHop(t *testing.T) {
	o := startOrigin(t, say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-B\r\nX-B: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nX-C: 1\r\n\r\nok", true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:secret\nauth strong\nproxy -pPORT\n")
	c := p.client(0)
	c.send("GET http://%s/p?q HTTP/1.1\r\nHost: other.example\r\nConnection: X-A, close\r\nX-A: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\n"+
		"Proxy-Authorization: Basic dTpzZWNyZXQ=\r\nConnection: connection\r\nX-D: 1\r\n\r\n", o.addr)
	resp := c.want("GET", 200, "ok")
	head := o.last()
	if !strings.HasPrefix(head, "GET /p?q HTTP/1.1\r\nHost: "+o.addr+"\r\n") {
		t.Errorf("head %q", head)
	}
	for _, name := range []string{"X-A", "TE:", "Keep-Alive:", "Proxy-", "secret", "dTpz", "Connection: close", "other.example"} {
		if strings.Contains(head, name) {
			t.Errorf("%s was sent on: %q", name, head)
		}
	}
	if !strings.Contains(head, "X-D: 1\r\n") || !strings.Contains(head, "Via: 1.1 3proxyd-") {
		t.Errorf("head %q", head)
	}
	for _, name := range []string{"X-B", "Keep-Alive", "Proxy-Authenticate"} {
		if resp.Header.Get(name) != "" {
			t.Errorf("%s came through", name)
		}
	}
	if resp.Header.Get("X-C") != "1" || resp.Header.Get("Via") == "" || !resp.Close {
		t.Errorf("response %v, close %v", resp.Header, resp.Close)
	}
	c.wantEnd()
}

// OPTIONS * to the proxy is answered by it, to another server by that one.
func TestOptionsOfServer(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	// Of mixed.test one address is the proxy's, nobody listens at the other.
	p := startProxy(t, "internal 127.0.0.1\nnsrecord self.test 127.0.0.1\nnsrecord mixed.test 127.0.0.1\nnsrecord mixed.test 127.0.0.3\nproxy -pPORT\nproxy -pPORT\n")
	c := p.client(0)
	for _, host := range p.addrs {
		c.send("OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		if resp := c.want("OPTIONS", 200, ""); !strings.Contains(resp.Header.Get("Allow"), "CONNECT") {
			t.Errorf("%s: %v", host, resp.Header)
		}
	}
	for _, name := range []string{"self.test", "mixed.test"} {
		for _, request := range []string{"OPTIONS * HTTP/1.1\r\nHost: %[1]s\r\n", "OPTIONS http://%[1]s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"} {
			request, body, _ := strings.Cut(request, "\r\n\r\n")
			host := name + p.addrs[1][strings.LastIndexByte(p.addrs[1], ':'):]
			c.send(strings.TrimSuffix(request, "\r\n")+"\r\n\r\n"+body, host)
			if resp := c.want("OPTIONS", 200, ""); !strings.Contains(resp.Header.Get("Allow"), "CONNECT") {
				t.Errorf("%s: %v", host, resp.Header)
			}
			c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host)
			c.want("GET", 508, "")
			c.send("OPTIONS http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host)
			c.want("OPTIONS", 508, "")
		}
	}
	c.send("OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n", o.addr)
	c.want("OPTIONS", 200, "hello")
	if got := o.last(); !strings.HasPrefix(got, "OPTIONS * HTTP/1.1\r\nHost: "+o.addr+"\r\n") {
		t.Errorf("%q", got)
	}
}

// R04: the client's connection outlives the server's, and a client that must
// go gets its answer without a reset.
func TestNoResetOfAnswer(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "/slow") {
			// Much longer than the client takes to send more.
			time.Sleep(100 * time.Millisecond)
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
		return false
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for range 3 {
		c.get(o, "/")
		if resp := c.want("GET", 200, "hello"); resp.Close {
			t.Error("the server's close was passed on")
		}
	}
	c.Close()
	// With more requests behind it than will be answered, at once or while the
	// answer is awaited.
	more := strings.Repeat("GET / HTTP/1.0\r\n\r\n", 50)
	for i := range 60 {
		c := p.client(0)
		if i%6 != 0 {
			c.send("GET http://%s/ HTTP/1.0\r\n\r\n"+more, o.addr)
		} else {
			c.send("GET http://%s/slow HTTP/1.0\r\n\r\n", o.addr)
			time.Sleep(time.Millisecond)
			c.send(more)
		}
		time.Sleep(8 * time.Millisecond)
		c.want("GET", 200, "hello")
		c.wantEnd()
		c.Close()
	}
	p.waitOpen(0, 0)
}

// A head that comes in two parts, the second of which brings as much of the
// body as a read takes.
func TestHeadSplitBeforeLargeBody(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool {
		body := io.LimitReader(r, 300<<10)
		if strings.Contains(head, "chunked") {
			req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(head), r)))
			if err != nil {
				return false
			}
			body = req.Body
		}
		size, _ := io.Copy(io.Discard, body)
		_, err := io.WriteString(c, ok(fmt.Sprint(size)))
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	body := strings.Repeat("b", 300<<10)
	for _, pause := range []int{1, 100, 2000} {
		for _, kind := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)} {
			c := p.client(0)
			request := fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: x\r\nX: %s\r\n%s", o.addr, strings.Repeat("x", 3000), kind)
			c.send(request[:pause])
			time.Sleep(20 * time.Millisecond)
			go io.WriteString(c, request[pause:])
			c.want("POST", 200, fmt.Sprint(len(body)))
		}
	}
	// A response head in parts likewise.
	big := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
		text := ok(body)
		_, _ = io.WriteString(c, text[:20])
		time.Sleep(20 * time.Millisecond)
		_, err := io.WriteString(c, text[20:])
		return err == nil
	})
	c := p.client(0)
	for range 3 {
		c.get(big, "/")
		c.want("GET", 200, body)
	}
}

func TestWithNetHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %d", r.URL.Path, n)
	}))
	p := startProxy(t, proxyConfig)
	defer srv.Close()
	through := &url.URL{Scheme: "http", Host: p.addrs[0]}
	tr := &http.Transport{Proxy: http.ProxyURL(through)}
	defer tr.CloseIdleConnections()
	hc := &http.Client{Transport: tr, Timeout: 30 * time.Second}
	for i := range 50 {
		body := strings.Repeat("x", i*1000)
		resp, err := hc.Post(fmt.Sprintf("%s/%d", srv.URL, i), "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != fmt.Sprintf("/%d %d", i, len(body)) {
			t.Errorf("got %q", got)
		}
	}
	tr.CloseIdleConnections()
}

func TestWithCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool {
		if strings.HasPrefix(head, "PUT") {
			_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, r)
			return false
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, "internal 127.0.0.1\nnsrecord localhost 127.0.0.1\nusers u:CL:pw\nauth strong\nproxy -pPORT\nsocks -pPORT\nauth none\nsocks -pPORT\n")
	_, port, _ := net.SplitHostPort(o.addr)
	for _, args := range [][]string{
		{"-x", "http://u:pw@" + p.addrs[0]},
		{"-x", "http://u:pw@" + p.addrs[0], "-p"},
		{"-x", "http://u:pw@" + p.addrs[0], "--proxy-anyauth"},
		{"-x", "http://u:pw@" + p.addrs[0], "--proxy-anyauth", "-p"},
		{"-x", "socks5://u:pw@" + p.addrs[1]},
		{"-x", "socks5h://u:pw@" + p.addrs[1]},
		{"-x", "socks4://" + p.addrs[2]},
		{"-x", "socks4a://" + p.addrs[2]},
		{"-x", "socks5://" + p.addrs[2]},
		{"-x", "socks5h://" + p.addrs[2]},
	} {
		out, err := exec.Command(curl, append(args, "-sS", "--max-time", "20", "--noproxy", "", "http://"+o.addr+"/a", "http://localhost:"+port+"/b")...).CombinedOutput()
		if err != nil || string(out) != "hellohello" {
			t.Errorf("%v: %v %q", args, err, out)
		}
	}
	file := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(file, make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, expect := range []string{"Expect: 100-continue", "Expect:"} {
		out, err := exec.Command(curl, "-sS", "--max-time", "20", "--noproxy", "", "-x", "http://u:pw@"+p.addrs[0], "-H", expect, "-T", file, "-w", "%{http_code}", "http://"+o.addr+"/").CombinedOutput()
		if err != nil || string(out) != "no401" {
			t.Errorf("upload with %q: %v %q", expect, err, out)
		}
	}
}

// A request that cannot be sent twice takes a pooled connection too, a fresh
// one.
func TestPooledConnectionForPost(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, _ string, _ int) bool {
		_, _ = io.CopyN(io.Discard, r, 3)
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, proxyConfig)
	for range 5 {
		c := p.client(0)
		c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", o.addr)
		c.want("POST", 200, "hello")
		c.Close()
		p.waitOpen(0, 0)
	}
	if n := o.accepts.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A server's connection is not used for longer than the server says.
func TestKeepAliveTimeout(t *testing.T) {
	for timeout, want := range map[string]int64{"timeout=0": 3, "timeout=1": 2, "timeout=30, max=5": 1} {
		o := startOrigin(t, say("HTTP/1.1 200 OK\r\nKeep-Alive: "+timeout+"\r\nContent-Length: 5\r\n\r\nhello", true))
		p := startProxy(t, proxyConfig)
		c := p.client(0)
		for i := range 3 {
			c.get(o, "/")
			if resp := c.want("GET", 200, "hello"); resp.Header.Get("Keep-Alive") != "" {
				t.Errorf("Keep-Alive %q", resp.Header.Get("Keep-Alive"))
			}
			if i == 1 {
				time.Sleep(700 * time.Millisecond)
			}
		}
		if n := o.accepts.Load(); n != want {
			t.Errorf("%s: %d connections, want %d", timeout, n, want)
		}
	}
}
