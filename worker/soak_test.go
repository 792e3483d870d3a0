package worker

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var soakTime = flag.Duration("soak", time.Second, "how long TestSoak runs")

// soakBody is the body of the answer to a request, which nobody else's equals.
func soakBody(id string, size int) string {
	return strings.Repeat(id+"/", size/(len(id)+1)+1)[:size]
}

// soakOrigin answers /ID/SIZE/HOW with soakBody, in the way asked for; some
// ways are broken.
func soakOrigin(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
	req, err := http.ReadRequest(bufio.NewReaderSize(io.MultiReader(strings.NewReader(head), r), 16))
	if err != nil {
		return false
	}
	parts := strings.Split(req.URL.Path, "/")
	if len(parts) != 4 {
		return false
	}
	id, how := parts[1], parts[3]
	size, _ := strconv.Atoi(parts[2])
	body := soakBody(id, size)
	if how == "early" {
		_, _ = io.WriteString(c, ok(body))
		return false
	}
	_, _ = io.Copy(io.Discard, req.Body)
	switch how {
	case "length":
		_, err = io.WriteString(c, ok(body))
	case "surplus":
		_, err = io.WriteString(c, ok(body)+ok("evil"))
	case "chunked":
		var b strings.Builder
		b.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := body; rest != ""; {
			n := min(len(rest), 1+rand.IntN(70000))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		_, err = io.WriteString(c, b.String()+"0\r\n\r\n")
	case "close":
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+body)
		return false
	case "broken":
		text := ok(body)
		_, _ = io.WriteString(c, text[:rand.IntN(len(text))])
		if rand.IntN(2) == 0 {
			_ = c.SetLinger(0)
		}
		return false
	case "none":
		return false
	}
	return err == nil
}

type soaker struct {
	p                *proxy
	o                *origin
	echo             string
	whole, cut, done atomic.Int64
	next             atomic.Int64
}

// TestSoak lets clients of every kind come and go at any point; whoever gets a
// whole answer gets his own.
func TestSoak(t *testing.T) {
	o := startOrigin(t, soakOrigin)
	host, port := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\n"+shortTimeouts+"nsrecord srv.example 127.0.0.1\nproxy -pPORT\nsocks -pPORT\nauth iponly\nallow *\nproxy -s3 -pPORT\n")
	k := &soaker{p: p, o: o, echo: fmt.Sprintf("%s:%d", host, port)}
	var wg sync.WaitGroup
	end := time.Now().Add(*soakTime)
	for range 24 {
		wg.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				k.client(t)
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		p.waitOpen(i, 0)
	}
	if k.whole.Load() == 0 || k.cut.Load() == 0 {
		t.Errorf("%d whole answers, %d not", k.whole.Load(), k.cut.Load())
	}
	t.Logf("%d clients, %d whole answers, %d not", k.done.Load(), k.whole.Load(), k.cut.Load())
}

func (k *soaker) client(t *testing.T) {
	k.done.Add(1)
	service := rand.IntN(3)
	conn, err := net.Dial("tcp", k.p.addrs[service])
	if err != nil {
		t.Error(err)
		return
	}
	c := conn.(*net.TCPConn)
	defer c.Close()
	if rand.IntN(4) == 0 {
		defer c.SetLinger(0)
	}
	_ = c.SetDeadline(time.Now().Add(time.Duration(1+rand.IntN(20)) * time.Second))
	if service == 1 {
		h, port, _ := net.SplitHostPort(k.echo)
		n, _ := strconv.Atoi(port)
		k.tunnel(t, c, "\x05\x01\x00"+request5(1, h, uint16(n)), 2+10)
		return
	}
	switch rand.IntN(6) {
	case 0:
		k.tunnel(t, c, fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\n", k.echo), len("HTTP/1.1 200 Connection established\r\n\r\n"))
	case 1:
		// Part of a request, or nonsense.
		text := fmt.Sprintf("POST http://%s/1/2/length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", k.o.addr)
		_, _ = io.WriteString(c, text[:rand.IntN(len(text))])
		if rand.IntN(2) == 0 {
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}
	default:
		k.requests(t, c)
	}
}

// tunnel sends a handshake with data behind it and compares what comes back
// behind the reply, of a known size.
func (k *soaker) tunnel(t *testing.T, c *net.TCPConn, handshake string, reply int) {
	data := soakBody(fmt.Sprint("t", k.next.Add(1)), rand.IntN(300000))
	go func() {
		_, _ = io.WriteString(c, handshake+data)
		_ = c.CloseWrite()
	}()
	if rand.IntN(4) == 0 {
		_, _ = io.CopyN(io.Discard, c, rand.Int64N(int64(reply+len(data)+1)))
		return
	}
	got, err := io.ReadAll(c)
	if err != nil || len(got) < reply || string(got[reply:]) != data {
		t.Errorf("tunnel: %d bytes of %d, %v: %.60q", len(got)-reply, len(data), err, got)
		return
	}
	k.whole.Add(1)
}

// requests sends one to five requests at once or in turn.
func (k *soaker) requests(t *testing.T, c *net.TCPConn) {
	ways := []string{"length", "length", "length", "chunked", "chunked", "close", "surplus", "broken", "none", "early"}
	type request struct{ text, body, method string }
	var list []request
	for range 1 + rand.IntN(5) {
		id, size, how := fmt.Sprint("r", k.next.Add(1)), rand.IntN(1<<uint(1+rand.IntN(20))), ways[rand.IntN(len(ways))]
		r := request{body: soakBody(id, size), method: "GET"}
		target := fmt.Sprintf("http://%s/%s/%d/%s", k.o.addr, id, size, how)
		switch rand.IntN(4) {
		case 0:
			r.method = "POST"
			n := rand.IntN(200000)
			r.text = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", target, n, strings.Repeat("b", n))
		case 1:
			r.method = "POST"
			r.text = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n%x\r\n%s\r\n0\r\n\r\n", target, 100000, strings.Repeat("b", 100000))
		default:
			r.text = fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
		}
		list = append(list, r)
	}
	in := bufio.NewReader(c)
	pipelined := rand.IntN(2) == 0
	if pipelined {
		var all strings.Builder
		for _, r := range list {
			all.WriteString(r.text)
		}
		go io.WriteString(c, all.String())
	}
	for _, r := range list {
		if !pipelined {
			go io.WriteString(c, r.text)
		}
		if rand.IntN(10) == 0 {
			_, _ = io.CopyN(io.Discard, in, rand.Int64N(20000))
			return
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: r.method})
		if err != nil {
			k.cut.Add(1)
			return
		}
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			k.cut.Add(1)
			return
		case resp.StatusCode == 200 && string(body) != r.body:
			t.Errorf("%.80q was answered with %d bytes %.60q", r.text, len(body), body)
			return
		case resp.StatusCode != 200 && resp.StatusCode != 502:
			t.Errorf("%.80q: status %d", r.text, resp.StatusCode)
			return
		case resp.StatusCode == 200:
			k.whole.Add(1)
		}
		if resp.Close {
			return
		}
	}
}
