package worker

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Each service connects from the source address that it was given, under load and
// over kept connections, also where several have addresses of one family (R26).
func TestSourceOfEachService(t *testing.T) {
	host, port := serve(t, func(c *net.TCPConn) {
		from, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		for b := make([]byte, 4096); ; {
			// A request of HTTP comes whole.
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if strings.HasSuffix(string(b[:n]), "\r\n\r\n") {
				from = ok(from)
			}
			if _, err := io.WriteString(c, from); err != nil {
				return
			}
			from, _, _ = net.SplitHostPort(c.RemoteAddr().String())
		}
	})
	sources := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}
	config := "internal 127.0.0.1\n"
	for _, e := range sources {
		config += fmt.Sprintf("proxy -e%s -pPORT\nsocks -e%s -pPORT\ntcppm -e%s PORT %s %s\n", e, e, e, host, port)
	}
	p := startProxy(t, config)
	const rounds = 34 // 306 connections of clients
	var wg sync.WaitGroup
	for i := range p.addrs {
		want := sources[i/3]
		wg.Go(func() {
			for range rounds {
				c := p.client(i)
				switch i % 3 {
				case 0:
					c.send("GET http://%s:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", host, port)
					if _, body, err := c.tryAnswer("GET"); err != nil || body != want {
						t.Errorf("proxy from %s: %q, %v", want, body, err)
					}
					c.Close()
					continue
				case 1:
					c.send("\x05\x01\x00" + request5(1, host, portOf(t, host+":"+port)))
					c.wantBytes("\x05\x00")
					if reply := c.reply5(); reply != 0 {
						t.Errorf("socks from %s: reply %d", want, reply)
						return
					}
				}
				c.send("?")
				c.wantBytes(want)
				c.Close()
			}
		})
	}
	wg.Wait()
	for i := range p.addrs {
		p.waitOpen(i, 0)
	}
}
