package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"3proxyd/ipc"
)

// origin is a server whose every connection is answered by a function of the
// test.
type origin struct {
	addr    string // host:port
	accepts atomic.Int64
	mu      sync.Mutex
	heads   []string
}

// script answers the n-th request of a connection, counted from 0, whose head
// has been read, and reports whether the connection goes on.
type script func(c *net.TCPConn, r *bufio.Reader, head string, n int) bool

// startOrigin serves every connection with f until it returns false.
func startOrigin(t *testing.T, f script) *origin {
	t.Helper()
	o := &origin{}
	host, port := serve(t, func(c *net.TCPConn) {
		o.accepts.Add(1)
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		r := bufio.NewReader(c)
		for n := 0; ; n++ {
			head, err := readHead(r)
			if err != nil {
				return
			}
			o.mu.Lock()
			o.heads = append(o.heads, head)
			o.mu.Unlock()
			if !f(c, r, head, n) {
				return
			}
		}
	})
	o.addr = net.JoinHostPort(host, port)
	return o
}

// last returns the head of the last request.
func (o *origin) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 {
		return ""
	}
	return o.heads[len(o.heads)-1]
}

func (o *origin) requests() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.heads)
}

// awaitRequests waits until n requests have come.
func (o *origin) awaitRequests(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(answerLimit); o.requests() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests have come, want %d", o.requests(), n)
		}
	}
}

func readHead(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return b.String(), err
		}
		b.WriteString(line)
		if line == "\r\n" {
			return b.String(), nil
		}
	}
}

// say answers with fixed text and goes on while keep is set.
func say(text string, keep bool) script {
	return func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
		_, err := io.WriteString(c, text)
		return err == nil && keep
	}
}

// ok is a response with a body of known length.
func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// client is a raw connection to the proxy.
type client struct {
	t testing.TB
	*net.TCPConn
	r *bufio.Reader
}

func (p *proxy) client(i int) *client {
	c := p.dial(i)
	return &client{p.t, c, bufio.NewReader(c)}
}

// clientFrom is a client with an address of its own.
func (p *proxy) clientFrom(i int, addr string) *client {
	p.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", p.addrs[i])
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return &client{p.t, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	write(c.t, c, format)
}

// get asks for a path of an origin by GET.
func (c *client) get(o *origin, path string) {
	c.t.Helper()
	c.send("GET http://%s%s HTTP/1.1\r\nHost: %s\r\n\r\n", o.addr, path, o.addr)
}

// answer reads one response to a request with the method.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, body, err := c.tryAnswer(method)
	if err != nil {
		c.t.Fatalf("answer: %v (%q)", err, body)
	}
	return resp, body
}

func (c *client) tryAnswer(method string) (*http.Response, string, error) {
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	if method == "CONNECT" && resp.StatusCode == 200 {
		return resp, "", nil
	}
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// want reads a response and checks its status and body; an empty body is not
// checked.
func (c *client) want(method string, status int, body string) *http.Response {
	c.t.Helper()
	resp, got := c.answer(method)
	if resp.StatusCode != status {
		c.t.Fatalf("status %d, want %d (%q)", resp.StatusCode, status, got)
	}
	if body != "" && got != body {
		c.t.Fatalf("body %q, want %q", got, body)
	}
	return resp
}

// wantEnd checks that nothing but the end of the stream follows, without a
// reset.
func (c *client) wantEnd() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
		c.t.Fatalf("at the end: %q, %v", rest, err)
	}
}

const proxyConfig = "internal 127.0.0.1\nproxy -pPORT\n"

// shortTimeouts are two seconds for heads and idle connections and three for
// an exchange.
const shortTimeouts = "timeouts 1 1 1 2 3 3 2 2 2 1 1\n"

func (p *proxy) waitCounter(col int, k ipc.Counter, n uint64) {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for p.counter(col, k) != n {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is %d, want %d", k, p.counter(col, k), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
