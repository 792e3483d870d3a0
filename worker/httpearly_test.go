package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client that has finished within its request is told so; what the server has got
// of it cannot be taken for a whole request, and its connection is not used again.
func TestRequestCutShort(t *testing.T) {
	ends := make(chan string, 8)
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		body, err := io.ReadAll(r)
		ends <- fmt.Sprintf("%s %v", body, err)
		return false
	})
	p := startProxy(t, proxyConfig)
	for _, test := range []struct{ request, got string }{
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", " <nil>"},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n012345678", "012345678 <nil>"},
		{"POST http://%s/ HTTP/1.0\r\nContent-Length: 10\r\n\r\n012345678", "012345678 <nil>"},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", " <nil>"},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n012", "5\r\n012 <nil>"},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n0\r\n", "1\r\n0\r\n0\r\n <nil>"},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Len", ""},
		{"POST http://%s/ HTTP/1.1\r\nHost: x\r\n", ""},
		{"P%.0s", ""},
	} {
		for _, gap := range []time.Duration{0, 20 * time.Millisecond} {
			c := p.client(0)
			c.send(test.request, o.addr)
			time.Sleep(gap)
			c.CloseWrite()
			resp, body := c.answer("POST")
			if resp.StatusCode != 400 || !resp.Close || !strings.Contains(body, reasonIncomplete) {
				t.Errorf("%q: %d, close %v, %q", test.request, resp.StatusCode, resp.Close, body)
			}
			c.wantEnd()
			if test.got == "" {
				continue
			}
			if got := <-ends; got != test.got {
				t.Errorf("%q: the server got %q, want %q", test.request, got, test.got)
			}
		}
	}
	c := p.client(0)
	c.send("\r\n\r\n")
	c.CloseWrite()
	c.wantEnd()
	p.waitOpen(0, 0)
}

// An answer that is under way when its client finishes within the request is passed
// on to the end; the server sees the end of the request.
func TestRequestCutShortWhileAnswered(t *testing.T) {
	seen := make(chan struct{})
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, _ string, _ int) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nhel")
		_, _ = io.Copy(io.Discard, r)
		_, _ = io.WriteString(c, "lo!")
		<-seen
		return false
	})
	p := startProxy(t, proxyConfig)
	for _, fields := range []string{"Content-Length: 10\r\n\r\n0", "Transfer-Encoding: chunked\r\n\r\n5\r\n0"} {
		c := p.client(0)
		c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\n%s", o.addr, fields)
		if _, err := c.r.Peek(1); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		c.want("POST", 401, "hello!")
		c.wantEnd()
		seen <- struct{}{}
	}
	p.waitOpen(0, 0)
}

// After an early answer a short rest of the body is skipped, and the client goes on;
// the server's connection is not used again.
func TestEarlyAnswerKeepsClient(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.HasPrefix(head, "GET") {
			_, _ = io.WriteString(c, ok("hello"))
			return true
		}
		_, _ = r.ReadByte()
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
		if strings.Contains(head, "X-End: yes") {
			return false
		}
		_, _ = io.Copy(io.Discard, r)
		return false
	})
	p := startProxy(t, proxyConfig)
	large := strings.Repeat("x", 100<<10)
	for _, test := range []struct {
		name, fields, first, rest string
		keeps                     bool
	}{
		{"length", "Content-Length: 10\r\n", "012", "3456789", true},
		{"length, the server ends", "Content-Length: 10\r\nX-End: yes\r\n", "012", "3456789", true},
		{"100 KB", fmt.Sprintf("Content-Length: %d\r\n", len(large)+1), "0", large, true},
		{"a request as body", "Content-Length: 19\r\n", "x", "GET / HTTP/1.1\r\n\r\n", true},
		{"300 KB", fmt.Sprintf("Content-Length: %d\r\n", 300<<10), "0", "", false},
		{"chunks", "Transfer-Encoding: chunked\r\n", "5\r\n01", "234\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n", true},
		{"a size in two pieces", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n1", "0\r\n0123456789abcdef\r\n0\r\n\r\n", true},
		{"a long chunk", "Transfer-Encoding: chunked\r\n", "100000\r\n01", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := p.client(0)
			defer c.Close()
			c.t = t
			c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n%s", o.addr, test.fields, test.first)
			if resp := c.want("POST", 401, "no"); resp.Close == test.keeps {
				t.Fatalf("close %v", resp.Close)
			}
			if !test.keeps {
				c.wantEnd()
				return
			}
			accepts := o.accepts.Load()
			c.send("%sGET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", test.rest, o.addr)
			c.want("GET", 200, "hello")
			c.get(o, "/")
			c.want("GET", 200, "hello")
			if n := o.accepts.Load(); n > accepts+1 {
				t.Errorf("%d new connections to the server", n-accepts)
			}
			c.CloseWrite()
			c.wantEnd()
		})
	}
	p.waitOpen(0, 0)
}

// A client that waits for 100 (Continue) goes on after an early answer only when it
// has been told to send its body.
func TestEarlyAnswerToExpectation(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.HasPrefix(head, "GET") {
			_, _ = io.WriteString(c, ok("hello"))
			return true
		}
		if strings.Contains(head, "X-Go: on") {
			_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
		return false
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	const request = "POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n%s\r\n"
	c.send(request, o.addr, "X-Go: on\r\n")
	c.want("POST", 100, "")
	if resp := c.want("POST", 401, "no"); resp.Close {
		t.Error("the end is announced")
	}
	c.send("hello")
	c.get(o, "/")
	c.want("GET", 200, "hello")
	c.send(request, o.addr, "")
	if resp := c.want("POST", 401, "no"); !resp.Close {
		t.Error("the end is not announced")
	}
	c.wantEnd()
}

// Interim responses are bounded in number and in bytes.
func TestInterimsBounded(t *testing.T) {
	const interim = "HTTP/1.1 103 Early Hints\r\n\r\n"
	long := "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", 60<<10) + "\r\n\r\n"
	for _, test := range []struct {
		name, piece string
		n, status   int
	}{
		{"few", interim, maxInterims, 200},
		{"many", interim, maxInterims + 1, 502},
		{"processing", "HTTP/1.1 102 Processing\r\n\r\n", maxInterims + 1, 502},
		{"short of the bytes", long, 4, 200},
		{"long", long, 5, 502},
	} {
		for _, version := range []string{"1.0", "1.1"} {
			o := startOrigin(t, say(strings.Repeat(test.piece, test.n)+ok("hello"), true))
			p := startProxy(t, proxyConfig)
			c := p.client(0)
			c.send("GET http://%s/ HTTP/%s\r\nHost: x\r\n\r\n", o.addr, version)
			resp, _ := c.answer("GET")
			for resp.StatusCode < 200 {
				resp, _ = c.answer("GET")
			}
			if resp.StatusCode != test.status {
				t.Errorf("%s, HTTP/%s: %d, want %d", test.name, version, resp.StatusCode, test.status)
			}
		}
	}
}

// maxbody refuses by length at once, and chunks when they exceed it; what has been
// sent by then is not a whole request to the server.
func TestMaxBody(t *testing.T) {
	bodies := make(chan string, 8)
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "chunked") {
			body, _, err := readStrictChunks(r)
			bodies <- fmt.Sprintf("%s %v", body, err)
			if err != nil {
				return false
			}
		} else if strings.HasPrefix(head, "POST") {
			_, _ = io.CopyN(io.Discard, r, 10)
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, "internal 127.0.0.1\nmaxbody 10\nproxy -pPORT\nmaxbody 0\nproxy -pPORT\n")
	for _, test := range []struct {
		service      int
		fields, body string
		status       int
		keeps        bool
		got          string
	}{
		{0, "Content-Length: 10\r\n", "0123456789", 200, true, ""},
		{0, "Content-Length: 11\r\n", "0123456789a", 413, true, ""},
		{0, "Content-Length: 9223372036854775807\r\n", "", 413, false, ""},
		{0, "Content-Length: 11\r\nExpect: 100-continue\r\n", "", 413, false, ""},
		{0, "Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 200, true, "0123456789 <nil>"},
		{0, "Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n", 413, false, ""},
		{0, "Transfer-Encoding: chunked\r\n", "b\r\n01234", 413, false, ""},
		{1, "Transfer-Encoding: chunked\r\n", "b\r\n0123456789a\r\n0\r\n\r\n", 200, true, "0123456789a <nil>"},
	} {
		for _, gap := range []bool{false, true} {
			c := p.client(test.service)
			c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.addr, test.fields)
			if gap {
				time.Sleep(20 * time.Millisecond)
			}
			c.send("%s", test.body)
			if resp := c.want("POST", test.status, ""); resp.Close == test.keeps {
				t.Errorf("%q: close %v", test.body, resp.Close)
			}
			if test.got != "" {
				wantBody(t, bodies, test.got)
			}
			if !test.keeps {
				c.wantEnd()
				continue
			}
			c.get(o, "/")
			c.want("GET", 200, "hello")
			c.Close()
		}
	}
}

// wantBody waits for a whole body that the server read. Requests that were
// refused before may have reached it in part, or not at all.
func wantBody(t *testing.T, bodies <-chan string, want string) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case got := <-bodies:
			if !strings.HasSuffix(got, "<nil>") {
				continue
			}
			if got != want {
				t.Errorf("the server got %q, want %q", got, want)
			}
			return
		case <-limit:
			t.Fatalf("the server got no body, want %q", want)
		}
	}
}

// What a server says unasked on a connection that is kept, or beside an answer, is
// no answer to the next request.
func TestUnasked(t *testing.T) {
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, _ int) bool {
		switch {
		case strings.Contains(head, "/beside"):
			_, _ = io.WriteString(c, ok("hello")+poison)
		case strings.Contains(head, "/later"):
			_, _ = io.WriteString(c, ok("hello"))
			time.Sleep(20 * time.Millisecond)
			_, _ = io.WriteString(c, poison)
		default:
			_, _ = io.WriteString(c, ok("hello"))
		}
		return true
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for _, path := range []string{"/beside", "/", "/later"} {
		c.get(o, path)
		c.want("GET", 200, "hello")
	}
	time.Sleep(100 * time.Millisecond)
	for range 3 {
		c.get(o, "/")
		c.want("GET", 200, "hello")
	}
}

// 408 that ends an idle connection is no answer to the request that met it.
func TestRequestTimeoutOfIdleConnection(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, n int) bool {
		if n > 0 {
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate")
			return false
		}
		_, _ = io.WriteString(c, ok("hello"))
		return true
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	for range 3 {
		c.get(o, "/")
		c.want("GET", 200, "hello")
	}
	// One that cannot be sent again gets it.
	c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", o.addr)
	c.want("POST", 408, "late")
}
