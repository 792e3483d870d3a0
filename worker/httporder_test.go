package worker

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// orderRounds is how many pipelines each client of TestOrderOfAnswers sends.
func orderRounds() int {
	if n, err := strconv.Atoi(os.Getenv("ORDER_ROUNDS")); err == nil {
		return n
	}
	return 20
}

// orderOrigin answers /N/STATUS/SIZE in several framings; the body repeats the
// number of the request. Some answers come in pieces, some before the body of the
// request has been read.
func orderOrigin(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
	method, rest, _ := strings.Cut(head, " ")
	parts := strings.Split(strings.Fields(rest)[0], "/")
	size, _ := strconv.Atoi(parts[3])
	body := strings.Repeat(parts[1]+" ", size)
	early := parts[2] == "401"
	length := int64(0)
	if _, after, ok := strings.Cut(head, "Content-Length: "); ok {
		length, _ = strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	}
	if !early {
		_, _ = io.CopyN(io.Discard, r, length)
	}
	text := fmt.Sprintf("HTTP/1.1 %s x\r\nX-N: %s\r\n", parts[2], parts[1])
	last := size%7 == 6
	if last {
		text += "Connection: close\r\n"
	}
	switch {
	case parts[2] == "204":
		text += "\r\n"
	case method == "HEAD":
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	case size%2 == 1:
		text += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	default:
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if size%3 == 0 && len(text) > 20 {
		_, _ = io.WriteString(c, text[:20])
		time.Sleep(time.Duration(size%5) * time.Millisecond)
		text = text[20:]
	}
	_, err := io.WriteString(c, text)
	if early {
		_, _ = io.CopyN(io.Discard, r, length)
	}
	return err == nil && !last
}

// orderRequest is one request of a pipeline and what has to answer it.
type orderRequest struct {
	text, method string
	status       int
	body         string // repeated in the answer, "" for the proxy's own
}

func randomRequest(n int, addr string) orderRequest {
	method := []string{"GET", "GET", "HEAD", "POST", "PUT"}[rand.IntN(5)]
	body, fields := "", goodAuth
	if method == "POST" || method == "PUT" {
		body = strings.Repeat("b", []int{0, 1, 100, 3000, 40000}[rand.IntN(5)])
		fields += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	q := orderRequest{method: method, status: []int{200, 200, 401, 204, 403, 407, 502}[rand.IntN(7)]}
	host := addr
	switch q.status {
	case 403:
		host = "127.0.0.66:80"
	case 502:
		host = "127.0.0.67:1"
	case 407:
		fields = strings.Replace(fields, goodAuth, "", 1)
	default:
		q.body = fmt.Sprint(n)
	}
	size := []int{0, 1, 2, 3, 6, 20, 900, 901, 30000}[rand.IntN(9)]
	q.text = fmt.Sprintf("%s http://%s/%d/%d/%d HTTP/1.1\r\nHost: x\r\n%s\r\n%s", method, host, n, q.status, size, fields, body)
	return q
}

// sendInPieces writes text in pieces of any size.
func sendInPieces(c net.Conn, text string) {
	for len(text) > 0 {
		n := min(len(text), []int{1, 50, 200, 2000, 1 << 20}[rand.IntN(5)])
		if _, err := io.WriteString(c, text[:n]); err != nil {
			return
		}
		text = text[n:]
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		}
	}
}

// Answers come in the order of the requests, be they the origin's or the proxy's
// own, and each belongs to its request.
func TestOrderOfAnswers(t *testing.T) {
	o := startOrigin(t, orderOrigin)
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\ndeny * * 127.0.0.66\nallow *\nproxy -pPORT\n")
	rounds := orderRounds()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for round := 0; round < rounds && !t.Failed(); round++ {
				onePipeline(t, p, o.addr)
			}
		})
	}
	wg.Wait()
	p.waitOpen(0, 0)
}

func onePipeline(t *testing.T, p *proxy, addr string) {
	c := p.client(0)
	defer c.Close()
	var all []orderRequest
	var text strings.Builder
	for n := range 1 + rand.IntN(12) {
		q := randomRequest(n, addr)
		all = append(all, q)
		text.WriteString(q.text)
	}
	go sendInPieces(c, text.String())
	for i, q := range all {
		resp, body, err := c.tryAnswer(q.method)
		if err != nil {
			t.Errorf("answer %d of %d: %v", i, len(all), err)
			return
		}
		if resp.StatusCode != q.status || resp.Header.Get("X-N") != q.body || q.body != "" && strings.Trim(body, q.body+" ") != "" {
			t.Errorf("answer %d of %d: %d %q %.50q, want %d %q", i, len(all), resp.StatusCode, resp.Header.Get("X-N"), body, q.status, q.body)
			return
		}
		if resp.Close {
			return
		}
	}
}
