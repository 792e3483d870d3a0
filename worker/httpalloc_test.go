package worker

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
)

// rawOrigin answers every request head of known length with the same bytes
// and allocates nothing for it.
func rawOrigin(t testing.TB, l net.Listener, response []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 8192)
			n := 0
			for {
				k, err := c.Read(buf[n:])
				if err != nil {
					return
				}
				if n += k; bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
					n = 0
					if _, err := c.Write(response); err != nil {
						return
					}
				}
			}
		}()
	}
}

// A request on a kept connection allocates nothing, with a user, rules, a name
// and a log, whatever the kind of the response.
func TestNoAllocationPerRequest(t *testing.T) {
	checkLeaks(t)
	for name, response := range map[string]string{
		"length":  ok("hello"),
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go rawOrigin(t, l, []byte(response))
			_, port, _ := net.SplitHostPort(l.Addr().String())
			p := startProxy(t, "internal 127.0.0.1\nlog "+filepath.Join(t.TempDir(), "log")+"\nnsrecord srv.example 127.0.0.1\nusers u:CL:pw\nauth strong\ndeny * * 10.0.0.0/8\nallow u\nproxy -pPORT\n")
			c := p.dial(0)
			request := fmt.Appendf(nil, "GET http://srv.example:%s/index HTTP/1.1\r\nHost: srv.example\r\nProxy-Authorization: Basic dTpwdw==\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n", port)
			buf := make([]byte, 4096)
			size := 0
			ask := func(n int) {
				for range n {
					if _, err := c.Write(request); err != nil {
						t.Fatal(err)
					}
					if size == 0 {
						// The first answer tells how long they are.
						for !bytes.Contains(buf, []byte("hello")) || response[len(response)-1] == '\n' && !bytes.Contains(buf, []byte("\r\n0\r\n\r\n")) {
							k, err := c.Read(buf[size:])
							if err != nil {
								t.Fatal(err)
							}
							size += k
						}
						continue
					}
					if _, err := io.ReadFull(c, buf[:size]); err != nil {
						t.Fatal(err)
					}
				}
			}
			ask(500)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			const n = 2000
			ask(n)
			runtime.ReadMemStats(&after)
			// The writer of the log and the collector have their own.
			if got := after.Mallocs - before.Mallocs; got > n/20 {
				t.Errorf("%d allocations for %d requests", got, n)
			}
			c.Close()
		})
	}
}

func BenchmarkKeepAlive(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	response := []byte(ok("hello"))
	go rawOrigin(b, l, response)
	p := startProxy(b, proxyConfig)
	c := p.dial(0)
	request := fmt.Appendf(nil, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	buf := make([]byte, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	c.Close()
}
