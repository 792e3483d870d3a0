package worker

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The name of a target is asked for when its TTL is over: a new address is used
// without a reload, and the old one while no name server answers (R24).
func TestTargetIsResolvedAgain(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1", "127.0.0.2")
	var state atomic.Value
	state.Store("127.0.0.1")
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, _ bool) *dns.Msg {
		switch addr := state.Load().(string); addr {
		case "silent":
			return nil
		case "servfail":
			m.Rcode = dns.RcodeServerFailure
		case "none":
			m.Rcode = dns.RcodeNameError
		default:
			if q.Qtype == dns.TypeA {
				rr, _ := dns.NewRR(q.Name + " 1 IN A " + addr)
				m.Answer = []dns.RR{rr}
			}
		}
		return m
	})
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 5 60 15 5 5\nnserver "+up.addr+"\ntcppm -4 PORT target.test "+port+"\n")
	reached := func() string {
		c := p.client(0)
		defer c.Close()
		line, _ := c.r.ReadString('\n')
		return strings.TrimSpace(line)
	}
	over := func() { time.Sleep(1100 * time.Millisecond) } // the TTL
	for _, step := range []struct{ state, want string }{
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.2", "127.0.0.2"},
		{"silent", "127.0.0.2"},
	} {
		state.Store(step.state)
		if got := reached(); got != step.want {
			t.Errorf("%s: reached %q, want %q", step.state, got, step.want)
		}
		over()
	}
	// A new configuration keeps what is known of the target.
	state.Store("servfail")
	p.cfg.Resolver.CacheSize = 1000
	p.load(p.cfg)
	if got := reached(); got != "127.0.0.2" {
		t.Errorf("after a reload: reached %q", got)
	}
	// That there is no such name is an answer.
	state.Store("none")
	p.cfg.Resolver.CacheSize = 2000
	p.load(p.cfg)
	if got := reached(); got != "" {
		t.Errorf("a name that is gone: reached %q", got)
	}
	p.waitOpen(0, 0)
}
