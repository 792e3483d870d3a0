package worker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// replyAddr reads a reply of version 5.
func (c *client) replyAddr() (code byte, addr netip.AddrPort) {
	c.t.Helper()
	head := readN(c.t, c.r, 4)
	size := 4
	if head[3] == 4 {
		size = 16
	}
	rest := readN(c.t, c.r, size+2)
	ip, _ := netip.AddrFromSlice([]byte(rest[:size]))
	return head[1], netip.AddrPortFrom(ip, uint16(rest[size])<<8|uint16(rest[size+1]))
}

// bind5 asks for a BIND and returns where the proxy listens.
func (c *client) bind5(host string, port uint16) netip.AddrPort {
	c.t.Helper()
	c.send("\x05\x01\x00")
	c.wantBytes("\x05\x00")
	c.send(request5(2, host, port))
	code, at := c.replyAddr()
	if code != 0 || !at.Addr().IsValid() || at.Addr().IsUnspecified() || at.Port() == 0 {
		c.t.Fatalf("reply %d with %v", code, at)
	}
	return at
}

// connectFrom connects to at from an address of this host.
func connectFrom(t testing.TB, from string, at netip.AddrPort) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", at.String())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.TCPConn), nil
}

// wantTurnedAway expects a connection to at to end without a byte.
func wantTurnedAway(t testing.TB, from string, at netip.AddrPort) {
	t.Helper()
	c, err := connectFrom(t, from, at)
	if err != nil {
		return
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection from %s was not turned away", from)
	}
}

// wantBound connects from an address, expects the second reply to tell of it, and
// sends a word each way.
func (c *client) wantBound(from string, at netip.AddrPort, early string) {
	c.t.Helper()
	peer, err := connectFrom(c.t, from, at)
	if err != nil {
		c.t.Fatal(err)
	}
	defer peer.Close()
	code, told := c.replyAddr()
	if want := peer.LocalAddr().(*net.TCPAddr).AddrPort(); code != 0 || told != want {
		c.t.Errorf("second reply %d with %v, the peer is %v", code, told, want)
	}
	c.send("to the peer")
	if got := readN(c.t, peer, len(early)+11); got != early+"to the peer" {
		c.t.Errorf("the peer got %q", got)
	}
	write(c.t, peer, "to the client")
	c.wantBytes("to the client")
}

func TestSocksBind(t *testing.T) {
	log := t.TempDir() + "/log"
	p := startProxy(t, "internal 127.0.0.1\nnsrecord peer.example 127.0.0.2\nnsrecord gone.example 0.0.0.0\nnsrecord denied.example 127.0.0.5\nlog "+log+"\nlogformat \"L%E %R:%r %O %I %T\"\n"+
		"auth iponly\ndeny * * 127.0.0.5\nallow * * * * BIND\nsocks -pPORT\n"+
		"auth iponly\nflush\nallow * * 127.0.0.2 * BIND\nsocks -pPORT\n"+
		"auth iponly\nflush\nallow * * * * CONNECT\nsocks -pPORT\n"+
		"flush\nauth none\nsocks -pPORT -e127.0.0.3 -Ne192.0.2.77\n")
	t.Run("a named peer", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		at := c.bind5("127.0.0.2", 21)
		wantTurnedAway(t, "127.0.0.1", at)
		c.send("early ")
		c.wantBound("127.0.0.2", at, "early ")
		if _, err := connectFrom(t, "127.0.0.2", at); err == nil {
			t.Error("a second connection was accepted")
		}
	})
	t.Run("anyone but those denied", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		at := c.bind5("0.0.0.0", 0)
		wantTurnedAway(t, "127.0.0.5", at)
		c.wantBound("127.0.0.9", at, "")
	})
	t.Run("anyone who is allowed", func(t *testing.T) {
		c := p.client(1)
		c.t = t
		defer c.Close()
		at := c.bind5("0", 0)
		wantTurnedAway(t, "127.0.0.9", at)
		c.wantBound("127.0.0.2", at, "")
	})
	t.Run("a named host", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		at := c.bind5("peer.example", 0)
		wantTurnedAway(t, "127.0.0.9", at)
		c.wantBound("127.0.0.2", at, "")
	})
	t.Run("the external address, another advertised", func(t *testing.T) {
		c := p.client(3)
		c.t = t
		defer c.Close()
		at := c.bind5("127.0.0.2", 0)
		if at.Addr() != netip.MustParseAddr("192.0.2.77") {
			t.Errorf("told %v", at)
		}
		c.wantBound("127.0.0.2", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), at.Port()), "")
	})
	t.Run("SOCKS 4", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		c.send(request4(2, "127.0.0.2", 21, "me"))
		reply := readN(t, c.r, 8)
		if reply[:2] != "\x00\x5a" || reply[4:] != "\x7f\x00\x00\x01" {
			t.Fatalf("reply % x", reply)
		}
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(reply[2])<<8|uint16(reply[3]))
		peer, err := connectFrom(t, "127.0.0.2", at)
		if err != nil {
			t.Fatal(err)
		}
		if reply = readN(t, c.r, 8); reply[:2] != "\x00\x5a" || reply[4:] != "\x7f\x00\x00\x02" {
			t.Errorf("second reply % x", reply)
		}
		write(t, peer, "hello")
		c.wantBytes("hello")
	})
	t.Run("IPv6", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		c.wantBound("::1", c.bind5("::1", 0), "")
	})
	for name, test := range map[string]struct {
		service int
		request string
		reply   byte
	}{
		"operation denied":                {2, request5(2, "127.0.0.2", 21), 2},
		"any peer denied":                 {2, request5(2, "0.0.0.0", 0), 2},
		"peer denied":                     {1, request5(2, "127.0.0.3", 0x1500), 2},
		"address denied":                  {0, request5(2, "127.0.0.5", 21), 2},
		"address denied, any port":        {0, request5(2, "127.0.0.5", 0), 2},
		"address not allowed, any port":   {1, request5(2, "127.0.0.3", 0), 2},
		"denied by its address":           {0, request5(2, "denied.example", 21), 2},
		"denied by its address, any port": {0, request5(2, "denied.example", 0), 2},
		"no such host":                    {0, request5(2, "gone.example", 21), 4},
		"multicast address":               {3, request5(2, "224.0.0.1", 21), 3},
		"broadcast address":               {3, request5(2, "255.255.255.255", 21), 3},
		"family of the source":            {3, request5(2, "::1", 21), 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.client(test.service)
			c.t = t
			defer c.Close()
			c.send("\x05\x01\x00")
			c.wantBytes("\x05\x00")
			c.send(test.request)
			if code, _ := c.replyAddr(); code != test.reply {
				t.Errorf("reply %d, want %d", code, test.reply)
			}
			c.wantEnd()
		})
	}
	for i := range 4 {
		p.waitOpen(i, 0)
	}
	p.drain(0)
	waitForLines(t, log, "00000 127.0.0.2:", " 17 13 BIND 127.0.0.2:21", " 11 13 BIND 0.0.0.0:0", " 11 13 BIND peer.example:0",
		"00001 0.0.0.0:0 0 0 BIND 127.0.0.5:21", "00003 0.0.0.0:0 0 0 BIND 0.0.0.0:0", "00012 0.0.0.0:0 0 0 BIND [::1]:21")
	if n := p.counter(0, ipc.Denied); n != 5 {
		t.Errorf("%d denied", n)
	}
}

// waitForLines waits until a log has all the texts.
func waitForLines(t *testing.T, log string, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, text := range texts {
			if !strings.Contains(string(b), text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in\n%s", missing, b)
		}
	}
}

// A client that goes away, be it in order or not, ends the wait; so does time.
func TestSocksBindEnds(t *testing.T) {
	log := t.TempDir() + "/log"
	p := startProxy(t, "internal 127.0.0.1\nlog "+log+"\nlogformat \"L%E %T\"\nauth none\nsocks -pPORT\ntimeouts 1 5 30 60 180 1\nsocks -pPORT\n")
	c := p.client(0)
	at := c.bind5("127.0.0.2", 1)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.waitOpen(0, 0)
	if _, err := connectFrom(t, "127.0.0.2", at); err == nil {
		t.Error("listens after the client has gone")
	}
	c = p.client(0)
	c.bind5("127.0.0.2", 2)
	_ = c.SetLinger(0)
	c.Close()
	p.waitOpen(0, 0)
	c = p.client(1)
	c.bind5("127.0.0.2", 3)
	if code, _ := c.replyAddr(); code != 6 {
		t.Errorf("reply %d after the time", code)
	}
	c.wantEnd()
	c.Close()
	p.waitOpen(1, 0)
	p.drain(0)
	waitForLines(t, log, "00460 BIND 127.0.0.2:1", "00095 BIND 127.0.0.2:2", "00092 BIND 127.0.0.2:3")
}

// A client that sends more than is kept for its peer has to wait.
func TestSocksBindEarlyData(t *testing.T) {
	p := startProxy(t, "internal 127.0.0.1\nauth none\nsocks -pPORT\n")
	c := p.client(0)
	at := c.bind5("127.0.0.2", 0)
	text := strings.Repeat("0123456789abcdef", 64<<10)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte(text))
		_ = c.CloseWrite()
		sent <- err
	}()
	peer, err := connectFrom(t, "127.0.0.2", at)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := c.replyAddr(); code != 0 {
		t.Errorf("second reply %d", code)
	}
	if got := readAll(t, peer); got != text {
		t.Errorf("%d bytes of %d", len(got), len(text))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	c.Close()
	peer.Close()
	p.waitOpen(0, 0)
}

// reload puts the text of a configuration in force.
func (p *proxy) reload(text string) {
	p.t.Helper()
	cfg, diags := config.LoadBytes("test.cfg", []byte(text))
	if cfg == nil {
		p.t.Fatalf("configuration: %v", diags)
	}
	p.load(cfg)
}

// A reload with force asks the new rules about the addresses of a BIND that waits
// for a name.
func TestSocksBindObeysByAddress(t *testing.T) {
	const rules = "internal 127.0.0.1\nforce\nnsrecord peer.example 127.0.0.2\nauth iponly\n"
	p := startProxy(t, rules+"allow *\nsocks -pPORT\n")
	c := p.client(0)
	c.bind5("peer.example", 0)
	_, port, _ := net.SplitHostPort(p.addrs[0])
	p.reload(rules + "deny * * 127.0.0.2\nallow *\nsocks -p" + port + "\n")
	if code, _ := c.replyAddr(); code != 2 {
		t.Errorf("reply %d to a BIND whose peer is not allowed any more", code)
	}
	c.wantEnd()
}

// A reload with force asks the new rules about a BIND that waits, and about one
// that has found its peer.
func TestSocksBindObeys(t *testing.T) {
	const rules = "internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 15 60 15 5 1\nforce\nusers u:CL:pw v:CL:pw\nauth strong\n"
	p := startProxy(t, rules+"socks -pPORT\n")
	login := func(user string) *client {
		c := p.client(0)
		c.send("\x05\x01\x02")
		c.wantBytes("\x05\x02")
		c.send(userPass(user, "pw"))
		c.wantBytes("\x01\x00")
		c.send(request5(2, "127.0.0.2", 0))
		return c
	}
	wait := login("u")
	_, at := wait.replyAddr()
	ended := login("v")
	if code, _ := ended.replyAddr(); code != 0 {
		t.Fatalf("reply %d", code)
	}
	bound := login("v")
	_, boundAt := bound.replyAddr()
	if _, err := connectFrom(t, "127.0.0.2", boundAt); err != nil {
		t.Fatal(err)
	}
	if code, _ := bound.replyAddr(); code != 0 {
		t.Fatalf("second reply %d", code)
	}
	_, port, _ := net.SplitHostPort(p.addrs[0])
	p.reload(rules + "allow u * 127.0.0.0/8 1-65535 BIND\nsocks -p" + fmt.Sprint(port) + "\n")
	if code, _ := ended.replyAddr(); code != 2 {
		t.Errorf("reply %d to a user who is not allowed any more", code)
	}
	if n, err := bound.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the tunnel goes on: %d, %v", n, err)
	}
	wait.wantBound("127.0.0.2", at, "")
	wait.Close()
	p.waitOpen(0, 0)
}
