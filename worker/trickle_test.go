package worker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"
)

// What comes byte by byte, each in time, is bounded like what does not come at
// all: the head of a request, a handshake, a header, what is skipped (R56).
func TestTrickle(t *testing.T) {
	const closed = "127.0.0.1:1"
	_, hello := serve(t, func(c *net.TCPConn) {
		// A ServerHello without end.
		for _, b := range []byte("\x16\x03\x03\x40\x00\x02\x00\x3f\xf0" + strings.Repeat("\x03", 100)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(150 * time.Millisecond)
		}
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 1 1 2 30 30 2 2 2 1 1\nusers u:CL:pw\nnserver 127.0.0.1:9\nnsrecord www.example.com 127.0.0.1\n"+
		"proxy -pPORT\nsocks -pPORT\ntlspr -c2 -P"+hello+" -pPORT\nauto -pPORT\nproxy -H -pPORT\ndnspr -pPORT\nauth strong\nsocks -pPORT\n")
	const proxy, socks, tlspr, auto, header, dns, strong = 0, 1, 2, 3, 4, 5, 7
	post := "POST http://" + closed + "/ HTTP/1.1\r\nHost: x\r\n"
	clientHello := readHello(t, "go")[:11]
	var wg sync.WaitGroup
	for _, test := range []struct {
		name    string
		service int
		at      string // sent at once
		then    string // sent again and again, byte by byte
	}{
		{"head", proxy, "GET http://" + closed + "/", "a"},
		{"fields", proxy, "GET http://" + closed + "/ HTTP/1.1\r\nA: ", "a"},
		{"skipped body", proxy, post + "Content-Length: 100000\r\n\r\n", "a"},
		{"skipped chunks", proxy, post + "Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n"},
		{"skipped trailer", proxy, post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", "a"},
		{"methods", socks, "\x05\xff", "\x00"},
		{"name", socks, "\x05\x01\x00\x05\x01\x00\x03\xff", "a"},
		{"user id", socks, "\x04\x01\x00\x50\x7f\x00\x00\x01", "a"},
		{"password", strong, "\x05\x01\x02\x01\xff", "a"},
		{"ClientHello", tlspr, clientHello, "\x00"},
		{"ServerHello", tlspr, readHello(t, "go"), ""},
		{"auto, HTTP", auto, "", "G"},
		{"auto, SOCKS", auto, "\x05\xff", "\x00"},
		{"auto, TLS", auto, clientHello, "\x00"},
		{"header 1", header, "PROXY TCP4 ", "1"},
		{"header 2", header, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "\x00"},
		{"DNS message", dns, "\xff\xff", "\x00"},
	} {
		c := p.client(test.service)
		wg.Go(func() {
			defer c.Close()
			begin := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, c)
			}()
			_, err := io.WriteString(c, test.at)
			for i := 0; err == nil; i++ {
				select {
				case <-done:
					if took := time.Since(begin); took > 12*time.Second {
						t.Errorf("%s: after %v", test.name, took)
					}
					return
				case <-time.After(150 * time.Millisecond):
				}
				if test.then != "" {
					_, err = fmt.Fprintf(c, "%c", test.then[i%len(test.then)])
				}
			}
			<-done
		})
	}
	wg.Wait()
	for i := range p.addrs {
		p.waitOpen(i, 0)
	}
}

// A body that comes slowly ends with 408 unless the server has answered; one that
// comes steadily goes on for longer than CONNECTION_SHORT, which is two seconds.
func TestTrickledBody(t *testing.T) {
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.Contains(head, "/early") {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
		}
		body := io.LimitReader(r, 20000)
		if strings.Contains(head, "chunked") {
			body = httputil.NewChunkedReader(r)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return false
		}
		if strings.Contains(head, "/early") {
			_, _ = io.WriteString(c, "hello")
			return false
		}
		_, err := io.WriteString(c, ok("hello"))
		return err == nil
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 1 1 2 2 30 2 2 2 1 1\nproxy -pPORT\n")
	long := strings.Repeat("x", 400)
	var wg sync.WaitGroup
	for _, test := range []struct {
		name, path, fields string
		first, piece       string // 50 pieces come in five seconds
		status             int
	}{
		{"length", "/", "Content-Length: 20000\r\n", "", "x", 408},
		{"chunks", "/", "Transfer-Encoding: chunked\r\n", "", "1\r\nx\r\n", 408},
		{"extension", "/", "Transfer-Encoding: chunked\r\n", "1", ";a", 408},
		{"steady length", "/", "Content-Length: 20000\r\n", "", long, 200},
		{"steady chunks", "/", "Transfer-Encoding: chunked\r\n", "", "190\r\n" + long + "\r\n", 200},
		{"length, answered", "/early", "Content-Length: 20000\r\n", "", "x", 200},
		{"chunks, answered", "/early", "Transfer-Encoding: chunked\r\n", "", "1\r\nx\r\n", 200},
	} {
		c := p.client(0)
		wg.Go(func() {
			defer c.Close()
			fmt.Fprintf(c, "POST http://%s%s HTTP/1.1\r\nHost: x\r\n%s\r\n%s", o.addr, test.path, test.fields, test.first)
			go func() {
				for range 50 {
					if _, err := io.WriteString(c, test.piece); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
				if strings.Contains(test.fields, "chunked") {
					_, _ = io.WriteString(c, "0\r\n\r\n")
				} else if len(test.piece) == 1 {
					_, _ = io.WriteString(c, strings.Repeat("x", 20000-50))
				}
			}()
			resp, body, err := c.tryAnswer("POST")
			if err != nil || resp.StatusCode != test.status || test.status == 200 && body != "hello" {
				t.Errorf("%s: %v %q %v", test.name, resp, body, err)
			}
		})
	}
	wg.Wait()
	p.waitOpen(0, 0)
}
