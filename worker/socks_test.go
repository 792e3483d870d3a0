package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// fillQueue connects to a listener that nobody accepts from until its queue is
// full, and returns what closes the connections.
func fillQueue(t *testing.T, l net.Listener) (empty func()) {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 10 {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 200*time.Millisecond)
		if err != nil {
			break
		}
		conns = append(conns, c)
	}
	return func() {
		for _, c := range conns {
			c.Close()
		}
	}
}

func request5(cmd byte, host string, port uint16) string {
	b := []byte{5, cmd, 0}
	if a, err := netip.ParseAddr(host); err != nil {
		b = append(append(b, 3, byte(len(host))), host...)
	} else if a.Is4() {
		b = append(append(b, 1), a.AsSlice()...)
	} else {
		b = append(append(b, 4), a.AsSlice()...)
	}
	return string(binary.BigEndian.AppendUint16(b, port))
}

func request4(cmd byte, host string, port uint16, user string) string {
	b := binary.BigEndian.AppendUint16([]byte{4, cmd}, port)
	a, err := netip.ParseAddr(host)
	if err != nil {
		a = netip.AddrFrom4([4]byte{0, 0, 0, 1})
	}
	b = append(append(append(b, a.AsSlice()...), user...), 0)
	if err != nil {
		b = append(append(b, host...), 0)
	}
	return string(b)
}

func userPass(user, pass string) string {
	return "\x01" + string(rune(len(user))) + user + string(rune(len(pass))) + pass
}

// wantBytes reads exactly what is expected.
func (c *client) wantBytes(want string) {
	c.t.Helper()
	if got := readN(c.t, c.r, len(want)); got != want {
		c.t.Fatalf("got % x, want % x", got, want)
	}
}

// reply5 reads a reply of version 5 and returns its code.
func (c *client) reply5() byte {
	c.t.Helper()
	head := readN(c.t, c.r, 4)
	size := 6
	if head[3] == 4 {
		size = 18
	}
	readN(c.t, c.r, size)
	if head[0] != 5 {
		c.t.Fatalf("version %d", head[0])
	}
	return head[1]
}

func portOf(t testing.TB, addr string) uint16 {
	t.Helper()
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port()
}

func echoServer(t *testing.T) (host string, port uint16) {
	t.Helper()
	h, p := serve(t, echo)
	return h, portOf(t, net.JoinHostPort(h, p))
}

func (c *client) wantEcho() {
	c.t.Helper()
	c.send("over and back")
	c.wantBytes("over and back")
}

// Offers of methods against methods of the service (R30, R31). An answer of
// 0xff ends the connection.
func TestSocksMethods(t *testing.T) {
	host, port := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\n"+
		"auth none\nsocks -pPORT\nauth iponly\nsocks -pPORT\nauth useronly\nsocks -pPORT\nauth strong\nsocks -pPORT\n"+
		"auth iponly strong\nallow u\ndeny *\nsocks -pPORT\n"+
		"flush\nauth none\nsocks -pPORT -u2\nsocks -pPORT -u\nauth iponly strong\nsocks -pPORT -u\nauth strong\nsocks -pPORT -u\n")
	const none, iponly, useronly, strong, named, always, never, neverBoth, neverStrong = 0, 1, 2, 3, 4, 5, 6, 7, 8
	for _, test := range []struct {
		service    int
		offer      string
		method     byte
		user, pass string
		ok         bool
	}{
		{none, "\x00", 0, "", "", true},
		{none, "\x02", 2, "any", "thing", true},
		{none, "\x00\x02", 0, "", "", true},
		{none, "\x02\x00", 0, "", "", true},
		{none, "\x01\x03", 0xff, "", "", false},
		{none, "", 0xff, "", "", false},
		{iponly, "\x00", 0, "", "", true},
		{iponly, "\x02", 2, "any", "thing", true},
		{iponly, "\x00\x02", 0, "", "", true},
		{useronly, "\x00", 0xff, "", "", false},
		{useronly, "\x02", 2, "any", "thing", true},
		{useronly, "\x00\x02", 2, "any", "", true},
		{useronly, "\x02", 2, "", "", false},
		{strong, "\x00", 0xff, "", "", false},
		{strong, "\x00\x01", 0xff, "", "", false},
		{strong, "\x02", 2, "u", "pw", true},
		{strong, "\x00\x02", 2, "u", "pw", true},
		{strong, "\x00\x02", 2, "u", "wrong", false},
		{strong, "\x02", 2, "nobody", "pw", false},
		{strong, "\x02", 2, "u", "", false},
		{strong, "\x02", 2, "", "", false},
		{strong, "\x02", 2, strings.Repeat("u", 127), strings.Repeat("p", 127), false},
		{named, "\x00\x02", 2, "u", "pw", true},
		{named, "\x00", 0xff, "", "", false},
		{always, "\x00", 0xff, "", "", false},
		{always, "\x00\x02", 2, "any", "", true},
		{always, "\x02", 2, "", "", false},
		{never, "\x00\x02", 0, "", "", true},
		{never, "\x02", 0xff, "", "", false},
		{neverBoth, "\x00\x02", 0, "", "", true},
		{neverStrong, "\x00\x02", 0xff, "", "", false},
	} {
		t.Run(fmt.Sprintf("%d % x %s:%s", test.service, test.offer, test.user, test.pass), func(t *testing.T) {
			c := p.client(test.service)
			c.t = t
			defer c.Close()
			c.send("\x05" + string(rune(len(test.offer))) + test.offer)
			c.wantBytes("\x05" + string([]byte{test.method}))
			if test.method == 0xff {
				c.wantEnd()
				return
			}
			if test.method == 2 {
				c.send(userPass(test.user, test.pass))
				if !test.ok {
					c.wantBytes("\x01\x01")
					c.wantEnd()
					return
				}
				c.wantBytes("\x01\x00")
			}
			c.send(request5(1, host, port))
			if code := c.reply5(); code != 0 {
				t.Fatalf("reply %d", code)
			}
			c.wantEcho()
		})
	}
	for i := range p.addrs {
		p.waitOpen(i, 0)
	}
	// SOCKS 4 has a user id.
	for user, reply := range map[string]byte{"": 93, "me": 90} {
		c := p.client(always)
		c.send(request4(1, host, port, user))
		if got := readN(t, c.r, 8); got[1] != reply {
			t.Errorf("user id %q: reply % x", user, got)
		}
		c.Close()
	}
	if n := p.counter(strong, ipc.AuthFailed); n != 7 {
		t.Errorf("%d failed authentications", n)
	}
}

func TestSocks4(t *testing.T) {
	host, port := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord srv.example 127.0.0.1\nnsrecord gone.example 0.0.0.0\nusers u:CL:pw\n"+
		"auth iponly\nsocks -pPORT\nauth useronly\nallow me\nsocks -pPORT\nauth strong\nsocks -pPORT\n")
	for _, test := range []struct {
		service    int
		host, user string
		reply      byte
	}{
		{0, host, "", 90},
		{0, "srv.example", "", 90},
		{0, "SRV.Example.", "x", 90},
		{0, "gone.example", "", 91},
		{1, host, "me", 90},
		{1, "srv.example", "me", 90},
		{1, host, "you", 91},
		{1, host, "", 93},
		{2, host, "u", 93},
		{2, host, "", 93},
	} {
		c := p.client(test.service)
		c.send(request4(1, test.host, port, test.user))
		reply := readN(t, c.r, 8)
		if reply[0] != 0 || reply[1] != test.reply {
			t.Errorf("%v: reply % x", test, reply)
		}
		if test.reply == 90 {
			c.wantEcho()
		} else {
			c.wantEnd()
		}
		c.Close()
	}
	for i := range 3 {
		p.waitOpen(i, 0)
	}
}

func TestSocksReplies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer fillQueue(t, l)()
	p := startProxy(t, "internal 127.0.0.1\n"+shortTimeouts+"nsrecord gone.example 0.0.0.0\nnsrecord in.example 127.0.0.9\n"+
		"auth iponly\ndeny * * 127.0.0.9\ndeny * * *.bad.example\ndeny * * * 25\nallow * * * * CONNECT\nsocks -pPORT\nauth none\nsocks -pPORT\n")
	closed := uint16(freePort(t))
	for _, test := range []struct {
		name    string
		service int
		request string
		reply   byte
	}{
		{"refused", 0, request5(1, "127.0.0.1", closed), 5},
		{"times out", 0, request5(1, "127.0.0.1", portOf(t, l.Addr().String())), 6},
		{"denied address", 0, request5(1, "127.0.0.9", closed), 2},
		{"name of a denied address", 0, request5(1, "in.example", closed), 2},
		{"mapped denied address", 0, request5(1, "::ffff:127.0.0.9", closed), 2},
		{"denied name", 0, request5(1, "a.BAD.example.", closed), 2},
		{"denied port", 0, request5(1, "127.0.0.1", 25), 2},
		{"no such name", 0, request5(1, "gone.example", closed), 4},
		{"no name", 0, request5(1, "a b", closed), 4},
		{"port 0", 0, request5(1, "127.0.0.1", 0), 1},
		{"unknown command", 1, request5(9, "127.0.0.1", closed), 7},
		{"address type", 1, "\x05\x01\x00\x02\x00\x00\x00\x00\x00\x50", 8},
		{"version", 1, "\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := p.client(test.service)
			c.t = t
			defer c.Close()
			c.send("\x05\x01\x00")
			c.wantBytes("\x05\x00")
			c.send(test.request)
			if code := c.reply5(); code != test.reply {
				t.Errorf("reply %d, want %d", code, test.reply)
			}
			c.wantEnd()
		})
	}
	// What is not SOCKS at all gets no answer, and neither does silence.
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "\x06\x01\x00", "\x00"} {
		c := p.client(1)
		c.send(text)
		c.wantEnd()
		c.Close()
	}
	c := p.client(1)
	c.wantEnd()
	c.send("\x05\x01\x00")
	c.Close()
	// A bad version of the user/password negotiation.
	c = p.client(1)
	c.send("\x05\x01\x02")
	c.wantBytes("\x05\x02")
	c.send("\x05\x01a\x01b")
	c.wantBytes("\x01\x01")
	c.wantEnd()
	c.Close()
	p.waitOpen(0, 0)
	p.waitOpen(1, 0)
}

// The handshake in pieces of every size, with data right behind it.
func TestSocksSegments(t *testing.T) {
	host, port := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord srv.example "+host+"\nusers u:CL:pw\nauth strong\nsocks -pPORT\nauth none\nsocks -pPORT\n")
	early := strings.Repeat("early", 40000)
	for name, test := range map[string]struct {
		service          int
		handshake, reply string
	}{
		"5 with password": {0, "\x05\x01\x02" + userPass("u", "pw") + request5(1, "srv.example", port), "\x05\x02\x01\x00\x05\x00\x00\x01"},
		"5":               {1, "\x05\x01\x00" + request5(1, host, port), "\x05\x00\x05\x00\x00\x01"},
		"4":               {1, request4(1, host, port, "me"), "\x00\x5a"},
		"4a":              {1, request4(1, "srv.example", port, "me"), "\x00\x5a"},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprint(name, "/", piece), func(t *testing.T) {
				c := p.client(test.service)
				c.t = t
				defer c.Close()
				go func() {
					for b := []byte(test.handshake); len(b) > 0; {
						n := min(piece, len(b))
						if n == len(b) {
							// The last piece brings data of the tunnel.
							_, _ = c.Write(append(b, early...))
							_ = c.CloseWrite()
							return
						}
						_, _ = c.Write(b[:n])
						b = b[n:]
						time.Sleep(time.Millisecond)
					}
				}()
				c.wantBytes(test.reply)
				readN(t, c.r, 6)
				got, err := io.ReadAll(c.r)
				if err != nil || !bytes.Equal(got, []byte(early)) {
					t.Errorf("%d bytes of %d, %v", len(got), len(early), err)
				}
			})
		}
	}
	p.waitOpen(0, 0)
	p.waitOpen(1, 0)
}
