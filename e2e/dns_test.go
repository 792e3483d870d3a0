package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// nameServer answers for every name: A with 192.0.2.1, "big." with a TXT record
// that fits no datagram, "none." with nothing. It counts the questions.
type nameServer struct {
	port  int
	asked atomic.Int64
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	conn, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range []*dns.Server{
		{Listener: l, Handler: s.handler(dns.MaxMsgSize)},
		{PacketConn: conn, Handler: s.handler(1232)},
	} {
		ready := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(ready) }
		go func() { _ = srv.ActivateAndServe() }()
		<-ready
		t.Cleanup(func() { _ = srv.Shutdown() })
	}
	return s
}

func (s *nameServer) handler(limit int) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.asked.Add(1)
		m := new(dns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true
		name := q.Question[0].Name
		add := func(format string, args ...any) {
			rr, err := dns.NewRR(name + " 60 IN " + fmt.Sprintf(format, args...))
			if err == nil {
				m.Answer = append(m.Answer, rr)
			}
		}
		switch {
		case strings.HasPrefix(name, "none."):
			m.Rcode = dns.RcodeNameError
		case strings.HasPrefix(name, "big."):
			for i := range 40 {
				add("TXT %q", strings.Repeat("x", 100)+fmt.Sprint(i))
			}
		case q.Question[0].Qtype == dns.TypeA:
			add("A 192.0.2.1")
		}
		if m.Len() > limit {
			m.Answer, m.Truncated = nil, true
		}
		_ = w.WriteMsg(m)
	})
}

// TestDig asks with dig, over UDP and TCP, in the ways its options have.
func TestDig(t *testing.T) {
	t.Parallel()
	need(t, "dig")
	up, p := newNameServer(t), port(t)
	start(t, fmt.Sprintf("workers 2\nauth iponly\ndeny * * denied.test\nallow * 127.0.0.1 * 53 DNSRESOLVE\nnserver 127.0.0.1:%d\nnsrecord own.test 192.0.2.9\nnsrecord never.test 0.0.0.0\ninternal 127.0.0.1\ndnspr -p%d\n", up.port, p))
	for _, test := range []struct {
		args string
		want []string
	}{
		{"a.test A", []string{"status: NOERROR", "192.0.2.1", "flags: qr rd ra;", "udp: 1232"}},
		{"a.test A +noedns", []string{"status: NOERROR", "192.0.2.1"}},
		{"a.test A +tcp", []string{"status: NOERROR", "192.0.2.1", "(TCP)"}},
		{"A.tEsT A", []string{";A.tEsT.", "192.0.2.1"}},
		{"a.test A +dnssec +cd", []string{"flags: do;", "cd"}},
		{"a.test AAAA", []string{"status: NOERROR", "ANSWER: 0"}},
		{"none.test A", []string{"status: NXDOMAIN"}},
		{"big.test TXT", []string{"ANSWER: 40", "Truncated, retrying in TCP mode", "(TCP)"}},
		{"big.test TXT +ignore", []string{"flags: qr tc rd ra;", "ANSWER: 0", "(UDP)"}},
		{"big.test TXT +bufsize=4096 +ignore", []string{"tc", "ANSWER: 0"}},
		{"big.test TXT +tcp", []string{"ANSWER: 40"}},
		{"a.test ANY +notcp +ignore", []string{"tc", "ANSWER: 0"}},
		{"own.test A", []string{"192.0.2.9", "ANSWER: 1"}},
		{"own.test MX", []string{"status: NOERROR", "ANSWER: 0"}},
		{"never.test A", []string{"status: NXDOMAIN"}},
		{"denied.test A", []string{"status: REFUSED"}},
		{"a.test A +norecurse", []string{"status: REFUSED"}},
		{"a.test A +opcode=2", []string{"status: NOTIMP"}},
		{"version.bind CH TXT", []string{"status: NOTIMP"}},
		{"a.test AXFR", []string{"Transfer failed"}},
		{"a.test A +edns=1 +noednsnegotiation", []string{"status: BADVERS"}},
		{"a.test A +cookie +subnet=192.0.2.0/24", []string{"status: NOERROR", "192.0.2.1"}},
		{"a.test A +keepopen +tcp b.test A +tcp", []string{"ANSWER: 1"}},
	} {
		out, stderr, _ := command(t, "dig", append([]string{"@127.0.0.1", "-p", fmt.Sprint(p), "+tries=1", "+time=10"}, strings.Fields(test.args)...)...)
		for _, want := range test.want {
			if !strings.Contains(out+stderr, want) {
				t.Errorf("dig %s: no %q in\n%s%s", test.args, want, out, stderr)
			}
		}
	}
}

// dnsLoad is clients that ask one question after the other.
type dnsLoad struct {
	stop                  chan struct{}
	wg                    sync.WaitGroup
	asked, failed, resent atomic.Int64
	mu                    sync.Mutex
	firstError            error
}

func startDNSLoad(address string, clients int) *dnsLoad {
	l := &dnsLoad{stop: make(chan struct{})}
	for i := range clients {
		network := []string{"udp", "tcp"}[i%2]
		l.wg.Go(func() { l.client(network, address, i) })
	}
	return l
}

func (l *dnsLoad) client(network, address string, number int) {
	c := dns.Client{Net: network, Timeout: 3 * time.Second}
	for seq := 0; ; seq++ {
		select {
		case <-l.stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		m := new(dns.Msg)
		m.SetQuestion(fmt.Sprintf("n%d-%d.test.", number, seq), dns.TypeA)
		l.asked.Add(1)
		r, _, err := c.Exchange(m, address)
		if err != nil && network == "udp" {
			// As a client does.
			l.resent.Add(1)
			r, _, err = c.Exchange(m, address)
		}
		if err == nil && (r.Rcode != 0 || len(r.Answer) != 1) {
			err = fmt.Errorf("reply %v", r)
		}
		if err != nil {
			l.failed.Add(1)
			l.mu.Lock()
			l.firstError = fmt.Errorf("%s: %w", network, err)
			l.mu.Unlock()
		}
	}
}

func (l *dnsLoad) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	if l.failed.Load() > 0 || l.asked.Load() == 0 {
		t.Errorf("%d of %d queries failed: %v", l.failed.Load(), l.asked.Load(), l.firstError)
	}
	if n := l.resent.Load(); n > l.asked.Load()/100+1 {
		t.Errorf("%d of %d queries were sent again", n, l.asked.Load())
	}
}

// TestDNSReload reloads while clients ask: no query fails.
func TestDNSReload(t *testing.T) {
	t.Parallel()
	up, p := newNameServer(t), port(t)
	config := func(i int) string {
		return fmt.Sprintf("workers %d\nmaxconn %d\nnscache %d\nnserver 127.0.0.1:%d\ninternal 127.0.0.1\ndnspr -p%d\n", 1+i%2, 500+i, 1000+i%3, up.port, p)
	}
	d := start(t, config(1))
	load := startDNSLoad(fmt.Sprintf("127.0.0.1:%d", p), 8)
	for i := range 10 {
		d.write(config(i))
		if out, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload: %s%s", out, stderr)
		}
		time.Sleep(50 * time.Millisecond)
	}
	load.end(t)
	n := d.service("dnspr-udp")
	if n["requests"] == 0 || n["datagrams_in"] != n["datagrams_out"] {
		t.Errorf("counters %v", n)
	}
}

// TestDNSUpgrade upgrades while clients ask: no query fails.
func TestDNSUpgrade(t *testing.T) {
	t.Parallel()
	up, p := newNameServer(t), port(t)
	d := startUpgradable(t, fmt.Sprintf("workers 2\nupgrade_trial 1\ndrain_timeout 20\nnserver 127.0.0.1:%d\ninternal 127.0.0.1\ndnspr -p%d\n", up.port, p))
	load := startDNSLoad(fmt.Sprintf("127.0.0.1:%d", p), 8)
	d.upgrade()
	d.awaitOldGone()
	load.end(t)
}
