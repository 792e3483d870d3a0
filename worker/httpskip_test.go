package worker

import (
	"fmt"
	"strings"
	"testing"
)

const goodAuth = "Proxy-Authorization: Basic dTpwdw==\r\n" // u:pw

// A refused request with a body leaves a connection on which the client can
// answer, however the body comes; what is too long to skip ends it.
func TestRefusedWithBody(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\nproxy -pPORT\n")
	for _, test := range []struct {
		name, fields, body string
		keeps              bool
	}{
		{"none", "", "", true},
		{"length 0", "Content-Length: 0\r\n", "", true},
		{"length", "Content-Length: 5\r\n", "12345", true},
		{"a request as body", "Content-Length: 18\r\n", "GET / HTTP/1.1\r\n\r\n", true},
		{"200 KB", "Content-Length: 200000\r\n", strings.Repeat("x", 200000), true},
		{"300 KB", "Content-Length: 300000\r\n", strings.Repeat("x", 300000), false},
		{"chunks", "Transfer-Encoding: chunked\r\n", "5\r\n12345\r\n0\r\nA: b\r\n\r\n", true},
		{"no chunks", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", true},
		{"200 KB of chunks", "Transfer-Encoding: chunked\r\n", strings.Repeat("5;a\r\n12345\r\n", 200) + "30000\r\n" + strings.Repeat("x", 0x30000) + "\r\n0\r\n\r\n", true},
		{"chunk of 300 KB", "Transfer-Encoding: chunked\r\n", "493e0\r\n" + strings.Repeat("x", 300000) + "\r\n0\r\n\r\n", false},
		{"malformed chunks", "Transfer-Encoding: chunked\r\n", "5\r\n123456\r\n0\r\n\r\n", false},
		{"expectation", "Content-Length: 5\r\nExpect: 100-continue\r\n", "", false},
	} {
		for _, piece := range []int{1, 1000, 1 << 20} {
			if len(test.body)/piece > 5000 {
				continue
			}
			t.Run(fmt.Sprint(test.name, "/", piece), func(t *testing.T) {
				c := p.client(0)
				c.t = t
				go func() {
					text := fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n%s", o.addr, test.fields, test.body)
					for len(text) > 0 {
						n := min(piece, len(text))
						if _, err := c.Write([]byte(text[:n])); err != nil {
							return
						}
						text = text[n:]
					}
					if test.keeps {
						fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.addr, goodAuth)
					} else if test.name != "expectation" {
						c.CloseWrite()
					}
				}()
				resp := c.want("POST", 407, "")
				if test.keeps {
					if resp.Close {
						t.Fatal("the end is announced")
					}
					c.want("GET", 200, "hello")
				} else {
					c.wantEnd()
				}
				c.Close()
			})
		}
	}
	p.waitOpen(0, 0)
}

// A client that stops within a body that is skipped does not stay for ever.
func TestStopsWithinSkippedBody(t *testing.T) {
	p := startProxy(t, "internal 127.0.0.1\n"+shortTimeouts+"users u:CL:pw\nauth strong\nproxy -pPORT\n")
	for _, end := range []string{"silence", "FIN", "RST"} {
		c := p.client(0)
		c.send("POST http://127.0.0.9/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
		c.want("POST", 407, "")
		switch end {
		case "FIN":
			c.CloseWrite()
		case "RST":
			_ = c.SetLinger(0)
			c.Close()
			continue
		}
		c.wantEnd()
		c.Close()
	}
	p.waitOpen(0, 0)
}

// The body of a refused request in another phase: the host is not found, the
// server refuses, a rule forbids.
func TestSkippedAfterLookup(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nnsrecord no.example 0.0.0.0\nauth iponly\ndeny * * 127.0.0.9\nallow *\nproxy -pPORT\n")
	c := p.client(0)
	closed := freePort(t)
	for _, test := range []struct {
		target string
		status int
	}{{"no.example", 502}, {"127.0.0.9", 403}, {fmt.Sprint("127.0.0.1:", closed), 502}, {o.addr, 200}} {
		for _, body := range []string{"Content-Length: 5\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"} {
			if test.status == 200 {
				c.get(o, "/")
			} else {
				c.send("POST http://%s/ HTTP/1.1\r\nHost: x\r\n%s", test.target, body)
			}
			if resp := c.want("POST", test.status, ""); resp.Close {
				t.Errorf("%s: the end is announced", test.target)
			}
		}
	}
	c.Close()
	p.waitOpen(0, 0)
}

// What the client of a refused CONNECT has sent without waiting for the answer was
// meant for the tunnel: it is no request.
func TestRefusedConnectWithEarlyData(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\nallow u * 127.0.0.0/8\nproxy -pPORT\n")
	early := fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.addr, goodAuth)
	for _, test := range []struct {
		name, target, fields string
		status               int
	}{
		{"no password", o.addr, "", 407},
		{"rule", "192.0.2.1:443", goodAuth, 403},
		{"no host", "nosuch.invalid:443", goodAuth, 502},
		{"nobody listens", fmt.Sprintf("127.0.0.1:%d", freePort(t)), goodAuth, 502},
	} {
		for _, wait := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, "/", wait), func(t *testing.T) {
				c := p.client(0)
				c.t = t
				text := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: x\r\n%s\r\n", test.target, test.fields)
				if wait {
					c.send("%s", text)
					c.want("CONNECT", test.status, "")
					c.send("%s", early)
					c.want("GET", 200, "hello")
				} else {
					c.send("%s", text+early)
					if resp := c.want("CONNECT", test.status, ""); !resp.Close {
						t.Error("the end is not announced")
					}
					c.wantEnd()
				}
				c.Close()
			})
		}
	}
	if n := o.requests(); n != 4 {
		t.Errorf("%d requests", n)
	}
}
