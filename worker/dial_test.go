package worker

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// servePort has a server at the port on each of the addresses: it says at
// which, then echoes.
func servePort(t *testing.T, port string, addrs ...string) string {
	t.Helper()
	return serveAt(t, port, addrs, func(addr string, c *net.TCPConn) {
		fmt.Fprintf(c, "%s\n", addr)
		echo(c)
	})
}

// silentPort has no answer to connection attempts at addr.
func silentPort(t *testing.T, addr, port string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
	if err != nil {
		t.Fatal(err)
	}
	empty := fillQueue(t, l)
	t.Cleanup(func() { empty(); l.Close() })
}

// openTo asks a SOCKS service for a target and returns the reply and the line
// of the server that was reached.
func openTo(t *testing.T, c *client, host string, port uint16) (reply byte, line string) {
	t.Helper()
	c.send("\x05\x01\x00" + request5(1, host, port))
	c.wantBytes("\x05\x00")
	if reply = c.reply5(); reply != 0 {
		return reply, ""
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return 0, strings.TrimSuffix(line, "\n")
}

// Which of the addresses of a name is connected to, by the options of the
// service.
func TestFamilies(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1", "::1")
	other := servePort(t, "0", "::1")
	const records = "nsrecord both.test 127.0.0.1\nnsrecord both.test ::1\nnsrecord four.test 127.0.0.1\nnsrecord six.test ::1\n"
	for _, test := range []struct{ option, host, port, want string }{
		{"", "both.test", port, "127.0.0.1"},
		{"", "both.test", other, "::1"},
		{"", "six.test", port, "::1"},
		{"-46", "both.test", port, "127.0.0.1"},
		{"-64", "both.test", port, "::1"},
		{"-64", "four.test", port, "127.0.0.1"},
		{"-64", "127.0.0.1", port, "127.0.0.1"},
		{"-4", "both.test", port, "127.0.0.1"},
		{"-4", "both.test", other, "reply 5"},
		{"-4", "six.test", port, "reply 4"},
		{"-4", "::1", port, "reply 3"},
		{"-6", "both.test", port, "::1"},
		{"-6", "four.test", port, "reply 4"},
		{"-6", "127.0.0.1", port, "reply 3"},
		{"-e127.0.0.1", "both.test", port, "127.0.0.1"},
		{"-e127.0.0.1", "both.test", other, "reply 5"},
		{"-e127.0.0.1", "six.test", port, "reply 4"},
		{"-e127.0.0.1 -64", "both.test", port, "127.0.0.1"},
		{"-e::1", "both.test", port, "::1"},
		{"-e::1", "127.0.0.1", port, "reply 3"},
		{"-e127.0.0.1 -e::1 -64", "both.test", port, "::1"},
		{"-e127.0.0.1 -e::1 -4", "both.test", port, "127.0.0.1"},
	} {
		t.Run(strings.TrimSpace(test.option+" "+test.host), func(t *testing.T) {
			p := startProxy(t, "internal 127.0.0.1\n"+records+"socks "+test.option+" -pPORT\n")
			c := p.client(0)
			reply, got := openTo(t, c, test.host, portOf(t, "1.1.1.1:"+test.port))
			if reply != 0 {
				got = fmt.Sprintf("reply %d", reply)
			} else {
				c.wantEcho()
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			c.Close()
			p.waitOpen(0, 0)
		})
	}
}

// An address that does not answer holds up the others for a quarter of a
// second, one that refuses not at all, and what comes second is closed.
func TestHappyEyeballs(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1")
	silentPort(t, "127.0.0.2", port)
	silentPort(t, "127.0.0.3", port)
	silentPort(t, "::1", port)
	name := func(name string, addrs ...string) (lines string) {
		for _, a := range addrs {
			lines += "nsrecord " + name + " " + a + "\n"
		}
		return lines
	}
	p := startProxy(t, "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 2 5 1\n"+
		name("silent.test", "127.0.0.2", "127.0.0.1")+
		name("two.test", "127.0.0.2", "127.0.0.3", "127.0.0.1")+
		name("six.test", "::1", "127.0.0.2", "127.0.0.1")+
		name("refused.test", "127.0.0.9", "127.0.0.10", "127.0.0.1")+
		name("denied.test", "127.0.0.8", "127.0.0.2", "127.0.0.1")+
		name("dead.test", "127.0.0.2", "127.0.0.3")+
		name("forbidden.test", "127.0.0.2", "127.0.0.8")+
		name("many.test", "127.0.0.9", "127.0.0.10", "127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.15", "127.0.0.1")+
		name("toomany.test", "127.0.0.9", "127.0.0.10", "127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.15", "127.0.0.16", "127.0.0.1")+
		"auth iponly\ndeny * * 127.0.0.8\nallow *\nsocks -pPORT\n")
	var wg sync.WaitGroup
	for _, test := range []struct {
		host     string
		reply    byte
		min, max time.Duration
	}{
		{"silent.test", 0, 240 * time.Millisecond, time.Second},
		{"two.test", 0, 490 * time.Millisecond, 1500 * time.Millisecond},
		{"six.test", 0, 490 * time.Millisecond, 1500 * time.Millisecond},
		{"refused.test", 0, 0, 200 * time.Millisecond},
		{"many.test", 0, 0, 200 * time.Millisecond},
		{"toomany.test", 5, 0, 200 * time.Millisecond},
		{"denied.test", 0, 240 * time.Millisecond, time.Second},
		{"dead.test", 6, 2 * time.Second, 4 * time.Second},
		{"forbidden.test", 6, 2 * time.Second, 4 * time.Second},
	} {
		wg.Go(func() {
			c := p.client(0)
			defer c.Close()
			begin := time.Now()
			reply, line := openTo(t, c, test.host, portOf(t, "1.1.1.1:"+port))
			took := time.Since(begin)
			if reply != test.reply || reply == 0 && line != "127.0.0.1" {
				t.Errorf("%s: reply %d from %q, want %d", test.host, reply, line, test.reply)
			}
			if took < test.min || took > 10*test.max {
				t.Errorf("%s: took %v, want %v to %v", test.host, took, test.min, test.max)
			}
		})
	}
	wg.Wait()
	p.waitOpen(0, 0)
}

// Clients that go while several attempts are under way leave nothing.
func TestClientGoneWhileDialing(t *testing.T) {
	port := servePort(t, "0", "127.0.0.9")
	silentPort(t, "127.0.0.2", port)
	silentPort(t, "127.0.0.3", port)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord dead.test 127.0.0.2\nnsrecord dead.test 127.0.0.3\nproxy -pPORT\nsocks -pPORT\ntcppm PORT dead.test "+port+"\n")
	var all []*client
	for i := range 30 {
		c := p.client(i % 3)
		switch i % 3 {
		case 0:
			c.send("CONNECT dead.test:%s HTTP/1.1\r\nHost: x\r\n\r\n", port)
		case 1:
			c.send("\x05\x01\x00" + request5(1, "dead.test", portOf(t, "1.1.1.1:"+port)))
		}
		all = append(all, c)
	}
	// More than one delay, so that there are two attempts each.
	time.Sleep(2 * attemptDelayMS * time.Millisecond)
	for _, c := range all {
		_ = c.SetLinger(0)
		c.Close()
	}
	for i := range 3 {
		p.waitOpen(i, 0)
	}
}

// Connecting begins with the first family of addresses that is known: the preferred
// one at once, the other after 50 ms; the second family follows when it comes (RFC
// 8305 section 3).
func TestResolutionDelay(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1", "::1")
	closed := "127.0.0.9"
	type times struct{ a, aaaa time.Duration }
	names := map[string]struct {
		times
		v4, v6 string
	}{
		"late6.test.":    {times{0, 400 * time.Millisecond}, "127.0.0.1", "::1"},
		"wait6.test.":    {times{0, 400 * time.Millisecond}, "127.0.0.1", "::1"},
		"late4.test.":    {times{400 * time.Millisecond, 0}, "127.0.0.1", "::1"},
		"soon4.test.":    {times{20 * time.Millisecond, 0}, "127.0.0.1", "::1"},
		"failing4.test.": {times{0, 100 * time.Millisecond}, closed, "::1"},
		"only4.test.":    {times{0, 100 * time.Millisecond}, closed, ""},
		"never6.test.":   {times{0, time.Hour}, closed, "::1"},
	}
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, _ bool) *dns.Msg {
		n := names[q.Name]
		delay, text := n.a, q.Name+" 60 IN A "+n.v4
		if q.Qtype == dns.TypeAAAA {
			delay, text = n.aaaa, q.Name+" 60 IN AAAA "+n.v6
		}
		if delay == time.Hour {
			return nil
		}
		time.Sleep(delay)
		if rr, err := dns.NewRR(text); err == nil && !strings.HasSuffix(text, " ") {
			m.Answer = []dns.RR{rr}
		}
		return m
	})
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\nsocks -pPORT -46\nsocks -pPORT -64\n")
	for _, test := range []struct {
		service  int
		host     string
		line     string // of the server, "" for none
		min, max time.Duration
	}{
		{0, "late6.test", "127.0.0.1", 0, 40 * time.Millisecond},
		{0, "late4.test", "::1", 50 * time.Millisecond, 300 * time.Millisecond},
		{0, "soon4.test", "127.0.0.1", 20 * time.Millisecond, 300 * time.Millisecond},
		{0, "failing4.test", "::1", 100 * time.Millisecond, 300 * time.Millisecond},
		{0, "only4.test", "", 100 * time.Millisecond, 300 * time.Millisecond},
		{0, "never6.test", "", 0, 2 * time.Second},
		{1, "wait6.test", "127.0.0.1", 50 * time.Millisecond, 300 * time.Millisecond},
	} {
		c := p.client(test.service)
		begin := time.Now()
		reply, line := openTo(t, c, test.host, portOf(t, "1.1.1.1:"+port))
		took := time.Since(begin)
		if (reply == 0) != (test.line != "") || line != test.line {
			t.Errorf("%s: reply %d from %q, want %q", test.host, reply, line, test.line)
		}
		if took < test.min || took > 3*test.max {
			t.Errorf("%s: took %v, want %v to %v", test.host, took, test.min, test.max)
		}
		c.Close()
	}
	for i := range 2 {
		p.waitOpen(i, 0)
	}
}

// Clients that go, and clients that come, while one family of a name is not known.
func TestClientsWhileFamilyIsUnknown(t *testing.T) {
	port := servePort(t, "0", "127.0.0.1")
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, _ bool) *dns.Msg {
		if q.Qtype == dns.TypeAAAA {
			time.Sleep(300 * time.Millisecond)
			return m
		}
		addr := "127.0.0.1"
		if strings.HasPrefix(q.Name, "closed") {
			addr = "127.0.0.9"
		}
		rr, _ := dns.NewRR(q.Name + " 60 IN A " + addr)
		m.Answer = []dns.RR{rr}
		return m
	})
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\nproxy -pPORT\nproxy -pPORT -64\n")
	for i := range 40 {
		host := "open.test"
		if i%4 > 1 {
			host = "closed.test"
		}
		c := p.client(i % 2)
		c.send("CONNECT %s:%s HTTP/1.1\r\nHost: x\r\n\r\n", host, port)
		if i%3 == 0 {
			_ = c.SetLinger(0)
			c.Close()
		} else if host == "open.test" {
			c.want("CONNECT", 200, "")
			c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	c := p.client(0)
	c.send("CONNECT closed.test:%s HTTP/1.1\r\nHost: x\r\n\r\n", port)
	c.want("CONNECT", 502, "")
}

func TestTargets(t *testing.T) {
	for _, test := range []struct {
		addrs   string
		prefer6 bool
		want    string
	}{
		{"", false, ""},
		{"192.0.2.1", true, "192.0.2.1"},
		{"2001:db8::1", false, "2001:db8::1"},
		{"192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1 2001:db8::2", false, "192.0.2.1 2001:db8::1 192.0.2.2 2001:db8::2 192.0.2.3"},
		{"192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1 2001:db8::2", true, "2001:db8::1 192.0.2.1 2001:db8::2 192.0.2.2 192.0.2.3"},
		{"192.0.2.1 2001:db8::1 2001:db8::2 2001:db8::3", false, "192.0.2.1 2001:db8::1 2001:db8::2 2001:db8::3"},
	} {
		var addrs []netip.Addr
		for _, a := range strings.Fields(test.addrs) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		before := slices.Clone(addrs)
		var got []string
		var ts targets
		ts.set(addrs, test.prefer6)
		for !ts.empty() {
			got = append(got, ts.next().String())
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%q, IPv6 first %v: %q, want %q", test.addrs, test.prefer6, text, test.want)
		}
		if !slices.Equal(addrs, before) {
			t.Errorf("%q was written to", test.addrs)
		}
	}
}
