package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// garbage makes inputs that are not, or not quite, what a service expects.
func garbage(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	random := make([]byte, r.IntN(3000))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	starts := [][]byte{
		{}, {5}, {5, 1, 0}, {5, 255}, {5, 1, 0, 5, 1, 0, 3, 255}, {5, 1, 2, 1, 255},
		{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 1}, {4, 1}, {4, 1, 0, 80, 0, 0, 0, 1}, {4, 9, 0, 80, 1, 2, 3, 4, 0},
		[]byte("GET http://"), []byte("GET / HTTP/1.1\r\n\r\n"), []byte("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n"),
		[]byte("CONNECT [::1 HTTP/1.1\r\n\r\n"), []byte("GET http://127.0.0.1:1/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
		[]byte("POST http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"),
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		bytes.Repeat([]byte("A"), 100_000), bytes.Repeat([]byte("\r\n"), 5000),
		append([]byte("GET http://127.0.0.1:1/ HTTP/1.1\r\n"), bytes.Repeat([]byte("X: y\r\n"), 20_000)...),
	}
	start := starts[r.IntN(len(starts))]
	if r.IntN(3) == 0 && len(start) > 0 {
		start = bytes.Clone(start)
		start[r.IntN(len(start))] ^= byte(1 << r.IntN(8))
	}
	return append(bytes.Clone(start), random...)
}

// TestGarbage sends garbage to every service, in pieces, ended by FIN or RST.
// No worker may die, no session may be left.
func TestGarbage(t *testing.T) {
	t.Parallel()
	sink := tcpOrigin(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	ports := []int{port(t), port(t), port(t), port(t), port(t)}
	d := start(t, fmt.Sprintf(`timeouts 1 1 1 1 1 2 1 1 1 1 1
users u:CL:p
internal 127.0.0.1
proxy -p%d
socks -p%d
tcppm %d 127.0.0.1 %d
auth strong
proxy -p%d
socks -p%d
`, ports[0], ports[1], ports[2], sink, ports[3], ports[4]))
	const clients, each = 8, 60
	done := make(chan struct{}, clients)
	for i := range clients {
		go func() {
			defer func() { done <- struct{}{} }()
			for j := range each {
				seed := uint64(i*each + j)
				provoke(t, ports[j%len(ports)], seed)
			}
		}()
	}
	for range clients {
		<-done
	}
	for _, w := range d.status().Workers {
		if w.Restarts != 0 || w.State != "running" {
			t.Errorf("worker %d: %+v", w.Slot, w)
		}
	}
	if n := d.stats().Total["protocol_errors"]; n == 0 {
		t.Error("no protocol error was counted")
	}
}

func provoke(t *testing.T, port int, seed uint64) {
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		t.Errorf("connecting failed: %v", err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	data := garbage(seed)
	for len(data) > 0 {
		n := min(len(data), 1+int(seed%7)*997)
		if _, err := c.Write(data[:n]); err != nil {
			return
		}
		data = data[n:]
	}
	switch seed % 3 {
	case 0:
		_ = c.(*net.TCPConn).SetLinger(0)
	case 1:
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}
}

// TestSilence expects every handshake to be bounded in time.
func TestSilence(t *testing.T) {
	t.Parallel()
	proxy, socks := port(t), port(t)
	start(t, fmt.Sprintf("timeouts 1 1 1 1 1 1 1 1 1 1 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\nsocks -p%d\n", proxy, socks))
	for _, c := range []struct {
		name, text string
		port       int
	}{
		{"proxy", "", proxy}, {"proxy", "GET http://a", proxy}, {"proxy", "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost:", proxy},
		{"socks", "", socks}, {"socks", "\x05", socks}, {"socks", "\x05\x01\x00\x05\x01", socks}, {"socks", "\x04\x01\x00\x50\x7f", socks},
	} {
		t.Run(c.name+fmt.Sprintf("/%d", len(c.text)), func(t *testing.T) {
			t.Parallel()
			conn := dial(t, c.port)
			if _, err := io.WriteString(conn, c.text); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			got, _ := io.ReadAll(conn)
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("after %q the connection lasted %v", c.text, took)
			}
			if c.name == "proxy" && c.text != "" && !strings.HasPrefix(string(got), "HTTP/1.1 408 ") {
				t.Errorf("after %q came %q", c.text, got)
			}
		})
	}
}
