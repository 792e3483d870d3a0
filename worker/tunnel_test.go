package worker

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"3proxyd/ipc"
)

func TestPortMapEcho(t *testing.T) {
	host, port := serve(t, echo)
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT %s %s\n", host, port))
	c := p.dial(0)
	for i := range 100 {
		msg := fmt.Sprintf("message %d", i)
		write(t, c, msg)
		if got := readN(t, c, len(msg)); got != msg {
			t.Fatalf("got %q, want %q", got, msg)
		}
	}
	c.CloseWrite()
	if rest := readAll(t, c); rest != "" {
		t.Errorf("after the end: %q", rest)
	}
	p.waitOpen(0, 0)
	if in, out := p.counter(0, ipc.BytesIn), p.counter(0, ipc.BytesOut); in != out || in == 0 {
		t.Errorf("%d bytes in, %d out", in, out)
	}
}

// The client finishes first and still gets the whole answer; then the server
// does so.
func TestHalfClose(t *testing.T) {
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "hello\n")
		request, _ := io.ReadAll(c)
		time.Sleep(100 * time.Millisecond)
		_, _ = c.Write(bytes.Repeat(request, 1000))
	})
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT %s %s\n", host, port))
	c := p.dial(0)
	write(t, c, "0123456789")
	c.CloseWrite()
	if got := readAll(t, c); len(got) != len("hello\n")+10_000 {
		t.Errorf("%d bytes", len(got))
	}
	p.waitOpen(0, 0)
}

func TestServerFinishesFirst(t *testing.T) {
	got := make(chan string, 1)
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT %s %s\n", host, port))
	c := p.dial(0)
	if s := readAll(t, c); s != "bye" {
		t.Errorf("got %q", s)
	}
	write(t, c, "still here")
	c.Close()
	if s := await(t, got); s != "still here" {
		t.Errorf("server got %q", s)
	}
	p.waitOpen(0, 0)
}

// Bulk data in both directions at once, with every splice mode and readers
// that are slow at times, arrives byte for byte.
func TestBulk(t *testing.T) {
	const size = 48 << 20
	data := make([]byte, size)
	seed := rand.NewChaCha8([32]byte{1})
	_, _ = seed.Read(data)
	want := sha256.Sum256(data)
	for _, mode := range []string{"-s0", "-s1", "-s2", "-s3", "-s7", "-b4096", "-s7:9000,1,9000"} {
		t.Run(mode, func(t *testing.T) {
			host, port := serve(t, func(c *net.TCPConn) {
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, _ = c.Write(data)
					_ = c.CloseWrite()
				}()
				h := sha256.New()
				_, _ = io.Copy(h, &slowReader{r: c})
				<-sent
				if [32]byte(h.Sum(nil)) != want {
					t.Error("upload is damaged")
				}
			})
			p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm %s PORT %s %s\n", mode, host, port))
			c := p.dial(0)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = c.Write(data)
				_ = c.CloseWrite()
			}()
			h := sha256.New()
			n, err := io.Copy(h, &slowReader{r: c})
			if err != nil || n != size || [32]byte(h.Sum(nil)) != want {
				t.Errorf("download of %d bytes is damaged: %v", n, err)
			}
			await(t, sent)
			c.Close()
			p.waitOpen(0, 0)
			spliced := p.counter(0, ipc.BytesSpliced)
			if on := mode == "-s0" || mode == "-b4096"; on == (spliced > 0) {
				t.Errorf("%d bytes spliced", spliced)
			}
			if in, out := p.counter(0, ipc.BytesIn), p.counter(0, ipc.BytesOut); in != size || out != size {
				t.Errorf("counted %d bytes in, %d out", in, out)
			}
		})
	}
}

// slowReader pauses now and then, so that the sender runs into full sockets.
type slowReader struct {
	r io.Reader
	n int
}

func (s *slowReader) Read(p []byte) (int, error) {
	s.n++
	if s.n%200 == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	return s.r.Read(p)
}

func TestLingerEndsSilentTunnel(t *testing.T) {
	block := make(chan struct{})
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.ReadAll(c)
		<-block
	})
	defer close(block)
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 15 5 1\ntcppm PORT %s %s\n", host, port))
	c := p.dial(0)
	write(t, c, "x")
	p.waitOpen(0, 1)
	c.CloseWrite()
	p.waitOpen(0, 0)
	if n := p.counter(0, ipc.TimedOut); n != 1 {
		t.Errorf("timed out: %d", n)
	}
}

func TestRefusedConnection(t *testing.T) {
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT 127.0.0.1 %d\n", freePort(t)))
	c := p.dial(0)
	if s := readAll(t, c); s != "" {
		t.Errorf("got %q", s)
	}
	p.waitOpen(0, 0)
	if n := p.counter(0, ipc.ConnectFailed); n != 1 {
		t.Errorf("connect failed: %d", n)
	}
}

func TestMaxConnIsExact(t *testing.T) {
	host, port := serve(t, echo)
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\nmaxconn 3\ntcppm PORT %s %s\n", host, port))
	var conns []*net.TCPConn
	for range 10 {
		c := p.dial(0)
		write(t, c, "x")
		conns = append(conns, c)
	}
	p.waitOpen(0, 3)
	for i, c := range conns {
		readN(t, c, 1)
		if n := p.shm.OpenSum(0, 1); n > 3 {
			t.Fatalf("%d sessions are open", n)
		}
		_ = i
		c.Close()
	}
	p.waitOpen(0, 0)
	if n := p.counter(0, ipc.Accepted); n != 10 {
		t.Errorf("accepted %d", n)
	}
}
