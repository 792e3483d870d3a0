package worker

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
	"3proxyd/proto/socks"
)

// packetPeer is a UDP socket of a test.
type packetPeer struct {
	t testing.TB
	*net.UDPConn
	buf [64 << 10]byte
}

// packets opens a UDP socket on an address of this host.
func packets(t testing.TB, addr string) *packetPeer {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return &packetPeer{t: t, UDPConn: c}
}

func (p *packetPeer) addr() netip.AddrPort { return p.LocalAddr().(*net.UDPAddr).AddrPort() }

func (p *packetPeer) sendTo(to netip.AddrPort, data string) {
	p.t.Helper()
	if _, err := p.WriteToUDPAddrPort([]byte(data), to); err != nil {
		p.t.Fatal(err)
	}
}

// recv reads a datagram.
func (p *packetPeer) recv() (string, netip.AddrPort) {
	p.t.Helper()
	n, from, err := p.ReadFromUDPAddrPort(p.buf[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return string(p.buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

// wantFrom expects a datagram of the proxy that brings data of a host.
func (p *packetPeer) wantFrom(from netip.AddrPort, data string) {
	p.t.Helper()
	got, _ := p.recv()
	if want := string(socks.AppendDatagramHeader(nil, from)) + data; got != want {
		p.t.Fatalf("got %q, want %q", got, want)
	}
}

// echoPackets sends every datagram back.
func echoPackets(t testing.TB, addr string) netip.AddrPort {
	t.Helper()
	checkLeaks(t)
	p := packets(t, addr)
	_ = p.SetDeadline(time.Time{})
	go func() {
		for {
			n, from, err := p.ReadFromUDPAddrPort(p.buf[:])
			if err != nil {
				return
			}
			_, _ = p.WriteToUDPAddrPort(p.buf[:n], from)
		}
	}()
	return p.addr()
}

// datagram5 is what a client sends for a host.
func datagram5(host string, port uint16, data string) string {
	return "\x00\x00\x00" + request5(0, host, port)[3:] + data
}

func datagramTo(to netip.AddrPort, data string) string {
	return datagram5(to.Addr().String(), to.Port(), data)
}

// associate5 asks for an association and returns where it takes datagrams.
func (c *client) associate5(host string, port uint16) netip.AddrPort {
	c.t.Helper()
	c.send("\x05\x01\x00")
	c.wantBytes("\x05\x00")
	c.send(request5(3, host, port))
	code, at := c.replyAddr()
	if code != 0 || at.Addr().IsUnspecified() || at.Port() == 0 {
		c.t.Fatalf("reply %d with %v", code, at)
	}
	return at
}

func TestAssociate(t *testing.T) {
	v4, v6 := echoPackets(t, "127.0.0.1"), echoPackets(t, "::1")
	p := startProxy(t, "internal 127.0.0.1\nnsrecord srv.example 127.0.0.1\nauth none\nsocks -pPORT\nsocks -pPORT -Ni192.0.2.5\n")
	t.Run("destinations", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		me := packets(t, "127.0.0.1")
		at := c.associate5("0.0.0.0", 0)
		for i, d := range []struct {
			sent string
			from netip.AddrPort
		}{
			{datagramTo(v4, "one"), v4},
			{datagramTo(v6, "one"), v6},
			{datagram5("SRV.example.", v4.Port(), "one"), v4},
			{"\x00\x00\x00\x03\x09127.0.0.1" + datagramTo(v4, "one")[8:], v4},
			{"\x00\x00\x00\x03\x03::1" + datagramTo(v6, "one")[20:], v6},
			{datagramTo(v4, "one"), v4},
		} {
			me.sendTo(at, d.sent)
			me.wantFrom(d.from, "one")
			if got := p.counter(0, ipc.DatagramsIn); got != uint64(i+1) {
				t.Errorf("%d datagrams", got)
			}
		}
		me.sendTo(at, datagramTo(v4, ""))
		me.wantFrom(v4, "")
		for _, size := range []int{1400, 9000, 65507 - 10 - 12} {
			big := strings.Repeat("x", size)
			me.sendTo(at, datagramTo(v4, big))
			me.wantFrom(v4, big)
		}
	})
	t.Run("advertised address", func(t *testing.T) {
		c := p.client(1)
		c.t = t
		defer c.Close()
		at := c.associate5("0", 0)
		if at.Addr() != netip.MustParseAddr("192.0.2.5") {
			t.Errorf("told %v", at)
		}
		me := packets(t, "127.0.0.1")
		me.sendTo(netip.AddrPortFrom(v4.Addr(), at.Port()), datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
	})
	t.Run("from elsewhere", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		dropped := p.counter(0, ipc.DatagramsDropped)
		at := c.associate5("0.0.0.0", 0)
		me, other, stranger := packets(t, "127.0.0.1"), packets(t, "127.0.0.1"), packets(t, "127.0.0.2")
		stranger.sendTo(at, datagramTo(v4, "stranger"))
		me.sendTo(at, datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
		other.sendTo(at, datagramTo(v4, "other"))
		stranger.sendTo(at, datagramTo(v4, "stranger"))
		me.sendTo(at, datagramTo(v4, "two"))
		me.wantFrom(v4, "two")
		if n := p.counter(0, ipc.DatagramsDropped) - dropped; n != 3 {
			t.Errorf("%d dropped", n)
		}
	})
	t.Run("named port", func(t *testing.T) {
		me, other := packets(t, "127.0.0.1"), packets(t, "127.0.0.1")
		for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
			c := p.client(0)
			c.t = t
			at := c.associate5(host, me.addr().Port())
			other.sendTo(at, datagramTo(v4, "other"))
			me.sendTo(at, datagramTo(v4, "one"))
			me.wantFrom(v4, "one")
			c.Close()
		}
		// Behind a translator the client does not know its address.
		c := p.client(0)
		c.t = t
		defer c.Close()
		at := c.associate5("192.168.1.2", 4000)
		me.sendTo(at, datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
	})
	t.Run("malformed", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		dropped := p.counter(0, ipc.DatagramsDropped)
		me := packets(t, "127.0.0.1")
		at := c.associate5("0.0.0.0", 0)
		good := datagramTo(v4, "bad")
		bad := []string{"", "\x00", good[:9], "\x00\x00\x01" + good[3:], "\x00\x01\x00" + good[3:], "\x00\x00\x00\x02" + good[4:],
			datagram5("0.0.0.0", v4.Port(), "bad"), datagram5("127.0.0.1", 0, "bad"), datagram5("a b", 1, "bad"),
			datagram5("224.0.0.1", 1, "bad"), datagram5("255.255.255.255", 1, "bad"), datagram5("ff02::1", 1, "bad"), datagram5("::", 1, "bad")}
		for _, b := range bad {
			me.sendTo(at, b)
		}
		me.sendTo(at, datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
		if n := p.counter(0, ipc.DatagramsDropped) - dropped; n != uint64(len(bad)) {
			t.Errorf("%d of %d dropped", n, len(bad))
		}
	})
	t.Run("unasked", func(t *testing.T) {
		c := p.client(0)
		c.t = t
		defer c.Close()
		me, server, host := packets(t, "127.0.0.1"), packets(t, "127.0.0.1"), packets(t, "127.0.0.3")
		at := c.associate5("0.0.0.0", 0)
		me.sendTo(at, datagramTo(server.addr(), "hello"))
		_, relayed := server.recv()
		host.sendTo(netip.AddrPortFrom(host.addr().Addr(), relayed.Port()), "from a third")
		me.wantFrom(host.addr(), "from a third")
	})
	for i := range 2 {
		p.waitOpen(i, 0)
	}
}

// The port is gone with the TCP connection, however that ends.
func TestAssociateEnds(t *testing.T) {
	v4 := echoPackets(t, "127.0.0.1")
	p := startProxy(t, "internal 127.0.0.1\nauth none\nsocks -pPORT\ntimeouts 1 5 30 60 180 1\nsocks -pPORT\n")
	for name, end := range map[string]func(c *client){
		"close": func(c *client) { c.Close() },
		"fin":   func(c *client) { _ = c.CloseWrite() },
		"reset": func(c *client) { _ = c.SetLinger(0); c.Close() },
	} {
		c := p.client(0)
		me := packets(t, "127.0.0.1")
		at := c.associate5("0.0.0.0", 0)
		me.sendTo(at, datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
		end(c)
		p.waitOpen(0, 0)
		gone, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		_ = gone.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = gone.Write([]byte("x"))
		if _, err := gone.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v", name, err)
		}
		gone.Close()
	}
	c := p.client(1)
	c.associate5("0.0.0.0", 0)
	c.wantEnd()
	c.Close()
	p.waitOpen(1, 0)
	if n := p.counter(1, ipc.TimedOut); n != 1 {
		t.Errorf("%d timed out", n)
	}
}

// An association for 0.0.0.0:0 waits for its first datagram as long as it may be
// silent, whatever bounds a handshake.
func TestAssociateAwaitsFirst(t *testing.T) {
	v4 := echoPackets(t, "127.0.0.1")
	p := startProxy(t, "internal 127.0.0.1\nauth none\ntimeouts 1 1 1 1 1 30 1 1 1 1 1\nsocks -pPORT\n")
	var all []*client
	var ats []netip.AddrPort
	for range 5 {
		c := p.client(0)
		all, ats = append(all, c), append(ats, c.associate5("0.0.0.0", 0))
	}
	time.Sleep(3500 * time.Millisecond)
	for i, at := range ats {
		me := packets(t, "127.0.0.1")
		me.sendTo(at, datagramTo(v4, "one"))
		me.wantFrom(v4, "one")
		all[i].Close()
	}
	p.waitOpen(0, 0)
}

// The list is asked about each destination, or the first only, as -U says; a
// denial of some addresses does not concern the request.
func TestAssociateRules(t *testing.T) {
	v4 := echoPackets(t, "127.0.0.1")
	denied, deniedPort := packets(t, "127.0.0.9"), packets(t, "127.0.0.1")
	rules := fmt.Sprintf("auth strong\ndeny * * 127.0.0.9 * UDPASSOC\ndeny * * *.bad.example\ndeny * * * %d\nallow u * * * UDPASSOC\n", deniedPort.addr().Port())
	text := "internal 127.0.0.1\nusers u:CL:pw v:CL:pw\nnsrecord in.example 127.0.0.9\nnsrecord srv.example 127.0.0.1\nnsrecord x.bad.example 0.0.0.0\n" + rules
	for _, u := range []string{"", "-U0", "-U1", "-U2", "-U3"} {
		text += "log " + filepath.Join(t.TempDir(), "log") + "\nlogformat \"L%E %R:%r %O %I %U %T\"\nsocks -pPORT " + u + "\n"
	}
	p := startProxy(t, text)
	login := func(i int, user string) *client {
		c := p.client(i)
		c.send("\x05\x01\x02")
		c.wantBytes("\x05\x02")
		c.send(userPass(user, "pw"))
		c.wantBytes("\x01\x00")
		c.send(request5(3, "0.0.0.0", 0))
		return c
	}
	for i := range 5 {
		c := login(i, "v")
		if code, _ := c.replyAddr(); code != 2 {
			t.Errorf("%d: reply %d to a user who may not", i, code)
		}
		c.wantEnd()
		c.Close()
		c = login(i, "u")
		code, at := c.replyAddr()
		if code != 0 {
			t.Fatalf("%d: reply %d", i, code)
		}
		me := packets(t, "127.0.0.1")
		me.sendTo(at, datagramTo(v4, "first"))
		me.wantFrom(v4, "first")
		for _, to := range []string{datagramTo(denied.addr(), "denied"), datagram5("in.example", denied.addr().Port(), "denied"),
			datagramTo(deniedPort.addr(), "denied"), datagram5("x.bad.example", 9, "denied")} {
			me.sendTo(at, to)
		}
		me.sendTo(at, datagram5("srv.example", v4.Port(), "last"))
		me.wantFrom(v4, "last")
		c.Close()
		p.waitOpen(i, 0)
		passed := i == 1 || i == 2
		if n := p.counter(i, ipc.DatagramsDropped); passed != (n == 1) || !passed && n != 4 {
			t.Errorf("%d: %d dropped", i, n)
		}
	}
	for range 4 {
		if got, _ := denied.recv(); got != "denied" {
			t.Errorf("got %q", got)
		}
	}
	for _, c := range []*packetPeer{denied, deniedPort} {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	}
	if n, err := denied.Read(make([]byte, 99)); err == nil {
		t.Errorf("a denied datagram of %d bytes", n)
	}
	p.drain(0)
	for i, s := range p.cfg.Services {
		first := "00000 " + v4.String() + " 5 5 u UDPMAP " + v4.String()
		named := fmt.Sprintf("00000 %s 4 4 u UDPMAP srv.example:%d", v4, v4.Port())
		refused := fmt.Sprintf("00001 %s 0 0 u UDPMAP %s", denied.addr(), denied.addr())
		refusedName := "u UDPMAP x.bad.example:9"
		switch i {
		case 0, 4:
			waitForLines(t, s.Log.Path, first, named, refused, "00001 0.0.0.0:0 0 0 "+refusedName, "00003 0.0.0.0:0 0 0 v UDPMAP 0.0.0.0:0")
		case 2:
			waitForLines(t, s.Log.Path, first, named, fmt.Sprintf("00000 %s 6 0 u UDPMAP %s", denied.addr(), denied.addr()))
		default:
			waitForLines(t, s.Log.Path, fmt.Sprintf("00000 %s %d 9 u UDPMAP %s", v4, []int{0, 27, 0, 9}[i], v4))
			if b, _ := os.ReadFile(s.Log.Path); bytes.Count(b, []byte("\n")) != 2 {
				t.Errorf("-U%d logs\n%s", i-1, b)
			}
		}
	}
}

// Datagrams to a name wait for its address, and follow it when it changes.
func TestAssociateNames(t *testing.T) {
	v4, other := packets(t, "127.0.0.1"), packets(t, "127.0.0.2")
	release := make(chan struct{})
	server := nameServer(t, func(name string, qtype uint16) []string {
		switch {
		case qtype != 1:
		case name == "slow.example.":
			<-release
			return []string{"3600 IN A 127.0.0.1"}
		case name == "moving.example.":
			select {
			case <-release:
				return []string{"1 IN A 127.0.0.2"}
			default:
				return []string{"1 IN A 127.0.0.1"}
			}
		}
		return nil
	})
	p := startProxy(t, "internal 127.0.0.1\nnserver "+server+"\nauth none\nsocks -pPORT\n")
	c := p.client(0)
	defer c.Close()
	me := packets(t, "127.0.0.1")
	at := c.associate5("0.0.0.0", 0)
	me.sendTo(at, datagram5("moving.example", other.addr().Port(), "to nobody"))
	me.sendTo(at, datagram5("moving.example", v4.addr().Port(), "moving"))
	if got, _ := v4.recv(); got != "moving" {
		t.Errorf("got %q", got)
	}
	for i := range maxHeld + 4 {
		me.sendTo(at, datagram5("slow.example", v4.addr().Port(), fmt.Sprint(i)))
	}
	me.sendTo(at, datagram5("gone.example", v4.addr().Port(), "to nobody"))
	// One of another destination does not wait.
	me.sendTo(at, datagramTo(v4.addr(), "not waiting"))
	if got, _ := v4.recv(); got != "not waiting" {
		t.Errorf("got %q", got)
	}
	close(release)
	for i := range maxHeld {
		if got, _ := v4.recv(); got != fmt.Sprint(i) {
			t.Errorf("got %q, want %d", got, i)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		me.sendTo(at, datagram5("moving.example", other.addr().Port(), "moved"))
		_ = other.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := other.Read(make([]byte, 99)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the address of before stays")
		}
	}
	// An association that ends while it waits.
	c.Close()
	p.waitOpen(0, 0)
}

// The destinations an association remembers are bounded; all work.
func TestAssociateManyDestinations(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, "internal 127.0.0.1\nlog "+log+"\nlogformat \"L%E %O %I %T\"\nauth none\nsocks -pPORT\n")
	c := p.client(0)
	me := packets(t, "127.0.0.1")
	at := c.associate5("0.0.0.0", 0)
	var lines []string
	var servers []netip.AddrPort
	for range 3 * maxDestinations {
		servers = append(servers, echoPackets(t, "127.0.0.1"))
	}
	for _, v := range servers {
		me.sendTo(at, datagramTo(v, "word"))
		me.wantFrom(v, "word")
		lines = append(lines, "00000 4 4 UDPMAP "+v.String()+"\n")
	}
	c.Close()
	p.waitOpen(0, 0)
	p.drain(0)
	waitForLines(t, log, lines...)
	if b, _ := os.ReadFile(log); bytes.Count(b, []byte("\n")) != len(lines) {
		t.Errorf("logged\n%s", b)
	}
}

// A reload with force asks the new rules about associations and each of their
// destinations.
func TestAssociateObeys(t *testing.T) {
	v4, v4b := echoPackets(t, "127.0.0.1"), echoPackets(t, "127.0.0.1")
	const rules = "internal 127.0.0.1\nforce\nusers u:CL:pw v:CL:pw\nauth strong\n"
	p := startProxy(t, rules+"socks -pPORT\n")
	var at [2]netip.AddrPort
	var cs [2]*client
	var me [2]*packetPeer
	for i, user := range []string{"u", "v"} {
		c := p.client(0)
		c.send("\x05\x01\x02")
		c.wantBytes("\x05\x02")
		c.send(userPass(user, "pw") + request5(3, "0.0.0.0", 0))
		c.wantBytes("\x01\x00")
		_, at[i] = c.replyAddr()
		cs[i], me[i] = c, packets(t, "127.0.0.1")
		for _, v := range []netip.AddrPort{v4, v4b} {
			me[i].sendTo(at[i], datagramTo(v, "one"))
			me[i].wantFrom(v, "one")
		}
	}
	_, port, _ := net.SplitHostPort(p.addrs[0])
	p.reload(rules + fmt.Sprintf("deny * * * %d\nallow u\nsocks -p%s\n", v4b.Port(), port))
	if n, err := cs[1].Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the association of a user who is not allowed any more: %d, %v", n, err)
	}
	me[0].sendTo(at[0], datagramTo(v4b, "denied"))
	me[0].sendTo(at[0], datagramTo(v4, "two"))
	me[0].wantFrom(v4, "two")
	if n := p.counter(0, ipc.EndedByRules); n != 1 {
		t.Errorf("%d ended by rules", n)
	}
	cs[0].Close()
	p.waitOpen(0, 0)
}

// A datagram costs no allocation, be it to an address or a name, with rules.
func TestAssociateNoAllocation(t *testing.T) {
	v4 := echoPackets(t, "127.0.0.1")
	p := startProxy(t, "internal 127.0.0.1\nnsrecord srv.example 127.0.0.1\nauth iponly\ndeny * * 10.0.0.0/8\nallow *\nsocks -pPORT\n")
	c := p.client(0)
	defer c.Close()
	me := packets(t, "127.0.0.1")
	at := c.associate5("0.0.0.0", 0)
	sent := [][]byte{[]byte(datagramTo(v4, "one")), []byte(datagram5("srv.example", v4.Port(), "one"))}
	ask := func(n int) {
		for i := range n {
			if _, err := me.WriteToUDPAddrPort(sent[i%2], at); err != nil {
				t.Fatal(err)
			}
			if _, _, err := me.ReadFromUDPAddrPort(me.buf[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(100)
	const n = 2000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ask(n)
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.2 {
		t.Errorf("%.2f allocations for a datagram", per)
	}
}

// With -U0 and -U1 a destination that is not allowed opens no way to others.
func TestAssociateFirstDenied(t *testing.T) {
	allowed := echoPackets(t, "127.0.0.1")
	denied, unasked := packets(t, "127.0.0.9"), packets(t, "127.0.0.9")
	for _, u := range []string{"-U0", "-U1"} {
		for name, first := range map[string]string{
			"address": datagramTo(denied.addr(), "denied"),
			"no name": datagram5("none.example", 9, "denied"),
			"port 0":  datagramTo(netip.AddrPortFrom(denied.addr().Addr(), 0), "denied"),
		} {
			t.Run(u+" "+name, func(t *testing.T) {
				p := startProxy(t, "internal 127.0.0.1\nnsrecord none.example 0.0.0.0\nauth iponly\nallow * * 127.0.0.1\nallow * * none.example\nsocks -pPORT "+u+"\n")
				c := p.client(0)
				defer c.Close()
				at := c.associate5("0.0.0.0", 0)
				me := packets(t, "127.0.0.1")
				me.sendTo(at, first)
				// More than are remembered.
				for i := range maxDestinations + 2 {
					me.sendTo(at, datagramTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 20}), uint16(1000+i)), "denied"))
				}
				me.sendTo(at, datagramTo(denied.addr(), "denied"))
				me.sendTo(at, datagramTo(allowed, "first"))
				me.wantFrom(allowed, "first")
				if n := p.counter(0, ipc.DatagramsDropped); n != maxDestinations+4 {
					t.Errorf("%d dropped", n)
				}
				me.sendTo(at, datagramTo(unasked.addr(), "after the first"))
				if got, _ := unasked.recv(); got != "after the first" {
					t.Errorf("got %q", got)
				}
			})
		}
	}
}

// With -U0 a reload with force asks about the destination that was allowed first,
// however many have come after it.
func TestAssociateObeysFirst(t *testing.T) {
	first := echoPackets(t, "127.0.0.1")
	const rules = "internal 127.0.0.1\nforce\nauth iponly\n"
	for name, c := range map[string]struct {
		rule string
		ends bool
	}{
		"first denied":  {"deny * * 127.0.0.1\n", true},
		"others denied": {"deny * * 127.0.0.20\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, rules+"allow *\nsocks -pPORT -U0\n")
			cl := p.client(0)
			defer cl.Close()
			at := cl.associate5("0.0.0.0", 0)
			me := packets(t, "127.0.0.1")
			me.sendTo(at, datagramTo(first, "first"))
			me.wantFrom(first, "first")
			for i := range maxDestinations + 2 {
				me.sendTo(at, datagramTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 20}), uint16(1000+i)), "more"))
			}
			p.waitCounter(0, ipc.DatagramsOut, maxDestinations+3)
			_, port, _ := net.SplitHostPort(p.addrs[0])
			p.reload(rules + c.rule + "allow *\nsocks -U0 -p" + port + "\n")
			if c.ends {
				if n, err := cl.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("the association goes on: %d, %v", n, err)
				}
				return
			}
			me.sendTo(at, datagramTo(first, "again"))
			me.wantFrom(first, "again")
		})
	}
}
