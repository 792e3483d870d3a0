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
	request []byte // the HTTP request with its body, of a stream up only the head
	length  int64  // bytes of the answer's body
	post    int64  // bytes of the request's body within request
}

func newWire(cfg Config, p *sys.Pattern) wire {
	s := cfg.Scenario
	w := wire{
		connect: fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", cfg.Origin, cfg.Origin),
		hello:   []byte{5, 1, 0},
		socks:   socksConnect(cfg.Origin),
		length:  s.Size,
		post:    s.Post,
	}
	method, fields, target := "GET", "", ""
	if s.Kind == scenario.Stream && s.Down {
		w.length = endless
	}
	if s.Kind == scenario.Stream && !s.Down {
		method, fields = "POST", fmt.Sprintf("Content-Length: %d\r\n", endless)
	}
	if s.Post > 0 {
		method, fields = "POST", fmt.Sprintf("Content-Length: %d\r\n", s.Post)
	}
	if s.Kind == scenario.Close {
		fields += "Connection: close\r\n"
	}
	if s.Mode == scenario.HTTP {
		target = "http://" + cfg.Origin.String()
	}
	w.request = fmt.Appendf(nil, "%s %s/%d HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n%s\r\n",
		method, target, w.length, cfg.Origin, fields)
	w.request = append(w.request, p.Data[:s.Post]...)
	return w
}

func socksConnect(to netip.AddrPort) []byte {
	ip := to.Addr().As4()
	b := append([]byte{5, 1, 0, 1}, ip[:]...)
	return append(b, byte(to.Port()>>8), byte(to.Port()))
}
