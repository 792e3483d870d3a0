package worker

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/proxyproto"
)

const headerConfig = "log %s\nlogformat \"L%%N %%E %%C %%c %%i %%n\"\ninternal 127.0.0.1\nnsrecord origin.test 127.0.0.1\n"

func headers(source, destination string) map[string]string {
	from, to := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)
	return map[string]string{
		"v1": string(proxyproto.Append1(nil, from, to)),
		"v2": string(proxyproto.Append2(nil, from, to)),
	}
}

// The header's client is the one the rules and the log see, with every service,
// in pieces, and with the request in the same segment.
func TestHeader(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	echoHost, echoPort := echoServer(t)
	port := tlsEcho(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(headerConfig, path)+
		"auth iponly\nallow * 192.0.2.1,2001:db8::1\n"+
		fmt.Sprintf("tcppm -H PORT %s %d\nproxy -H -pPORT\nsocks -H127.0.0.1,10.0.0.0/8 -pPORT\ntlspr -H -pPORT -P%s\nauto -H -pPORT -P%s\n", echoHost, echoPort, port, port))
	get := fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", o.addr, o.addr)
	connect := "\x05\x01\x00" + request5(1, echoHost, echoPort) + "early"
	check := []func(c *client){
		func(c *client) { c.wantBytes("early") },
		func(c *client) { c.want("GET", 200, "hello") },
		func(c *client) { readN(t, c.r, 2+10); c.wantBytes("early") },
	}
	send := []string{"early", get, connect}
	lines := 0
	for _, source := range []string{"192.0.2.1:1234", "[2001:db8::1]:1234"} {
		destination := "198.51.100.7:443"
		if source[0] == '[' {
			destination = "[2001:db8::7]:443"
		}
		for version, header := range headers(source, destination) {
			for _, n := range []int{1, 100000} {
				for i := range check {
					c := p.client(i)
					write(t, pieces{c, n}, header+send[i])
					check[i](c)
					c.Close()
					lines++
				}
				for _, i := range []int{3, 4} {
					c := p.dial(i)
					write(t, pieces{c, n}, header)
					endTLS(t, wantTLS(t, c, "origin.test"))
					lines++
				}
				c := p.client(4)
				write(t, pieces{c, n}, header+connect)
				check[2](c)
				c.Close()
				lines++
				from, to := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)
				for _, line := range waitLines(t, path, lines)[lines-6:] {
					if !strings.Contains(line, fmt.Sprintf(" 00000 %s %d %s ", from.Addr(), from.Port(), to.Addr())) {
						t.Errorf("%s from %s in pieces of %d: logged %q", version, source, n, line)
					}
				}
			}
		}
	}
	for _, header := range headers("192.0.2.2:1", "198.51.100.7:443") {
		c := p.client(0)
		c.send(header + "early")
		c.wantEnd()
		lines++
		if line := waitLines(t, path, lines)[lines-1]; !strings.Contains(line, " 00003 192.0.2.2 1 ") {
			t.Errorf("logged %q", line)
		}
	}
}

// Without a header nothing is served; a connection of the proxy's own keeps its
// address.
func TestHeaderDemanded(t *testing.T) {
	echoHost, echoPort := echoServer(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(headerConfig, path)+"timeouts 1 1 1\n"+
		fmt.Sprintf("tcppm -H PORT %s %d\ntcppm -H192.0.2.0/24,::1 PORT %s %d\n", echoHost, echoPort, echoHost, echoPort))
	cases := []struct {
		service int
		send    string
		code    string
	}{
		{0, "GET / HTTP/1.1\r\n\r\n", "00800"},
		{0, "PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n", "00800"},
		{0, "PROXY " + strings.Repeat("x", 200), "00800"},
		{0, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "00800"},
		{0, "\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c0123456789ab", "00800"},
		{0, "PROXY TCP4 192.0.2.1", "00092"},
		{0, "", "00092"},
		{1, "", "00001"},
	}
	for i, c := range cases {
		conn := p.client(c.service)
		if c.send != "" {
			conn.send(c.send)
		}
		_, _ = io.Copy(io.Discard, conn)
		if line := waitLines(t, path, i+1)[i]; !strings.HasPrefix(line, "TCPPM "+c.code+" 127.0.0.1 ") {
			t.Errorf("case %d: logged %q, want code %s", i, line, c.code)
		}
	}
	for i, header := range []string{"PROXY UNKNOWN\r\n", "PROXY UNKNOWN 192.0.2.1 192.0.2.2 1 2\r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} {
		conn := p.client(0)
		conn.send(header + "early")
		conn.wantBytes("early")
		conn.Close()
		n := len(cases) + i
		if line := waitLines(t, path, n+1)[n]; !strings.HasPrefix(line, "TCPPM 00000 127.0.0.1 ") {
			t.Errorf("logged %q", line)
		}
	}
}

// Clients that stay silent do not keep others from being served.
func TestHeaderSilence(t *testing.T) {
	echoHost, echoPort := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\n"+fmt.Sprintf("tcppm -H PORT %s %d\n", echoHost, echoPort))
	for range 50 {
		p.dial(0)
	}
	p.waitOpen(0, 50)
	c := p.client(0)
	c.send("PROXY UNKNOWN\r\nearly")
	c.wantBytes("early")
}

// A session keeps what its header said when it moves.
func TestHeaderMove(t *testing.T) {
	echoHost, echoPort := echoServer(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(headerConfig, path)+fmt.Sprintf("tcppm -H PORT %s %d\n", echoHost, echoPort))
	q := p.startSibling()
	c := p.client(0)
	c.send(headers("192.0.2.1:1234", "198.51.100.7:443")["v2"] + "early")
	c.wantBytes("early")
	if m := p.move(q, ipc.MoveOut{}); m.Sessions != 1 {
		t.Fatalf("moved %+v", m)
	}
	exchange(t, c, "after the move")
	c.Close()
	if line := waitLines(t, path, 1)[0]; line != "TCPPM 00000 192.0.2.1 1234 198.51.100.7 [127.0.0.1]" {
		t.Errorf("logged %q", line)
	}
}

// A server is told the client and where it connected to, with the first bytes.
func TestSendHeader(t *testing.T) {
	got := make(chan string, 1)
	host, port := serve(t, func(c *net.TCPConn) {
		b := make([]byte, 1000)
		n, _ := io.ReadAtLeast(c, b, 28)
		got <- string(b[:n])
		_, _ = io.Copy(io.Discard, c)
	})
	p := startProxy(t, "internal 127.0.0.1\nnsrecord www.example.com 127.0.0.1\n"+
		fmt.Sprintf("tcppm -Hout1 PORT %s %s\ntcppm -Hout2 PORT %s %s\ntcppm -H -Hout1 PORT %s %s\n", host, port, host, port, host, port)+
		fmt.Sprintf("tlspr -Hout2 -pPORT -P%s\ntlspr -Hout1 -pPORT -P%s\n", port, port))
	hello := readHello(t, "openssl")
	in := headers("[2001:db8::1]:1234", "[2001:db8::7]:443")
	for i, version := range []string{"v1", "v2", "v1", "v2", "v1"} {
		c := p.dial(i)
		want := headers(c.LocalAddr().String(), c.RemoteAddr().String())[version]
		text := "first"
		switch i {
		case 2:
			write(t, c, in["v2"])
			want = in["v1"]
		case 3, 4:
			text = hello
		}
		write(t, c, text)
		// What has come before the server was reached goes in the same write; it may
		// have come later.
		if first := await(t, got); !strings.HasPrefix(want+text, first) || len(first) < len(want) {
			t.Errorf("service %d sent %q, want %q", i, first, want+text)
		}
		c.Close()
		p.waitOpen(i, 0)
	}
}

// A client that speaks after the server gets its server's header at once.
func TestSendHeaderServerFirst(t *testing.T) {
	host, port := serve(t, func(c *net.TCPConn) {
		b := make([]byte, 107)
		for n := 0; n == 0 || b[n-1] != '\n'; n++ {
			if _, err := c.Read(b[n : n+1]); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "220 ready")
		_, _ = io.Copy(io.Discard, c)
	})
	p := startProxy(t, "internal 127.0.0.1\n"+fmt.Sprintf("tcppm -Hout1 PORT %s %s\n", host, port))
	c := p.client(0)
	c.wantBytes("220 ready")
}

func TestBelieved(t *testing.T) {
	r := func(from, to string) config.IPRange {
		return config.IPRange{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)}
	}
	none := &config.ProxyHeader{}
	list := &config.ProxyHeader{From: []config.IPRange{r("10.0.0.0", "10.0.0.255"), r("192.0.2.1", "192.0.2.1"), r("2001:db8::", "2001:db8::ff")}}
	cases := []struct {
		h    *config.ProxyHeader
		peer string
		want bool
	}{
		{none, "127.0.0.1", true}, {none, "127.9.9.9", true}, {none, "::1", true},
		{none, "10.0.0.1", false}, {none, "0.0.0.0", false}, {none, "fe80::1", false}, {none, "", true},
		{list, "10.0.0.0", true}, {list, "10.0.0.255", true}, {list, "10.0.1.0", false}, {list, "9.255.255.255", false},
		{list, "192.0.2.1", true}, {list, "192.0.2.2", false}, {list, "192.0.2.0", false},
		{list, "2001:db8::80", true}, {list, "2001:db8::100", false}, {list, "::1", false}, {list, "127.0.0.1", false}, {list, "", true},
	}
	for _, c := range cases {
		var peer netip.AddrPort
		if c.peer != "" {
			peer = netip.AddrPortFrom(netip.MustParseAddr(c.peer), 1)
		}
		if believed(c.h, peer) != c.want {
			t.Errorf("%v %q: want %v", c.h.From, c.peer, c.want)
		}
	}
}
