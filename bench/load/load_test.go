package load

import (
	"net/netip"
	"strings"
	"testing"

	"3proxyd/bench/scenario"
	"3proxyd/bench/sys"
)

func TestParseAnswer(t *testing.T) {
	tests := []struct {
		head string
		want answer
		bad  bool
	}{
		{head: "HTTP/1.1 200 OK\r\nContent-Length: 5", want: answer{200, 5, false}},
		{head: "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nCONNECTION: close", want: answer{200, 5, true}},
		{head: "HTTP/1.0 200 OK\r\nContent-Length: 5", want: answer{200, 5, true}},
		{head: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5", want: answer{200, 5, false}},
		{head: "HTTP/1.1 503 Busy", want: answer{503, -1, false}},
		{head: "HTTP/1.1 200", want: answer{200, -1, false}},
		{head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", bad: true},
		{head: "HTTP/1.1 200 OK\r\nContent-Length: -5", bad: true},
		{head: "HTTP/1.1 200 OK\r\nno colon", bad: true},
		{head: "HTTP/1.1 2x0 OK", bad: true},
		{head: "HTTP/2 200", bad: true},
		{head: "", bad: true},
	}
	for _, tt := range tests {
		got, ok := parseAnswer([]byte(tt.head))
		if ok == tt.bad || (ok && got != tt.want) {
			t.Errorf("parseAnswer(%q) = %+v, %v", tt.head, got, ok)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5"))
	f.Add([]byte("HTTP/1.0 404 Not Found\r\nConnection: keep-alive"))
	f.Fuzz(func(t *testing.T, head []byte) {
		a, ok := parseAnswer(head)
		if ok && (a.status < 0 || a.status > 999 || a.length < -1) {
			t.Errorf("parseAnswer(%q) = %+v", head, a)
		}
	})
}

// newTestClient returns a client that reads from no one, to take bytes.
func newTestClient(t *testing.T, name string) *client {
	t.Helper()
	sc, err := scenario.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := sys.NewPattern()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sys.Close(pattern.FD) })
	cfg := Config{Scenario: sc, Origin: netip.MustParseAddrPort("10.0.2.2:8000"), Verify: true}
	c := &client{cfg: cfg, kind: sc.Kind, pattern: pattern, wire: newWire(cfg, pattern), idle: newFifo(1), retry: newFifo(1), rec: newRecord()}
	c.opening = 1
	return c
}

func TestTakeInPieces(t *testing.T) {
	c := newTestClient(t, "relay-ka-10")
	text := append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"), c.pattern.Data[:10]...)
	for cut := 1; cut < len(text); cut++ {
		k := &conn{fd: -1, state: stHead, isOpen: true, want: true, length: c.cfg.Scenario.Size}
		c.busy, c.idle = 1, newFifo(1)
		total := c.total
		for _, p := range [][]byte{text[:cut], text[cut:]} {
			if kind := c.take(k, p); kind != "" {
				t.Fatalf("cut at %d: error %q", cut, kind)
			}
		}
		if c.total != total+1 || k.state != stIdle || c.busy != 0 {
			t.Fatalf("cut at %d: %d answers, state %d, %d busy", cut, c.total-total, k.state, c.busy)
		}
	}
}

func TestTakeErrors(t *testing.T) {
	c := newTestClient(t, "relay-ka-10")
	good := string(c.pattern.Data[:10])
	for _, tt := range []struct {
		state state
		text  string
		want  string
	}{
		{stHead, "HTTP/1.1 404 No\r\n\r\n", errStatus},
		{stHead, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", errLength},
		{stHead, "HTTP/1.1 200 OK\r\n\r\n", errLength},
		{stHead, "nonsense\r\n\r\n", errAnswer},
		{stHead, strings.Repeat("x", maxHead+1), errAnswer},
		{stHead, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", errContent},
		{stHead, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + good + "more", errLength},
		{stIdle, "x", errLength},
		{stTunnel, "HTTP/1.1 403 No\r\n\r\n", errProxy},
		{stTunnel, "HTTP/1.1 200 OK\r\n\r\nearly", errProxy},
		{stSocksHello, "\x05\xff", errProxy},
		{stSocksReply, "\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00", errProxy},
	} {
		k := &conn{fd: -1, state: tt.state, want: true, length: c.cfg.Scenario.Size}
		if got := c.take(k, []byte(tt.text)); got != tt.want {
			t.Errorf("state %d, %.60q: error %q, want %q", tt.state, tt.text, got, tt.want)
		}
	}
}

func FuzzTake(f *testing.F) {
	pattern, err := sys.NewPattern()
	if err != nil {
		f.Fatal(err)
	}
	sc, err := scenario.Parse("relay-ka-10")
	if err != nil {
		f.Fatal(err)
	}
	good := "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + string(pattern.Data[:10])
	f.Add(uint8(stHead), good, 7)
	f.Add(uint8(stTunnel), "HTTP/1.1 200 OK\r\n\r\n", 3)
	f.Add(uint8(stSocksHello), "\x05\x00", 1)
	f.Add(uint8(stSocksReply), "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", 4)
	cfg := Config{Scenario: sc, Origin: netip.MustParseAddrPort("10.0.2.2:8000"), Verify: true}
	f.Fuzz(func(t *testing.T, at uint8, text string, cut int) {
		c := &client{cfg: cfg, kind: sc.Kind, pattern: pattern, wire: newWire(cfg, pattern), idle: newFifo(1), retry: newFifo(1), rec: newRecord()}
		c.opening, c.busy = 1, 1
		k := &conn{fd: -1, state: state(at % uint8(stEOF+1)), want: true, length: sc.Size}
		cut = min(max(cut, 0), len(text))
		if kind := c.take(k, []byte(text[:cut])); kind == "" {
			c.take(k, []byte(text[cut:]))
		}
		if len(k.in) > maxHead || c.total > 1 {
			t.Errorf("%d bytes are kept, %d requests counted", len(k.in), c.total)
		}
	})
}

func TestWire(t *testing.T) {
	c := newTestClient(t, "http-ka-2k-50k-7")
	request := string(c.wire.ask[0].request)
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	if !strings.HasPrefix(head, "POST http://10.0.2.2:8000/51200 HTTP/1.1\r\n") || !strings.Contains(head, "Content-Length: 2048") {
		t.Errorf("request is %q", head)
	}
	if body != string(c.pattern.Data[:2048]) {
		t.Error("the request's body is not the pattern")
	}
	if got := string(c.wire.socks); got != "\x05\x01\x00\x01\x0a\x00\x02\x02\x1f\x40" {
		t.Errorf("SOCKS request is %q", got)
	}
}

func TestFifo(t *testing.T) {
	q := newFifo(2)
	a, b := &conn{}, &conn{}
	for range 3 {
		q.push(a)
		q.push(b)
		if q.peek() != a || q.pop() != a || q.pop() != b || q.len() != 0 || q.peek() != nil {
			t.Fatal("the queue does not keep its order")
		}
	}
}
