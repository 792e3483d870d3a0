package worker

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/ipc"
)

// A request that leads back to the daemon is refused by every service, by
// address and by name, for each service it may lead to.
func TestLoops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, "log "+path+"\nlogformat \"L%N %E\"\nnsrecord self.test 127.0.0.1\n"+
		"internal 127.0.0.1\nproxy -pPORT\nsocks -pPORT\n"+
		fmt.Sprintf("tlspr -p%[1]d -P%[1]d\ntcppm PORT self.test %[1]d\n", freePort(t)))
	ports := make([]uint16, 4)
	for i := range ports {
		ports[i] = netip.MustParseAddrPort(p.addrs[i]).Port()
	}
	want := []string{}
	for _, port := range ports {
		for _, host := range []string{"127.0.0.1", "self.test", "[::ffff:127.0.0.1]"} {
			c := p.client(0)
			c.send("GET http://%s:%d/ HTTP/1.1\r\nHost: x\r\n\r\n", host, port)
			c.want("GET", 508, "")
			c.send("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\n", host, port)
			c.want("CONNECT", 508, "")
			c.Close()
			c = p.client(1)
			c.send("\x05\x01\x00" + request5(1, strings.Trim(host, "[]"), port))
			c.wantBytes("\x05\x00")
			if code := c.reply5(); code != 2 {
				t.Errorf("%s:%d: SOCKS reply %d", host, port, code)
			}
			c.Close()
			want = append(want, "PROXY 00014", "PROXY 00014", "SOCKS 00014")
		}
	}
	p.client(3).wantEnd()
	want = append(want, "TCPPM 00014")
	checkCounts(t, waitLines(t, path, len(want)), want)
	// Another address of the same port is another host's business.
	c := p.client(0)
	c.send("CONNECT 127.0.0.9:%d HTTP/1.1\r\nHost: x\r\n\r\n", ports[1])
	c.want("CONNECT", 502, "")
	if n := p.counter(0, ipc.Denied); n != 24 {
		t.Errorf("%d refusals of 24 are counted", n)
	}
}

// TestLoopTLS has tlspr refuse a name that is its own address.
func TestLoopTLS(t *testing.T) {
	port := freePort(t)
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\nnsrecord www.example.com 127.0.0.1\ntlspr -p%[1]d -P%[1]d\n", port))
	c := p.client(0)
	c.send(readHello(t, "curl"))
	c.wantBytes("\x15\x03\x01\x00\x02\x02\x31")
	c.wantEnd()
}

// A service on all addresses knows those of the host; a port mapping may lead
// to another service.
func TestLoopWildcard(t *testing.T) {
	echoHost, echoPort := echoServer(t)
	p := startProxy(t, "proxy -i0.0.0.0 -pPORT\ntcppm -i127.0.0.1 PORT "+fmt.Sprintf("%s %d\n", echoHost, echoPort))
	port := netip.MustParseAddrPort(p.addrs[0]).Port()
	for host, status := range map[string]int{"127.0.0.1": 508, "127.1.2.3": 508} {
		c := p.client(0)
		c.send("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\n", host, port)
		c.want("CONNECT", status, "")
	}
}

func TestOwnAddrTakes(t *testing.T) {
	var local localAddrs
	local.set.Store(&addrSet{
		addrs:    map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("2001:db8::1"): true},
		networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	})
	cases := []struct {
		own, addr string
		dual      bool
		want      bool
	}{
		{"192.0.2.1", "192.0.2.1", false, true},
		{"192.0.2.1", "192.0.2.2", false, false},
		{"0.0.0.0", "192.0.2.1", false, true},
		{"0.0.0.0", "192.0.2.2", false, false},
		{"0.0.0.0", "198.51.100.77", false, true},
		{"0.0.0.0", "127.9.9.9", false, true},
		{"0.0.0.0", "2001:db8::1", false, false},
		{"::", "2001:db8::1", false, true},
		{"::", "::1", false, true},
		{"::", "2001:db8::2", false, false},
		{"::", "192.0.2.1", false, false},
		{"::", "192.0.2.1", true, true},
		{"::", "192.0.2.2", true, false},
	}
	for _, c := range cases {
		o := ownAddr{addr: netip.MustParseAddr(c.own), dual: c.dual}
		if got := o.takes(netip.MustParseAddr(c.addr), &local); got != c.want {
			t.Errorf("%s takes %s (dual %v): %v", c.own, c.addr, c.dual, got)
		}
	}
}

// Datagrams of an association to an address where the daemon takes datagrams
// are refused, by address and by name.
func TestLoopAssociation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	echo := echoPackets(t, "127.0.0.1")
	p := startProxy(t, "log "+path+"\nlogformat \"L%N %E\"\nnsrecord self.test 127.0.0.1\ninternal 127.0.0.1\nsocks -pPORT\n"+
		fmt.Sprintf("udppm PORT 127.0.0.1 %d\n", echo.Port()))
	own := netip.MustParseAddrPort(p.addrs[1])
	c := p.client(0)
	at := c.associate5("0.0.0.0", 0)
	me := packets(t, "127.0.0.1")
	for _, to := range []string{datagramTo(own, "x"), datagram5("self.test", own.Port(), "x"), datagram5("::ffff:127.0.0.1", own.Port(), "x")} {
		me.sendTo(at, to)
	}
	// The name is looked up beside the loop.
	p.waitCounter(0, ipc.DatagramsDropped, 3)
	me.sendTo(at, datagramTo(echo, "last"))
	me.wantFrom(echo, "last")
	c.Close()
	checkCounts(t, waitLines(t, path, 3), []string{"SOCKS 00014", "SOCKS 00014", "SOCKS 00000"})
}
