package worker

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"3proxyd/ipc"
)

// An upgrade becomes a tunnel; data sent together with the request and with
// the response is part of it (R02).
func TestUpgrade(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "/refused") {
			_, err := io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			return err == nil
		}
		if !strings.Contains(head, "Upgrade: websocket\r\n") || !strings.Contains(head, "Connection: Upgrade\r\n") {
			_, _ = io.WriteString(c, "HTTP/1.1 500 Fields\r\nContent-Length: 0\r\n\r\n")
			return false
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nfirst")
		_, _ = io.Copy(c, r)
		return false
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	request := "GET http://%s%s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	for range 3 {
		c.send(request, o.addr, "/refused")
		if resp := c.want("GET", 403, "no"); resp.Close {
			t.Error("a refused upgrade ends the connection")
		}
	}
	if n := o.accepts.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	c.send(request+"early", o.addr, "/ws")
	head, err := readHead(c.r)
	if err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || !strings.Contains(head, "Upgrade: websocket\r\n") || !strings.Contains(head, "Connection: Upgrade\r\n") {
		t.Fatalf("%q %v", head, err)
	}
	if got := readN(t, c.r, len("firstearly")); got != "firstearly" {
		t.Errorf("got %q", got)
	}
	for i := range 10 {
		c.send("message %d", i)
		if got := readN(t, c.r, 9); got != fmt.Sprint("message ", i) {
			t.Errorf("got %q", got)
		}
	}
	c.CloseWrite()
	c.wantEnd()
	p.waitOpen(0, 0)
	p.waitCounter(0, ipc.Requests, 4)
}

// CONNECT: data behind the head reaches the server, a server that speaks first
// is heard (R13), a refused one leaves the connection usable (R12).
func TestConnect(t *testing.T) {
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 banner\r\n")
		echo(c)
	})
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\nproxy -pPORT\n")
	target := net.JoinHostPort(host, port)
	auth := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("u:pw")) + "\r\n"
	for _, early := range []string{"", "early data", strings.Repeat("x", 200<<10)} {
		c := p.client(0)
		for range 3 {
			c.send("CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
			if resp := c.want("CONNECT", 407, ""); resp.Close || resp.Header.Get("Proxy-Authenticate") == "" {
				t.Errorf("close %v, %v", resp.Close, resp.Header)
			}
		}
		go io.WriteString(c, fmt.Sprintf("CONNECT %s HTTP/1.1\r\n%s\r\n%s", target, auth, early))
		head, err := readHead(c.r)
		if err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 ") || strings.Contains(head, "Length") {
			t.Fatalf("%q %v", head, err)
		}
		if got := readN(t, c.r, len(early)+12); got != "220 banner\r\n"+early {
			t.Errorf("got %d bytes", len(got))
		}
		// No HTTP any more.
		c.send("GET http://%s/ HTTP/1.1\r\n\r\n", target)
		if got := readN(t, c.r, 3); got != "GET" {
			t.Errorf("got %q", got)
		}
		c.Close()
		p.waitOpen(0, 0)
	}
}

// A tunnel asked for on a connection that has a server connection of its own.
func TestConnectAfterPin(t *testing.T) {
	o := startOrigin(t, say("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n", true))
	host, port := serve(t, echo)
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	c.get(o, "/")
	c.want("GET", 401, "")
	c.send("CONNECT %s:%s HTTP/1.1\r\nHost: x\r\n\r\nabc", host, port)
	c.want("CONNECT", 200, "")
	if got := readN(t, c.r, 3); got != "abc" {
		t.Errorf("got %q", got)
	}
	c.Close()
	p.waitOpen(0, 0)
}

func TestRefusals(t *testing.T) {
	p := startProxy(t, "internal 127.0.0.1\nnsrecord no.example 0.0.0.0\nnsrecord six.example 2001:db8::1\n"+
		"auth iponly\ndeny * * 127.0.0.9\nallow *\nexternal 127.0.0.1\nproxy -pPORT\n")
	closed := freePort(t)
	for _, test := range []struct {
		target string
		status int
	}{
		{fmt.Sprintf("127.0.0.1:%d", closed), 502},
		{"127.0.0.9:80", 403},
		{"no.example:80", 502},
		{"six.example:80", 502},
	} {
		c := p.client(0)
		for range 2 {
			c.send("CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", test.target)
			if resp, body := c.answer("CONNECT"); resp.StatusCode != test.status || resp.Close || strings.Contains(body, "example") {
				t.Errorf("CONNECT %s: %d, close %v, %q", test.target, resp.StatusCode, resp.Close, body)
			}
			c.send("HEAD http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", test.target)
			if resp, _ := c.answer("HEAD"); resp.StatusCode != test.status || resp.Close {
				t.Errorf("HEAD %s: %d, close %v", test.target, resp.StatusCode, resp.Close)
			}
		}
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", test.target)
		if resp := c.want("GET", test.status, ""); !resp.Close {
			t.Error("close is not announced")
		}
		c.wantEnd()
		// With a body the connection ends, and the answer arrives whole.
		d := p.client(0)
		d.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n%s", test.target, strings.Repeat("x", 100000))
		if resp := d.want("POST", test.status, ""); !resp.Close {
			t.Error("close is not announced")
		}
		d.Close()
		c.Close()
	}
	p.waitOpen(0, 0)
}

// A server that does not answer the connection attempt is a 504.
func TestConnectTimeout(t *testing.T) {
	// A listener with a full queue drops what comes.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	full := fillQueue(t, l)
	defer full()
	p := startProxy(t, "internal 127.0.0.1\n"+shortTimeouts+"proxy -pPORT\n")
	c := p.client(0)
	c.send("CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	c.want("CONNECT", 504, "")
	c.Close()
	p.waitOpen(0, 0)
}

// Every timeout of a request.
func TestTimeouts(t *testing.T) {
	checkLeaks(t)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		switch {
		case strings.Contains(head, "/silent"):
			<-hold
			return false
		case strings.Contains(head, "/half"):
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
			<-hold
			return false
		case strings.Contains(head, "/close"):
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nabc")
			<-hold
			return false
		case strings.Contains(head, "/trickle"):
			for _, b := range []byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 100)) {
				if _, err := c.Write([]byte{b}); err != nil {
					return false
				}
				time.Sleep(200 * time.Millisecond)
			}
			return false
		case strings.Contains(head, "/slow"):
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
			for range 8 {
				time.Sleep(700 * time.Millisecond)
				_, _ = io.WriteString(c, "x")
			}
			return true
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, "internal 127.0.0.1\n"+shortTimeouts+"proxy -pPORT\n")
	var wg sync.WaitGroup
	run := func(name string, atLeast, atMost time.Duration, f func(t *testing.T, c *client)) {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				c := p.client(0)
				c.t = t
				start := time.Now()
				f(t, c)
				if d := time.Since(start); d < atLeast || d > atMost {
					t.Errorf("after %v", d)
				}
				c.Close()
			})
		})
	}
	run("silent client", time.Second, 8*time.Second, func(t *testing.T, c *client) { c.wantEnd() })
	run("slow head", time.Second, 8*time.Second, func(t *testing.T, c *client) {
		go func() {
			for _, b := range []byte("GET http://h.example/ HTTP/1.1\r\nHost: x\r\n\r\n") {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		}()
		c.want("GET", 408, "")
		c.wantEnd()
	})
	run("slow second head", 500*time.Millisecond, 8*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.send("GET http:")
		c.want("GET", 408, "")
		c.wantEnd()
	})
	run("idle", time.Second, 8*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.wantEnd()
	})
	run("idle after a blank line", 500*time.Millisecond, 8*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/")
		c.want("GET", 200, "hello")
		c.send("\r\n")
		c.wantEnd()
	})
	run("silent origin", 2*time.Second, 10*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/silent")
		c.want("GET", 504, "")
	})
	run("head of the origin byte by byte", 2*time.Second, 10*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/trickle")
		c.want("GET", 504, "")
	})
	run("origin stops", 2*time.Second, 10*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/half")
		if _, _, err := c.tryAnswer("GET"); err == nil {
			t.Error("half an answer looks whole")
		}
	})
	run("origin stops without length", 2*time.Second, 10*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/close")
		if _, _, err := c.tryAnswer("GET"); err == nil {
			t.Error("half an answer looks whole")
		}
	})
	run("slow origin", 5*time.Second, 20*time.Second, func(t *testing.T, c *client) {
		c.get(o, "/slow")
		c.want("GET", 200, "xxxxxxxx")
	})
	run("client stops in its body", 2*time.Second, 10*time.Second, func(t *testing.T, c *client) {
		c.send("POST http://%s/silent HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", o.addr)
		c.want("POST", 408, "")
	})
	wg.Wait()
	p.waitOpen(0, 0)
}

func TestFailuresOfEveryKindAreCounted(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\ndeny * * 127.0.0.9\nallow *\nproxy -pPORT\n")
	auth := func(user, pass string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass)) + "\r\n"
	}
	closed := freePort(t)
	c := p.client(0)
	for _, step := range []struct {
		target, auth string
		status       int
		counter      ipc.Counter
	}{
		{o.addr, "", 407, ipc.AuthFailed},
		{o.addr, auth("u", "wrong"), 407, ipc.AuthFailed},
		{o.addr, auth("nobody", "pw"), 407, ipc.AuthFailed},
		{o.addr, "Proxy-Authorization: Basic !!!\r\n", 407, ipc.AuthFailed},
		{o.addr, "Proxy-Authorization: Digest " + strings.Repeat("x", 9000) + "\r\n", 407, ipc.AuthFailed},
		{"127.0.0.9:1", auth("u", "pw"), 403, ipc.Denied},
		{fmt.Sprint("127.0.0.1:", closed), auth("u", "pw"), 502, ipc.ConnectFailed},
		{o.addr, auth("u", "pw"), 200, ipc.Requests},
	} {
		before := p.counter(0, step.counter)
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", step.target, step.auth)
		c.want("GET", step.status, "")
		p.waitCounter(0, step.counter, before+1)
	}
	p.waitCounter(0, ipc.Requests, 8)
}
