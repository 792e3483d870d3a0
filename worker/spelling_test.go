package worker

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// nameServer answers questions for A and AAAA by a function of the lower-case
// name; what that returns nothing for does not exist.
func nameServer(t *testing.T, answer func(name string, qtype uint16) []string) string {
	t.Helper()
	checkLeaks(t)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true
		name := strings.ToLower(q.Question[0].Name)
		for _, text := range answer(name, q.Question[0].Qtype) {
			rr, err := dns.NewRR(name + " " + text)
			if err != nil {
				t.Error(err)
				continue
			}
			m.Answer = append(m.Answer, rr)
		}
		if len(m.Answer) == 0 {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})
	ready, ended := make(chan struct{}), make(chan struct{})
	s := &dns.Server{PacketConn: conn, Handler: handler, NotifyStartedFunc: func() { close(ready) }}
	go func() {
		defer close(ended)
		if err := s.ActivateAndServe(); err != nil {
			t.Error(err)
		}
	}()
	await(t, ready)
	t.Cleanup(func() {
		_ = s.Shutdown()
		await(t, ended)
	})
	return conn.LocalAddr().String()
}

// sayHTTP answers whatever comes like an HTTP server, and counts.
func sayHTTP(t *testing.T, hits *atomic.Int64, port string, addrs ...string) string {
	t.Helper()
	return serveAt(t, port, addrs, func(_ string, c *net.TCPConn) {
		hits.Add(1)
		var b [4096]byte
		_, _ = c.Read(b[:])
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
	})
}

// spelledRequests are requests for a host and port in every protocol that can
// name it, for the services proxy (0) and socks (1), and what the answer of an
// allowed one begins with.
func spelledRequests(host string, port uint16) (requests []struct {
	service       int
	request, good string
}) {
	add := func(service int, request, good string) {
		requests = append(requests, struct {
			service       int
			request, good string
		}{service, request, good})
	}
	bracketed := host
	if strings.Contains(host, ":") {
		bracketed = "[" + host + "]"
	}
	add(0, fmt.Sprintf("GET http://%s:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", bracketed, port), "HTTP/1.1 200")
	add(0, fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\n", bracketed, port), "HTTP/1.1 200")
	add(1, "\x05\x01\x00"+request5(1, host, port), "\x05\x00\x05\x00")
	portBytes := string([]byte{byte(port >> 8), byte(port)})
	add(1, "\x05\x01\x00\x05\x01\x00\x03"+string(rune(len(host)))+host+portBytes, "\x05\x00\x05\x00")
	add(1, "\x04\x01"+portBytes+"\x00\x00\x00\x01\x00"+host+"\x00", "\x00\x5a")
	return requests
}

// leavingHost has the targets whose packets would leave this host.
const leavingHost = "64:ff9b::127.0.0.1 64:ff9b:1::127.0.0.1 2002:7f00:1:: 2002:7f00:1::127.0.0.1 nat64.test"

// Whatever way an address is written, or named, in every protocol: it is
// reached when it is allowed, and not reached when the address it leads to is
// denied. What looks like a number is a name, which only a name server makes an
// address.
func TestSpellings(t *testing.T) {
	var hits atomic.Int64
	port := sayHTTP(t, &hits, "0", "127.0.0.1")
	server := nameServer(t, func(name string, qtype uint16) []string {
		switch name {
		case "0x7f.1.", "inside.test.", "2130706434.":
			if qtype == dns.TypeA {
				return []string{"60 IN A 127.0.0.1"}
			}
		case "mapped.test.":
			if qtype == dns.TypeAAAA {
				return []string{"60 IN AAAA ::ffff:127.0.0.1"}
			}
		case "compatible.test.":
			if qtype == dns.TypeAAAA {
				return []string{"60 IN AAAA ::127.0.0.1"}
			}
		case "nat64.test.":
			if qtype == dns.TypeAAAA {
				return []string{"60 IN AAAA 64:ff9b::127.0.0.1"}
			}
		}
		return nil
	})
	const services = "proxy -pPORT\nsocks -pPORT\n"
	head := "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 1 5 5\nnserver " + server + "\nnsrecord 127.2 127.0.0.1\nnsrecord own.test ::127.0.0.1\nauth iponly\n"
	denying := startProxy(t, head+"allow * * ::/0\ndeny * * 127.0.0.0/8,10.0.0.0/8\nallow *\n"+services)
	allowing := startProxy(t, head+"allow *\n"+services)

	for _, test := range []struct {
		host    string
		reached bool // where it is allowed
	}{
		{"127.0.0.1", true},
		{"::ffff:127.0.0.1", true},
		{"::ffff:7f00:1", true},
		{"::127.0.0.1", true},
		{"::7f00:1", true},
		{"64:ff9b::127.0.0.1", false},
		{"64:ff9b:1::127.0.0.1", false},
		{"2002:7f00:1::", false},
		{"2002:7f00:1::127.0.0.1", false},
		{"inside.test", true},
		{"INSIDE.test.", true},
		{"own.test", true},
		{"mapped.test", false},
		{"compatible.test", false},
		{"nat64.test", false},
		{"0x7f.1", true},
		{"0X7F.1.", true},
		{"2130706434", true},
		{"127.2", true},
		{"127.1", false},
		{"127.0.0.1.", false},
		{"127.0.1", false},
		{"2130706433", false},
		{"0x7f000001", false},
		{"017700000001", false},
		{"0177.0.0.1", false},
		{"127.0.0.01", false},
		{"fe80::1%lo", false},
		{"127.0.0.1%lo", false},
		{"[127.0.0.1]", false},
		{"[inside.test]", false},
		{"127.0.0.1 ", false},
		{"127.0.0.1%00", false},
		{"user@127.0.0.1", false},
		{"127。0。0。1", false},
	} {
		for _, r := range spelledRequests(test.host, portOf(t, "1.1.1.1:"+port)) {
			for _, p := range []*proxy{denying, allowing} {
				if p == allowing && strings.Contains(leavingHost, test.host) {
					continue
				}
				before := hits.Load()
				c := p.dial(r.service)
				write(t, c, r.request)
				_ = c.CloseWrite()
				answer := readAll(t, c)
				c.Close()
				good := strings.HasPrefix(answer, r.good)
				want := test.reached && p == allowing
				if good != want || (hits.Load() > before) != want {
					t.Errorf("%q: answer %.60q, %d connections; allowed: %v", r.request, answer, hits.Load()-before, p == allowing)
				}
			}
		}
	}
}

// A name that changes from one question to the next is connected to at the
// address that was checked (R59).
func TestRebinding(t *testing.T) {
	var inside, outside atomic.Int64
	port := sayHTTP(t, &inside, "0", "127.0.0.1")
	sayHTTP(t, &outside, port, "127.0.0.5")
	var mu sync.Mutex
	asked := map[string]int{}
	server := nameServer(t, func(name string, qtype uint16) []string {
		if qtype != dns.TypeA {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		asked[name]++
		if asked[name]%2 == len(name)%2 {
			return []string{"0 IN A 127.0.0.1"}
		}
		return []string{"0 IN A 127.0.0.5"}
	})
	p := startProxy(t, "internal 127.0.0.1\nnserver "+server+"\nauth iponly\ndeny * * 127.0.0.1\nallow *\nproxy -pPORT\nsocks -pPORT\n")
	for i := range 60 {
		host := fmt.Sprintf("%s.test", strings.Repeat("r", 1+i%30))
		r := spelledRequests(host, portOf(t, "1.1.1.1:"+port))[i%3]
		c := p.dial(r.service)
		write(t, c, r.request)
		_ = c.CloseWrite()
		readAll(t, c)
		c.Close()
	}
	if inside.Load() != 0 || outside.Load() == 0 {
		t.Errorf("%d connections inside, %d outside", inside.Load(), outside.Load())
	}
	mu.Lock()
	defer mu.Unlock()
	for name, n := range asked {
		if n > 2 {
			t.Errorf("%s was asked for %d times by two requests", name, n)
		}
	}
}

// The targets of tcppm are subject to the same rules.
func TestSpellingsOfTargets(t *testing.T) {
	var hits atomic.Int64
	port := sayHTTP(t, &hits, "0", "127.0.0.1")
	for target, want := range map[string]bool{
		"127.0.0.1": true, "::ffff:127.0.0.1": true, "::127.0.0.1": true, "own.test": true,
	} {
		for _, rules := range []string{"allow *", "deny * * 127.0.0.1\nallow *"} {
			p := startProxy(t, "internal 127.0.0.9\nnsrecord own.test ::ffff:127.0.0.1\nauth iponly\n"+rules+"\ntcppm PORT "+target+" "+port+"\n")
			c := p.dial(0)
			_ = c.CloseWrite()
			answer := readAll(t, c)
			c.Close()
			if (answer != "") != (want && rules == "allow *") {
				t.Errorf("%s with %q: %q", target, rules, answer)
			}
			p.waitOpen(0, 0)
		}
	}
}
