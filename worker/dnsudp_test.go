package worker

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestAmplification(t *testing.T) {
	var m amplification
	client, neighbour, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("198.51.100.1")
	for i := 0; i+1000 <= amplifiedBytes; i += 1000 {
		if !m.admit(client, 1000, 500) {
			t.Fatalf("refused after %d bytes", i)
		}
	}
	if m.admit(neighbour, 1000, 900) || !m.admit(neighbour, 0, 900) || !m.admit(other, 1000, 900) {
		t.Error("the bound is not that of a network")
	}
	if !m.admit(client, 1000, 1000) {
		t.Error("refused in the next second")
	}
	for i := range maxAmplified + 10 {
		m.admit(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", i)), 1, 1500)
	}
	if len(m.bytes) > maxAmplified || m.admit(netip.MustParseAddr("203.0.113.1"), 1, 1500) {
		t.Errorf("%d networks", len(m.bytes))
	}
	if !m.admit(client, 1, 1500) {
		t.Error("a network that is counted is refused")
	}
	if m.admit(netip.Addr{}, 1, 1500) {
		t.Error("no address")
	}
}

// What is no query gets no reply, so that two services cannot be made to answer
// each other, and does not disturb those that are.
func TestDNSDatagrams(t *testing.T) {
	up := startUpstream(t, zone(t, "a.test. 300 IN A 192.0.2.1"))
	p := startProxy(t, "internal 127.0.0.1\nnserver "+up.addr+"\ndnspr -pPORT\n")
	c, err := net.Dial("udp", p.addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reply := query("a.test.", dns.TypeA)
	reply.Response = true
	packed, err := reply.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"", "x", strings.Repeat("\xff", 11), strings.Repeat("\xff", 600), string(packed), strings.Repeat("\x80", 9000)} {
		if _, err := c.Write([]byte(in)); err != nil {
			t.Fatal(err)
		}
	}
	good := query("a.test.", dns.TypeA)
	if packed, err = good.Pack(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(packed); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(buf[:n]); err != nil || m.Id != good.Id || len(m.Answer) != 1 {
		t.Errorf("the first reply is %v, %v", m, err)
	}
}
