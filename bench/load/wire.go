package load

import (
	"fmt"
	"net/netip"

	"3proxyd/bench/scenario"
	"3proxyd/bench/sys"
)

// endless is the length of a stream's body: more than any run can move.
const endless = int64(1) << 50

// wire holds the bytes the client sends, made once.
type wire struct {
	connect []byte // an HTTP CONNECT request
	hello   []byte // a SOCKS 5 greeting (RFC 1928, section 3)
	socks   []byte // a SOCKS 5 CONNECT request (section 4)
	ask     []ask  // the requests, made in turn
	turn    int
	post    int64 // bytes of each request's body
}

// ask is an HTTP request with its body; of a stream up it is only the head.
type ask struct {
	request []byte
	length  int64 // bytes of the answer's body
}

// next returns the request to make and the length of its answer's body.
func (w *wire) next() ([]byte, int64) {
	a := &w.ask[w.turn]
	if w.turn++; w.turn == len(w.ask) {
		w.turn = 0
	}
	return a.request, a.length
}

func newWire(cfg Config, p *sys.Pattern) wire {
	s := cfg.Scenario
	w := wire{
		connect: fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", cfg.Origin, cfg.Origin),
		hello:   []byte{5, 1, 0},
		socks:   socksConnect(cfg.Origin),
		post:    s.Post,
	}
	for _, n := range lengths(s) {
		w.ask = append(w.ask, ask{newRequest(cfg, n, p), n})
	}
	return w
}

// lengths returns the lengths of the answers that are asked for.
func lengths(s scenario.Scenario) []int64 {
	switch {
	case s.Kind == scenario.Mix:
		return scenario.MixSizes()
	case s.Kind == scenario.Stream && s.Down:
		return []int64{endless}
	}
	return []int64{s.Size}
}

func newRequest(cfg Config, length int64, p *sys.Pattern) []byte {
	s := cfg.Scenario
	method, fields, target := "GET", "", ""
	if s.Kind == scenario.Stream && !s.Down {
		method, fields = "POST", fmt.Sprintf("Content-Length: %d\r\n", endless)
	}
	if s.Post > 0 {
		method, fields = "POST", fmt.Sprintf("Content-Length: %d\r\n", s.Post)
	}
	if s.Kind == scenario.Close {
		fields += "Connection: close\r\n"
	}
	if s.Kind == scenario.Mix {
		fields += browserFields
	}
	if s.Mode == scenario.HTTP {
		target = "http://" + cfg.Origin.String()
	}
	b := fmt.Appendf(nil, "%s %s/%d HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n%s\r\n",
		method, target, length, cfg.Origin, fields)
	return append(b, p.Data[:s.Post]...)
}

// browserFields make a mix's requests as long as those of browsers.
const browserFields = "Accept-Language: en-GB,en;q=0.8,de;q=0.6\r\n" +
	"Accept-Encoding: gzip, deflate, br, zstd\r\n" +
	"Referer: http://www.example.com/news/2026/an-article-with-a-rather-long-name.html\r\n" +
	"Cookie: session=0123456789abcdef0123456789abcdef; theme=light; consent=all; visitor=fedcba9876543210\r\n" +
	"Sec-Fetch-Dest: image\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: same-origin\r\nPriority: u=5, i\r\n"

func socksConnect(to netip.AddrPort) []byte {
	ip := to.Addr().As4()
	b := append([]byte{5, 1, 0, 1}, ip[:]...)
	return append(b, byte(to.Port()>>8), byte(to.Port()))
}
