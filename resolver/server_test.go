package resolver

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"3proxyd/config"
)

// fakeServer is a name server on loopback, UDP and TCP on the same port.
type fakeServer struct {
	addr     netip.AddrPort
	udp, tcp atomic.Int32 // questions
	mu       sync.Mutex
	zone     map[string][]dns.RR
	// handle answers instead of the zone when it returns true.
	handle handleFunc
}

type handleFunc func(w dns.ResponseWriter, q *dns.Msg, tcp bool) bool

func (s *fakeServer) setHandle(h handleFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = h
}

func newFakeServer(t *testing.T, records ...string) *fakeServer {
	t.Helper()
	s := &fakeServer{zone: map[string][]dns.RR{}}
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ToLower(rr.Header().Name)
		s.zone[name] = append(s.zone[name], rr)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = tcp.Addr().(*net.TCPAddr).AddrPort()
	udp, err := net.ListenPacket("udp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, &dns.Server{Listener: tcp, Handler: s.handler(true)})
	s.serve(t, &dns.Server{PacketConn: udp, Handler: s.handler(false)})
	return s
}

func (s *fakeServer) serve(t *testing.T, srv *dns.Server) {
	ready, ended := make(chan struct{}), make(chan struct{})
	srv.NotifyStartedFunc = func() { close(ready) }
	go func() {
		defer close(ended)
		if err := srv.ActivateAndServe(); err != nil {
			t.Error(err)
		}
	}()
	<-ready
	t.Cleanup(func() {
		if err := srv.Shutdown(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func (s *fakeServer) handler(tcp bool) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if tcp {
			s.tcp.Add(1)
		} else {
			s.udp.Add(1)
		}
		s.mu.Lock()
		handle := s.handle
		s.mu.Unlock()
		if handle != nil && handle(w, q, tcp) {
			return
		}
		_ = w.WriteMsg(s.answer(q))
	})
}

// answer answers as a recursive server does: aliases are followed.
func (s *fakeServer) answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	name := strings.ToLower(q.Question[0].Name)
	for range 40 {
		next := ""
		for _, rr := range s.zone[name] {
			if c, ok := rr.(*dns.CNAME); ok {
				next = strings.ToLower(c.Target)
				m.Answer = append(m.Answer, rr)
			} else if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if len(s.zone[name]) == 0 {
		m.Rcode = dns.RcodeNameError
	}
	if n := len(m.Answer); n == 0 || m.Answer[n-1].Header().Rrtype != q.Question[0].Qtype {
		m.Ns = s.zone["."]
	}
	return m
}

// dropped is the address of a server that never answers.
func dropped(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// refused is an address where nothing listens.
func refused(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func newTestResolver(t *testing.T, timeout time.Duration, servers ...netip.AddrPort) *Resolver {
	t.Helper()
	var cfg config.Resolver
	for _, s := range servers {
		cfg.Servers = append(cfg.Servers, config.NameServer{Addr: s})
	}
	r, err := New(cfg, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// text writes an answer for comparison.
func text(a Answer) string {
	switch {
	case a.Err != nil && len(a.Addrs) > 0:
		return fmt.Sprintf("both %v and %v", a.Addrs, a.Err)
	case a.Err != nil:
		return a.Err.Error()
	}
	var list []string
	for _, addr := range a.Addrs {
		list = append(list, addr.String())
	}
	return strings.Join(list, " ")
}
