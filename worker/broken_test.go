package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

// The kernel takes the unspecified addresses for this host; no service
// connects to them.
func TestUnspecifiedTargets(t *testing.T) {
	_, port := serve(t, echo)
	p := startProxy(t, "internal 127.0.0.1\nauth iponly\ndeny * * 127.0.0.0/8,::1\nallow *\nproxy -pPORT\nsocks -pPORT\n")
	for _, host := range []string{"0.0.0.0", "[::]", "[::ffff:0.0.0.0]"} {
		c := p.dial(0)
		write(t, c, fmt.Sprintf("CONNECT %s:%s HTTP/1.1\r\nHost: x\r\n\r\n", host, port))
		if got := readN(t, c, 12); got != "HTTP/1.1 502" {
			t.Errorf("CONNECT %s: %q", host, got)
		}
		c.Close()
	}
	var n int
	fmt.Sscan(port, &n)
	dport := string([]byte{byte(n >> 8), byte(n)})
	for _, request := range []string{
		"\x05\x01\x00\x01\x00\x00\x00\x00" + dport,
		"\x05\x01\x00\x04" + string(make([]byte, 16)) + dport,
		"\x05\x01\x00\x03\x070.0.0.0" + dport,
	} {
		c := p.dial(1)
		write(t, c, "\x05\x01\x00")
		readN(t, c, 2)
		write(t, c, request)
		if got := readN(t, c, 2); got[1] != 4 {
			t.Errorf("%q: reply %d", request, got[1])
		}
		c.Close()
	}
	p.waitOpen(0, 0)
	p.waitOpen(1, 0)
}

// A client that half-closes and stops reading for longer than the linger time
// gets all that was sent to it, once it reads.
func TestHalfClosedSlowReaderGetsAll(t *testing.T) {
	const size = 3 << 20
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write(make([]byte, size))
	})
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 15 5 1\ntcppm PORT %s %s\n", host, port))
	c := p.dial(0)
	time.Sleep(2500 * time.Millisecond)
	write(t, c, "still here")
	n, err := io.Copy(io.Discard, c)
	if n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	c.Close()
	p.waitOpen(0, 0)
}

// What a server answers before it resets an upload reaches the client.
func TestAnswerBeforeReset(t *testing.T) {
	answer := bytes.Repeat([]byte("answer"), 3000)
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_, _ = c.Write(answer)
		// Unread input makes a reset of the close.
	})
	for _, mode := range []string{"-s0", "-s3", "-s7"} {
		p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm %s PORT %s %s\n", mode, host, port))
		for range 20 {
			c := p.dial(0)
			go func() { _, _ = c.Write(make([]byte, 8<<20)) }()
			got := make([]byte, len(answer))
			if n, err := io.ReadFull(c, got); err != nil {
				t.Errorf("%s: %d of %d bytes: %v", mode, n, len(answer), err)
			}
			c.Close()
		}
		p.waitOpen(0, 0)
	}
}

// A reset of one side is a reset on the other, after what came before it.
func TestResetIsPassedOn(t *testing.T) {
	const size = 1 << 20
	for _, mode := range []string{"-s0", "-s3", "-s7"} {
		host, port := serve(t, func(c *net.TCPConn) {
			_, _ = c.Write(make([]byte, size))
			time.Sleep(50 * time.Millisecond)
			_ = c.SetLinger(0)
		})
		p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm %s PORT %s %s\n", mode, host, port))
		c := p.dial(0)
		time.Sleep(100 * time.Millisecond)
		n, err := io.Copy(io.Discard, c)
		if n == 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d bytes, then %v", mode, n, err)
		}
		p.waitOpen(0, 0)
		if n := p.counter(0, ipc.ResetByServer); n != 1 {
			t.Errorf("%s: %d resets counted", mode, n)
		}

		ended := make(chan error, 1)
		host, port = serve(t, func(c *net.TCPConn) {
			_, err := io.Copy(io.Discard, c)
			ended <- err
		})
		p = startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm %s PORT %s %s\n", mode, host, port))
		c = p.dial(0)
		write(t, c, "hello")
		p.waitOpen(0, 1)
		time.Sleep(50 * time.Millisecond)
		_ = c.SetLinger(0)
		c.Close()
		if err := await(t, ended); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the server sees %v", mode, err)
		}
		p.waitOpen(0, 0)
	}
}

// The session of a client that has gone while its server is silent ends.
func TestClientGoneDuringExchange(t *testing.T) {
	block := make(chan struct{})
	host, port := serve(t, func(*net.TCPConn) { <-block })
	defer close(block)
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 15 5 1\nproxy -pPORT\n")
	c := p.dial(0)
	write(t, c, fmt.Sprintf("GET http://%s:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host, port))
	p.waitOpen(0, 1)
	time.Sleep(50 * time.Millisecond)
	c.Close()
	p.waitOpen(0, 0)
}

// TestAnswerBeforeResetHTTP is TestAnswerBeforeReset for the body of an HTTP
// answer that comes while the request's is still being sent: a server that does
// not want the rest answers, and closes the connection with unread input.
func TestAnswerBeforeResetHTTP(t *testing.T) {
	// What does not fit into the window is lost with the server's socket.
	body := bytes.Repeat([]byte("answer"), 7000)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
	for name, answer := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 413 No\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"chunked": "HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + "3\r\nend\r\n0\r\n\r\n",
		"close":   "HTTP/1.1 413 No\r\n\r\n" + string(body),
	} {
		for _, mode := range []string{"-s0", "-s3", "-s7"} {
			t.Run(name+mode, func(t *testing.T) {
				host, port := serve(t, func(c *net.TCPConn) {
					_, _ = io.ReadFull(c, make([]byte, 1000))
					_, _ = io.WriteString(c, answer)
				})
				p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\nproxy %s -pPORT\n", mode))
				for range 10 {
					c := p.dial(0)
					write(t, c, fmt.Sprintf("POST http://%s:%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n", host, port))
					go func() { _, _ = c.Write(make([]byte, 8<<20)) }()
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(resp.Body)
					want := len(body)
					if name == "chunked" {
						want += len("end")
					}
					if len(got) != want || (err != nil && name != "close") {
						t.Errorf("%d of %d bytes, %v", len(got), want, err)
					}
					c.Close()
				}
				p.waitOpen(0, 0)
			})
		}
	}
}
