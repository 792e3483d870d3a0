package worker

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"3proxyd/ipc"
)

// The kinds of body, to clients of both versions.
func TestResponseBodies(t *testing.T) {
	const h = "HTTP/1.1 200 OK\r\n"
	chunks := "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n3;x=y\r\nefg\r\n0\r\n"
	for _, test := range []struct {
		name, method, response string
		keep                   bool // of the origin
		body10, body11         string
		keeps                  bool // a client of HTTP/1.1 is kept
	}{
		{"length", "GET", h + "Content-Length: 4\r\n\r\nabcd", true, "abcd", "abcd", true},
		{"empty", "GET", h + "Content-Length: 0\r\n\r\n", true, "", "", true},
		{"chunked", "GET", h + chunks + "\r\n", true, "abcdefg", "abcdefg", true},
		{"trailer", "GET", h + "Trailer: X-T\r\n" + chunks + "X-T: v\r\n\r\n", true, "abcdefg", "abcdefg", true},
		{"until close", "GET", h + "\r\nabcd", false, "abcd", "abcd", false},
		{"http 1.0", "GET", "HTTP/1.0 200 OK\r\n\r\nabcd", false, "abcd", "abcd", false},
		{"http 1.0 with length", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabcd", false, "abcd", "abcd", true},
		{"head", "HEAD", h + "Content-Length: 1000\r\n\r\n", true, "", "", true},
		{"head chunked", "HEAD", h + "Transfer-Encoding: chunked\r\n\r\n", true, "", "", true},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", true, "", "", true},
		{"304", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n", true, "", "", true},
		{"100 first", "GET", "HTTP/1.1 100 Continue\r\n\r\n" + h + "Content-Length: 4\r\n\r\nabcd", true, "abcd", "abcd", true},
		{"103 first", "GET", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + h + "Content-Length: 4\r\n\r\nabcd", true, "abcd", "abcd", true},
		{"bare lf", "GET", "HTTP/1.1 200 OK\nContent-Length : 4\n\nabcd", true, "abcd", "abcd", true},
		{"no reason", "GET", "HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nabcd", true, "abcd", "abcd", true},
	} {
		for _, piece := range []int{1 << 20, 1} {
			t.Run(fmt.Sprint(test.name, "/", piece), func(t *testing.T) {
				o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
					for text := test.response; text != ""; {
						n := min(piece, len(text))
						if _, err := io.WriteString(c, text[:n]); err != nil {
							return false
						}
						text = text[n:]
						if piece == 1 {
							time.Sleep(100 * time.Microsecond)
						}
					}
					return test.keep
				})
				p := startProxy(t, proxyConfig)
				for range 2 {
					c := p.client(0)
					c.send("%s http://%s/ HTTP/1.0\r\n\r\n", test.method, o.addr)
					c.want(test.method, c.skipInterim(test.method, false), test.body10)
					c.wantEnd()
					c.Close()
				}
				c := p.client(0)
				for range 2 {
					c.send("%s http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", test.method, o.addr)
					resp := c.want(test.method, c.skipInterim(test.method, true), test.body11)
					if test.name == "trailer" && resp.Trailer.Get("X-T") != "v" {
						t.Errorf("trailer %v", resp.Trailer)
					}
					if strings.HasPrefix(test.name, "head") && test.name == "head" && resp.ContentLength != 1000 {
						t.Errorf("length %d", resp.ContentLength)
					}
					if resp.Close == test.keeps {
						t.Fatalf("close is %v", resp.Close)
					}
					if resp.Close {
						c.wantEnd()
						c.Close()
						c = p.client(0)
					}
				}
				if n := o.accepts.Load(); test.keep && n != 1 {
					t.Errorf("%d connections to the origin", n)
				}
				c.Close()
				p.waitOpen(0, 0)
			})
		}
	}
}

// skipInterim reads interim responses, which a client of HTTP/1.0 must not
// get, and returns the status of the final one that follows.
func (c *client) skipInterim(method string, allowed bool) int {
	c.t.Helper()
	for {
		line, err := c.r.Peek(len("HTTP/1.1 200"))
		if err != nil {
			c.t.Fatal(err)
		}
		var status int
		fmt.Sscan(string(line[9:]), &status)
		if status >= 200 {
			return status
		}
		if !allowed {
			c.t.Fatalf("interim response %d", status)
		}
		if _, err := readHead(c.r); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A response that breaks off is seen to be incomplete, whatever its kind.
func TestOriginDiesInTheMiddle(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for _, test := range []struct{ name, response string }{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + big},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n5\r\nab"},
		{"between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n"},
		{"large chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + big},
		{"malformed chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcdXX\r\n"},
		{"until close", "HTTP/1.1 200 OK\r\n\r\n" + big},
	} {
		for _, reset := range []bool{false, true} {
			for _, version := range []string{"1.1", "1.0"} {
				if test.name == "until close" && !reset {
					continue
				}
				t.Run(fmt.Sprint(test.name, reset, version), func(t *testing.T) {
					o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
						_, _ = io.WriteString(c, test.response)
						if reset {
							time.Sleep(50 * time.Millisecond)
							_ = c.SetLinger(0)
						}
						return false
					})
					p := startProxy(t, proxyConfig)
					c := p.client(0)
					c.send("GET http://%s/ HTTP/%s\r\nHost: x\r\n\r\n", o.addr, version)
					resp, body, err := c.tryAnswer("GET")
					if err == nil {
						t.Fatalf("status %d with %d bytes looks complete", resp.StatusCode, len(body))
					}
					c.Close()
					p.waitOpen(0, 0)
				})
			}
		}
	}
}

// Before the response begins a dying origin is a 502.
func TestOriginDiesBeforeResponse(t *testing.T) {
	for _, text := range []string{"", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nA: b\r\n", "nonsense\r\n\r\n", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 70<<10) + "\r\n\r\n"} {
		o := startOrigin(t, say(text, false))
		p := startProxy(t, proxyConfig)
		c := p.client(0)
		c.get(o, "/")
		c.want("GET", 502, "")
		c.Close()
		p.waitOpen(0, 0)
	}
}

// The client dies at any point: the connection to the origin is closed and the
// session is gone.
func TestClientDiesInTheMiddle(t *testing.T) {
	gone := make(chan error, 1)
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.HasPrefix(head, "GET") {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
			_, err := io.Copy(c, endless{})
			gone <- err
			return false
		}
		_, err := io.Copy(io.Discard, r)
		gone <- err
		return false
	})
	p := startProxy(t, proxyConfig)
	for _, request := range []string{
		"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc",
		"POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
	} {
		for _, how := range []string{"reset", "close", "half"} {
			if how == "half" && strings.HasPrefix(request, "GET") {
				continue
			}
			c := p.client(0)
			c.send(request, o.addr)
			if strings.HasPrefix(request, "GET") {
				if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
					t.Fatal(err)
				}
			} else {
				o.awaitRequests(t, 1)
			}
			switch how {
			case "reset":
				_ = c.SetLinger(0)
				c.Close()
			case "close":
				c.Close()
			case "half":
				c.CloseWrite()
			}
			select {
			case <-gone:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s %q: the origin's connection lives on", how, request)
			}
			p.waitOpen(0, 0)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Expect: 100-continue with origins that answer in every order.
func TestExpectContinue(t *testing.T) {
	read := func(r *bufio.Reader) string {
		b := make([]byte, 5)
		_, _ = io.ReadFull(r, b)
		return string(b)
	}
	behave := func(how string) script {
		return func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
			if how != "401" && !strings.Contains(head, "Expect: 100-continue\r\n") {
				_, _ = io.WriteString(c, ok("no expectation"))
				return false
			}
			switch how {
			case "100":
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
				_, err := io.WriteString(c, ok(read(r)))
				return err == nil
			case "silent":
				_, err := io.WriteString(c, ok(read(r)))
				return err == nil
			}
			_, err := io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
			return err == nil
		}
	}
	for _, how := range []string{"100", "silent", "401"} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprint(how, chunked), func(t *testing.T) {
				o := startOrigin(t, behave(how))
				p := startProxy(t, proxyConfig)
				c := p.client(0)
				framing, body := "Content-Length: 5", "abcde"
				if chunked {
					framing, body = "Transfer-Encoding: chunked", "5\r\nabcde\r\n0\r\n\r\n"
				}
				c.send("PUT http://%s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n%s\r\n\r\n", o.addr, framing)
				switch how {
				case "100":
					if head, err := readHead(c.r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 100 ") {
						t.Fatalf("%q %v", head, err)
					}
					c.send(body)
				case "silent":
					time.Sleep(50 * time.Millisecond)
					c.send(body)
				case "401":
					resp := c.want("PUT", 401, "no")
					if !resp.Close {
						t.Error("connection is kept though the body may still come")
					}
					c.wantEnd()
					return
				}
				resp, got := c.answer("PUT")
				if want := body[:5]; resp.StatusCode != 200 || !chunked && got != want {
					t.Errorf("%d %q", resp.StatusCode, got)
				}
			})
		}
	}
}

// An origin that refuses a large upload while it runs, in order or with a
// reset because it has not read everything: the client gets the answer.
func TestEarlyResponseToUpload(t *testing.T) {
	for _, framing := range []string{"length", "chunked"} {
		for _, how := range []string{"closes", "keeps reading", "resets"} {
			t.Run(framing+" "+how, func(t *testing.T) {
				o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, _ string, _ int) bool {
					_, _ = io.CopyN(io.Discard, r, 100<<10)
					_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
					switch how {
					case "closes":
						_ = c.CloseWrite()
						time.Sleep(20 * time.Millisecond)
					case "keeps reading":
						_, _ = io.Copy(io.Discard, r)
					}
					return false
				})
				p := startProxy(t, proxyConfig)
				for i := range 15 {
					c := p.client(0)
					const size = 30 << 20
					head := fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", o.addr, size)
					if framing == "chunked" {
						head = fmt.Sprintf("POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", o.addr, size)
					}
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, _ = io.WriteString(c, head)
						_, _ = io.CopyN(c, endless{}, size)
					}()
					resp, body, err := c.tryAnswer("POST")
					if err != nil || resp.StatusCode != 413 || body != "big" {
						t.Fatalf("upload %d: %v %v %q", i, resp, err, body)
					}
					<-done
					c.Close()
				}
				p.waitOpen(0, 0)
			})
		}
	}
}

// Tens of megabytes both ways at different settings of splice.
func TestBulkHTTP(t *testing.T) {
	const size = 24 << 20
	data := make([]byte, size)
	seed := rand.NewChaCha8([32]byte{2})
	_, _ = seed.Read(data)
	want := fmt.Sprintf("%x", sha256.Sum256(data))
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		req, err := http.ReadRequest(bufio.NewReaderSize(io.MultiReader(strings.NewReader(head), r), 16))
		if err != nil {
			return false
		}
		h := sha256.New()
		_, _ = io.Copy(h, req.Body)
		if got := fmt.Sprintf("%x", h.Sum(nil)); req.Method == "POST" && got != want {
			t.Errorf("upload %s is damaged", req.URL)
		}
		w := bufio.NewWriterSize(c, 1<<20)
		resp := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: req, Body: io.NopCloser(bytes.NewReader(data))}
		switch req.URL.Path {
		case "/length":
			resp.ContentLength = size
		case "/chunked":
			resp.ContentLength, resp.TransferEncoding = -1, []string{"chunked"}
			resp.Body = io.NopCloser(&unevenReader{r: bytes.NewReader(data)})
		case "/close":
			resp.ContentLength, resp.Close = -1, true
		}
		err = resp.Write(w)
		if err == nil {
			err = w.Flush()
		}
		return err == nil && !resp.Close
	})
	for _, mode := range []string{"-s0", "-s7", "-s3", "-b3000"} {
		p := startProxy(t, "internal 127.0.0.1\nproxy "+mode+" -pPORT\n")
		for _, path := range []string{"/length", "/chunked", "/close"} {
			for _, upload := range []string{"none", "length", "chunked"} {
				t.Run(mode+path+" "+upload, func(t *testing.T) {
					c := p.client(0)
					defer c.Close()
					var req *http.Request
					switch upload {
					case "none":
						req, _ = http.NewRequest("GET", "http://"+o.addr+path, nil)
					case "length":
						req, _ = http.NewRequest("POST", "http://"+o.addr+path, bytes.NewReader(data))
					case "chunked":
						req, _ = http.NewRequest("POST", "http://"+o.addr+path, &unevenReader{r: bytes.NewReader(data)})
					}
					sent := make(chan error, 1)
					go func() { sent <- req.WriteProxy(c) }()
					resp, err := http.ReadResponse(c.r, req)
					if err != nil {
						t.Fatal(err)
					}
					h := sha256.New()
					n, err := io.Copy(h, &slowReader{r: resp.Body})
					if err != nil || n != size || fmt.Sprintf("%x", h.Sum(nil)) != want {
						t.Errorf("%d bytes, %v", n, err)
					}
					if err := <-sent; err != nil {
						t.Error(err)
					}
				})
			}
		}
		if spliced := p.counter(0, ipc.BytesSpliced); (spliced > 0) != (mode != "-s0") {
			t.Errorf("%s: %d bytes spliced", mode, spliced)
		}
	}
}

// unevenReader returns pieces of changing size, so that chunks are of every
// kind.
type unevenReader struct {
	r io.Reader
	n int
}

func (u *unevenReader) Read(p []byte) (int, error) {
	u.n++
	size := []int{1, 100, 4096, 40000, 70000, 300000}[u.n%6]
	return u.r.Read(p[:min(len(p), size)])
}

// A client that reads late gets everything: the end of the origin's stream,
// the linger time and a small buffer do not cut it short (R07).
func TestSlowReaderGetsEverything(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<17)
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, head string, _ int) bool {
		switch {
		case strings.Contains(head, "/close"):
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+body)
		case strings.Contains(head, "/length"):
			_, _ = io.WriteString(c, ok(body))
		case strings.Contains(head, "/chunked"):
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}
		return false
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 1 1 1 30 30 2 2 2 1 1\nproxy -ocSO_SNDBUF=32768 -pPORT\n")
	var wg sync.WaitGroup
	for _, path := range []string{"/close", "/length", "/chunked"} {
		c := p.client(0)
		_ = c.SetReadBuffer(32768)
		c.send("GET http://%s%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", o.addr, path)
		wg.Go(func() {
			if n, err := readWithPauses(c.r, len(body)-150<<10); err != nil || n < len(body) {
				t.Errorf("%s: %d bytes of %d, %v", path, n, len(body), err)
			}
		})
	}
	wg.Wait()
	p.waitOpen(0, 0)
}

// readWithPauses reads to the end and stops twice, after pause bytes and a
// little later, for longer than the linger time of the test.
func readWithPauses(r io.Reader, pause int) (total int, err error) {
	b := make([]byte, 60<<10)
	for {
		n, err := r.Read(b)
		total += n
		if total > pause {
			time.Sleep(1500 * time.Millisecond)
			pause += 90 << 10
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// What waits for a slow client stays small: the origin is not read further.
func TestBackPressure(t *testing.T) {
	for _, kind := range []string{"Content-Length: 1000000000", "Transfer-Encoding: chunked", "X: until close"} {
		for _, version := range []string{"1.1", "1.0"} {
			t.Run(kind+version, func(t *testing.T) {
				stopped := make(chan int64, 1)
				o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+kind+"\r\n\r\n")
					piece := make([]byte, 1000)
					if strings.Contains(kind, "chunked") {
						piece = []byte("3e8\r\n" + strings.Repeat("x", 1000) + "\r\n")
					}
					piece = bytes.Repeat(piece, 64)
					var total int64
					for {
						_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
						n, err := c.Write(piece)
						total += int64(n)
						if err != nil || total > 200<<20 {
							stopped <- total
							return false
						}
					}
				})
				p := startProxy(t, proxyConfig)
				c := p.client(0)
				_ = c.SetReadBuffer(64 << 10)
				c.send("GET http://%s/ HTTP/%s\r\nHost: x\r\n\r\n", o.addr, version)
				if n := <-stopped; n > 40<<20 {
					t.Errorf("%d bytes were taken for a client that reads nothing", n)
				}
				c.Close()
				p.waitOpen(0, 0)
			})
		}
	}
}

// Interim responses without end do not pile up either.
func TestFloodOfInterimResponses(t *testing.T) {
	stopped := make(chan int64, 1)
	o := startOrigin(t, func(c *net.TCPConn, _ *bufio.Reader, _ string, _ int) bool {
		piece := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n", 1000)
		var total int64
		for {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := io.WriteString(c, piece)
			total += int64(n)
			if err != nil || total > 100<<20 {
				stopped <- total
				return false
			}
		}
	})
	p := startProxy(t, proxyConfig)
	c := p.client(0)
	c.get(o, "/")
	if n := <-stopped; n > 40<<20 {
		t.Errorf("%d bytes were taken for a client that reads nothing", n)
	}
	c.Close()
	p.waitOpen(0, 0)
}
