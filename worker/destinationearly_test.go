package worker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"3proxyd/proto/socks"
)

// Datagrams wait for the addresses of one family as connections do, those of
// associations and those of udppm.
func TestDatagramsResolutionDelay(t *testing.T) {
	echo4, echo6 := echoPackets(t, "127.0.0.1"), echoPackets(t, "::1")
	up := startUpstream(t, func(m *dns.Msg, q dns.Question, _ bool) *dns.Msg {
		late, text := dns.TypeAAAA, q.Name+" 60 IN A 127.0.0.1"
		if strings.HasPrefix(q.Name, "late4") {
			late = dns.TypeA
		}
		if q.Qtype == late {
			time.Sleep(lateAnswer)
		}
		if q.Qtype == dns.TypeAAAA {
			text = q.Name + " 60 IN AAAA ::1"
		}
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Error(err)
		}
		m.Answer = []dns.RR{rr}
		return m
	})
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\nnserver %s\nsocks -pPORT -46\nsocks -pPORT -64\n"+
		"auth iponly\ndeny * * 127.0.0.1/32\nallow *\nsocks -pPORT\nauth none\n"+
		"udppm -46 PORT late6.map46 %[2]d\nudppm -46 PORT late4.map46 %[3]d\nudppm -64 PORT late6.map64 %[2]d\n",
		up.addr, echo4.Port(), echo6.Port()))
	const atOnce, soon = 0, resolutionDelayMS * time.Millisecond
	for _, c := range []struct {
		service int
		host    string // "" for a service of udppm
		from    netip.AddrPort
		min     time.Duration
	}{
		{0, "late6.a", echo4, atOnce},
		{0, "late4.b", echo6, soon},
		{1, "late4.c", echo6, atOnce},
		{1, "late6.d", echo4, soon},
		{2, "late6.e", echo6, lateAnswer}, // the early address is denied
		{3, "", echo4, atOnce},
		{4, "", echo6, soon},
		{5, "", echo4, soon},
	} {
		t.Run(fmt.Sprint(c.service, " ", c.host), func(t *testing.T) {
			me := packets(t, "127.0.0.1")
			if c.host == "" {
				sendsInTime(t, me, netip.MustParseAddrPort(p.addrs[c.service]), "one", "one", c.min)
				return
			}
			control := p.client(c.service)
			defer control.Close()
			at, head := control.associate5("0.0.0.0", 0), string(socks.AppendDatagramHeader(nil, c.from))
			ask := func(data string) string { return datagram5(c.host, c.from.Port(), data) }
			sendsInTime(t, me, at, ask("one"), head+"one", c.min)
			// The address in use goes on when the verdict about the name is over.
			for end := time.Now().Add(1100 * time.Millisecond); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				sendsInTime(t, me, at, ask("more"), head+"more", atOnce)
			}
		})
	}
	for i := range 3 {
		p.waitOpen(i, 0)
	}
}

// lateAnswer is how late the addresses of one family are.
const lateAnswer = 400 * time.Millisecond

// sendsInTime expects an answer to a datagram not before min and, on a busy machine,
// not long after.
func sendsInTime(t *testing.T, p *packetPeer, to netip.AddrPort, data, want string, min time.Duration) {
	t.Helper()
	begin := time.Now()
	p.sendTo(to, data)
	got, _ := p.recv()
	if took := time.Since(begin); got != want || took < min || took > min+lateAnswer-resolutionDelayMS*time.Millisecond {
		t.Errorf("got %q after %v, want %q after %v", got, took, want, min)
	}
}
