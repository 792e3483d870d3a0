package worker

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A token is in all that belongs to one exchange, and fills its bodies: whatever of
// it turns up elsewhere comes out of a buffer that was not clean.
var anyToken = regexp.MustCompile(`T[0-9a-z]{9}!`)

var lastToken atomic.Int64

func newToken() string { return fmt.Sprintf("T%08xz!", lastToken.Add(1)) }

// fill is n bytes of a token.
func fill(token string, n int) string {
	return strings.Repeat(token, n/len(token)+1)[:n]
}

// stranger returns what of text is not of the exchange of token, "" for nothing.
func stranger(text []byte, token string) string {
	for _, found := range anyToken.FindAll(text, -1) {
		if string(found) != token {
			return string(found)
		}
	}
	return ""
}

// poisonAnswers are how the origin answers, by the name in the path; size is that
// of the body.
var poisonAnswers = map[string]func(c *net.TCPConn, token string, size int) (keep bool){
	"length": func(c *net.TCPConn, token string, size int) bool {
		return sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, size, fill(token, size))
	},
	"chunks": func(c *net.TCPConn, token string, size int) bool {
		text := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n", token)
		for body := fill(token, size); len(body) > 0; {
			n := min(len(body), 1+rand.IntN(5000))
			text += fmt.Sprintf("%x;%s\r\n%s\r\n", n, token, body[:n])
			body = body[n:]
		}
		return sayTo(c, "%s", text+"0\r\nX-Trailer: "+token+"\r\n\r\n")
	},
	"close": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\n\r\n%s", token, fill(token, size))
		return false
	},
	"empty": func(c *net.TCPConn, token string, _ int) bool {
		return sayTo(c, "HTTP/1.1 204 No\r\nX-Token: %s\r\n\r\n", token)
	},
	"pieces": func(c *net.TCPConn, token string, size int) bool {
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Token: %s\r\nX-Long: %s\r\nContent-Length: %d\r\n\r\n", token, fill(token, 9000), size)
		for len(head) > 0 {
			n := min(len(head), 1+rand.IntN(4000))
			if !sayTo(c, "%s", head[:n]) {
				return false
			}
			head = head[n:]
			time.Sleep(time.Millisecond)
		}
		return sayTo(c, "%s", fill(token, size))
	},
	"interims": func(c *net.TCPConn, token string, size int) bool {
		return sayTo(c, "HTTP/1.1 103 Early\r\nLink: %s\r\n\r\nHTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s",
			fill(token, 3000), token, size, fill(token, size))
	},
	"short": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, size+100000, fill(token, size))
		return false
	},
	"short chunk": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", token, size+100000, fill(token, size))
		return false
	},
	"bad chunk": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%sxx", token, size, fill(token, size))
		return false
	},
	"short head": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nX-Long: %s", token, fill(token, size))
		return false
	},
	"no head": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "%s", fill(token, size))
		return false
	},
	"reset": func(c *net.TCPConn, token string, size int) bool {
		sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, size+100000, fill(token, size))
		_ = c.SetLinger(0)
		return false
	},
	"surplus": func(c *net.TCPConn, token string, size int) bool {
		return sayTo(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, size, fill(token, size+3000))
	},
}

func sayTo(c *net.TCPConn, format string, args ...any) bool {
	_, err := fmt.Fprintf(c, format, args...)
	return err == nil
}

// poisonOrigin answers requests, and looks for what is of another exchange.
func poisonOrigin(t *testing.T) string {
	host, port := serve(t, func(c *net.TCPConn) {
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		r := bufio.NewReader(c)
		for {
			head, ok := readBytesTo(r, "\r\n\r\n")
			if !ok {
				return
			}
			parts := strings.Split(strings.Fields(string(head))[1], "/")
			token, how := parts[1], strings.ReplaceAll(parts[2], "_", " ")
			size, _ := strconv.Atoi(parts[3])
			body := []byte(nil)
			if _, after, found := strings.Cut(string(head), "Content-Length: "); found {
				n, _ := strconv.Atoi(strings.Fields(after)[0])
				body = make([]byte, n)
				if m, err := io.ReadFull(r, body); err != nil {
					body = body[:m]
				}
			}
			if strings.Contains(string(head), "Transfer-Encoding") {
				body, ok = readBytesTo(r, "0\r\n\r\n")
			}
			if s := stranger(append(head, body...), token); s != "" {
				t.Errorf("the server got %s in the request of %s", s, token)
			}
			if !ok || !poisonAnswers[how](c, token, size) {
				return
			}
		}
	})
	return net.JoinHostPort(host, port)
}

// readBytesTo reads up to an end; false before it.
func readBytesTo(r *bufio.Reader, end string) (got []byte, whole bool) {
	for !bytes.HasSuffix(got, []byte(end)) {
		b, err := r.ReadByte()
		if err != nil {
			return got, false
		}
		got = append(got, b)
	}
	return got, true
}

// A client, or a server, gets nothing that belongs to another exchange, whatever
// became of those that used the buffers before: each is complete, short, broken or
// refused, and read slowly, or not to its end.
func TestNoForeignBytes(t *testing.T) {
	addr := poisonOrigin(t)
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\ndeny * * 127.0.0.66\nallow *\nproxy -pPORT\n")
	var hows []string
	for how := range poisonAnswers {
		hows = append(hows, how)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 40 {
				if !t.Failed() {
					onePoison(t, p, addr, hows[rand.IntN(len(hows))])
				}
			}
		})
	}
	wg.Wait()
	p.waitOpen(0, 0)
}

// onePoison sends the requests of one client, all of one token, and looks at all
// that it gets.
func onePoison(t *testing.T, p *proxy, addr, how string) {
	c := p.client(0)
	defer c.Close()
	token := newToken()
	sizes := []int{0, 1, 20, 900, 5000, 20000, 70000, 300000}
	size, minor := sizes[rand.IntN(len(sizes))], rand.IntN(2)
	auth, host := goodAuth, addr
	method, framing, body := "GET", "", ""
	switch rand.IntN(6) {
	case 0:
		auth = ""
	case 1:
		host = "127.0.0.66"
	case 2:
		method, body = "POST", fill(token, sizes[rand.IntN(len(sizes))])
		framing = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	case 3:
		if minor == 1 && size > 0 {
			method, framing, body = "POST", "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, fill(token, size))
		}
	}
	text := fmt.Sprintf("%s http://%s/%s/%s/%d HTTP/1.%d\r\nHost: x\r\nX-Token: %s\r\n%s%s\r\n%s",
		method, host, token, strings.ReplaceAll(how, " ", "_"), size, minor, token, auth, framing, body)
	go func() {
		sendInPieces(c, text)
		_ = c.CloseWrite()
	}()
	var got []byte
	buf := make([]byte, 1+rand.IntN(100000))
	for {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil || rand.IntN(40) == 0 {
			break
		}
		if rand.IntN(10) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if s := stranger(got, token); s != "" {
		t.Errorf("%s, %d bytes: %s in the answer to %s: %.300q", how, size, s, token, got)
	}
	checkOwn(t, how, got, token)
}

// checkOwn checks that the body of an answer is that of its token from the first
// byte to the last, or a page of the proxy's own without a token.
func checkOwn(t *testing.T, how string, got []byte, token string) {
	_, rest, _ := bytes.Cut(got, []byte("HTTP/1.1 200 OK"))
	head, body, whole := bytes.Cut(rest, []byte("\r\n\r\n"))
	switch {
	case len(rest) == 0 && how != "interims" && how != "empty" && bytes.Contains(got, []byte(token)):
		t.Errorf("%s: a page of the proxy's own holds %s: %.300q", how, token, got)
	case !whole || bytes.Contains(head, []byte("chunked")):
	default:
		if want := fill(token, len(body)); string(body) != want {
			t.Errorf("%s: a body of %d bytes is not %s throughout", how, len(body), token)
		}
	}
}
