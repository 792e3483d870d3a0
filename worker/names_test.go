package worker

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Rules about names, addresses, ports and operations, for HTTP; a name that
// resolves into a forbidden network is refused like its address (R58).
//
// Without a name the client is asked for one, as strong may allow more.
func TestAccessOfHTTP(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	_, port, _ := net.SplitHostPort(o.addr)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord good.example 127.0.0.1\nnsrecord inside.example 127.0.0.7\n"+
		"nsrecord both.example 127.0.0.7\nnsrecord both.example 127.0.0.1\nnsrecord a.bad.example 127.0.0.1\nnsrecord notbad.example 127.0.0.1\n"+
		"users u:CL:pw\nauth iponly strong\ndeny * * 127.0.0.7\ndeny * * *.bad.example\ndeny * * * 1-79\nallow u\nallow * * * * HTTP_GET,HTTP_CONNECT\nproxy -pPORT\n")
	user := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("u:pw")) + "\r\n"
	for _, test := range []struct {
		method, host, fields string
		status               int
	}{
		{"GET", "good.example:" + port, "", 200},
		{"GET", "GOOD.example.:" + port, "", 200},
		{"GET", "inside.example:" + port, "", 407},
		{"GET", "127.0.0.7:" + port, "", 407},
		{"GET", "[::127.0.0.7]:" + port, "", 407},
		{"GET", "[::ffff:127.0.0.7]:" + port, "", 407},
		{"GET", "a.bad.example:" + port, "", 407},
		{"GET", "A.BAD.example.:" + port, "", 407},
		{"GET", "notbad.example:" + port, "", 200},
		{"GET", "both.example:" + port, "", 200},
		{"GET", "good.example:25", "", 407},
		{"POST", "good.example:" + port, "", 407},
		{"POST", "good.example:" + port, user, 200},
		{"POST", "inside.example:" + port, user, 403},
		{"CONNECT", "inside.example:" + port, "", 407},
		{"CONNECT", "a.bad.example:" + port, "", 407},
		{"CONNECT", "good.example:25", "", 407},
		{"CONNECT", "good.example:" + port, "", 200},
		{"GET", "a.bad.example:" + port, user, 403},
		{"GET", "127.0.0.7:" + port, user, 403},
		{"CONNECT", "inside.example:" + port, user, 403},
		{"CONNECT", "good.example:25", user, 403},
	} {
		for range 2 {
			c := p.client(0)
			if test.method == "CONNECT" {
				c.send("CONNECT %s HTTP/1.1\r\nHost: x\r\n%s\r\n", test.host, test.fields)
			} else {
				c.send("%s http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", test.method, test.host, test.fields)
			}
			if resp, _ := c.answer(test.method); resp.StatusCode != test.status {
				t.Errorf("%s %s: %d, want %d", test.method, test.host, resp.StatusCode, test.status)
			}
			c.Close()
		}
	}
	p.waitOpen(0, 0)
}

// A pooled connection is decided about anew for every request: one that an
// allowed request has left is no way round the rules.
func TestPooledConnectionIsChecked(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	_, port, _ := net.SplitHostPort(o.addr)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord srv.example 127.0.0.1\nauth iponly\ndeny * * 127.0.0.1 * HTTP_POST\nallow *\nproxy -pPORT\n")
	c := p.client(0)
	for range 3 {
		c.send("GET http://srv.example:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", port)
		c.want("GET", 200, "hello")
		c.send("POST http://srv.example:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", port)
		c.want("POST", 403, "")
	}
	if strings.Contains(o.last(), "POST") || o.requests() != 3 {
		t.Errorf("%d requests, the last %q", o.requests(), o.last())
	}
}

// Several sessions that ask for the same unknown name at once, some of which
// go away meanwhile, are all answered by one lookup that fails.
func TestNamesOfVanishingClients(t *testing.T) {
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dns.Close()
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntimeouts 1 5 30 60 180 1800 1 60 15 5 5\nnserver %s\nproxy -pPORT\nsocks -pPORT\n", dns.LocalAddr()))
	var rest []*client
	for i := range 40 {
		c := p.client(i % 2)
		if i%2 == 0 {
			c.send("GET http://slow.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
		} else {
			c.send("\x05\x01\x00" + request5(1, "slow.example", 80))
		}
		if i%4 < 2 {
			_ = c.SetLinger(0)
			c.Close()
		} else {
			rest = append(rest, c)
		}
	}
	for i, c := range rest {
		if i%2 == 0 {
			c.want("GET", 502, "")
		} else {
			c.wantBytes("\x05\x00")
			if code := c.reply5(); code != 4 {
				t.Errorf("reply %d", code)
			}
		}
		c.Close()
	}
	p.waitOpen(0, 0)
	p.waitOpen(1, 0)
}

// Those who come and go, as the destinations of an association do, leave nothing
// behind in lookups and in the queue.
func TestNamesForgetWhoLeaves(t *testing.T) {
	n := &names{w: &Worker{}, waits: map[nameKey]*nameWait{}, byClient: map[netip.Addr]int{}}
	n.running = n.limit()
	client, stays, goes := netip.MustParseAddr("192.0.2.1"), &destination{}, &destination{}
	kept := n.wait(nameKey{name: "kept.example"}, client, stays)
	for i := range 1000 {
		n.wait(nameKey{name: "kept.example"}, client, goes).leave(goes)
		n.wait(nameKey{name: fmt.Sprintf("n%d.example", i)}, client, goes).leave(goes)
	}
	if len(kept.waiting) != 1 || len(n.queue) > 2 || len(n.waits) > 2 {
		t.Errorf("%d wait for one name, %d lookups are queued, %d known", len(kept.waiting), len(n.queue), len(n.waits))
	}
}
