package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
)

// What must not be forwarded any further is answered here, to who may ask.
func TestFinalRecipient(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth strong\ndeny * * 127.0.0.9\nallow *\nproxy -pPORT\n")
	c := p.client(0)
	fields := "Host: x\r\nMax-Forwards: 0\r\nX-A: b\r\nCookie: secret\r\nAuthorization: secret\r\n"
	c.send("TRACE http://%s/a HTTP/1.1\r\n%s\r\n", o.addr, fields)
	c.want("TRACE", 407, "")
	c.send("TRACE http://127.0.0.9/a HTTP/1.1\r\n%s%s\r\n", fields, goodAuth)
	c.want("TRACE", 403, "")
	c.send("TRACE http://%s/a HTTP/1.1\r\n%s%s\r\n", o.addr, fields, goodAuth)
	resp := c.want("TRACE", 200, fmt.Sprintf("TRACE http://%s/a HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\nX-A: b\r\n\r\n", o.addr))
	if got := resp.Header.Get("Content-Type"); got != "message/http" {
		t.Errorf("Content-Type %q", got)
	}
	c.send("OPTIONS http://%s HTTP/1.1\r\n%s%sContent-Length: 3\r\n\r\nabc", o.addr, fields, goodAuth)
	if resp := c.want("OPTIONS", 200, ""); resp.Header.Get("Allow") == "" || resp.ContentLength != 0 {
		t.Errorf("%v", resp.Header)
	}
	if n := o.requests(); n != 0 {
		t.Errorf("the origin got %d requests", n)
	}
	c.send("TRACE http://%s/a HTTP/1.1\r\nHost: x\r\nMax-Forwards: 1\r\n%s\r\n", o.addr, goodAuth)
	c.want("TRACE", 200, "hello")
	if got := o.last(); !strings.Contains(got, "\r\nMax-Forwards: 0\r\n") || strings.Contains(got, "Authorization") {
		t.Errorf("%q", got)
	}
}

// What -a, -a1, -a2 and no option tell the server.
func TestAnonymity(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nproxy -pPORT\nproxy -pPORT -a\nproxy -pPORT -a1\nproxy -pPORT -a2\n")
	for i, name := range []string{"", "-a", "-a1", "-a2"} {
		c := p.client(i)
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.1.2.3\r\nForwarded: for=10.1.2.3\r\nVia: 1.1 before\r\nX-Kept: y\r\n\r\n", o.addr)
		c.want("GET", 200, "hello")
		via := viaName(p.cfg.Services[i].ID)
		received := "X-Forwarded-For: 10.1.2.3\r\nForwarded: for=10.1.2.3\r\nVia: 1.1 before\r\n"
		start := "GET / HTTP/1.1\r\nHost: " + o.addr + "\r\n"
		got := o.last()
		switch name {
		case "":
			want := start + received + "X-Kept: y\r\nVia: 1.1 " + via + "\r\nForwarded: for=\"" + c.LocalAddr().String() + "\";by=_" + via + "\r\n\r\n"
			if got != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		case "-a":
			if want := start + "X-Kept: y\r\n\r\n"; got != want {
				t.Errorf("-a: got %q\nwant %q", got, want)
			}
		case "-a1":
			_, addr, _ := strings.Cut(strings.TrimSuffix(got, "\r\n\r\n"), "\r\nX-Forwarded-For: ")
			if a, err := netip.ParseAddr(addr); err != nil || !a.IsGlobalUnicast() || a.IsPrivate() || strings.Contains(got, "10.1.2.3") || !strings.Contains(got, "\r\nVia: 1.1 "+via+"\r\n") {
				t.Errorf("-a1: got %q", got)
			}
		case "-a2":
			if want := start + received + "X-Kept: y\r\nVia: 1.1 " + via + "\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"; got != want {
				t.Errorf("-a2: got %q\nwant %q", got, want)
			}
		}
	}
}

// -u never asks for a password, -u2 always for a name.
func TestAskUser(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	p := startProxy(t, "internal 127.0.0.1\nusers u:CL:pw\nauth none\nproxy -pPORT -u2\nauth strong\nproxy -pPORT -u\n")
	for _, test := range []struct {
		service int
		auth    string
		status  int
	}{{0, "", 407}, {0, "Proxy-Authorization: Basic ????\r\n", 407}, {0, goodAuth, 200}, {1, "", 403}, {1, "Proxy-Authorization: Basic dTp4\r\n", 403}, {1, goodAuth, 200}} {
		c := p.client(test.service)
		c.send("GET http://%s/ HTTP/1.1\r\nHost: x\r\n%s\r\n", o.addr, test.auth)
		if resp := c.want("GET", test.status, ""); resp.Close || (resp.Header.Get("Proxy-Authenticate") != "") != (test.status == 407) {
			t.Errorf("service %d, %q: close %v, %v", test.service, test.auth, resp.Close, resp.Header)
		}
	}
}

// Errors come as the client wants them, with the reason, and never with
// anything of the request.
func TestErrorsByAccept(t *testing.T) {
	p := startProxy(t, "internal 127.0.0.1\nnsrecord no.example 0.0.0.0\nusers u:CL:pw\nauth iponly strong\ndeny * * 127.0.0.9\nallow * * no.example\nallow u\nproxy -pPORT\n")
	closed := fmt.Sprint("127.0.0.1:", freePort(t))
	for _, test := range []struct {
		request string
		status  int
		reason  string
	}{
		{"GET http://127.0.0.9/CANARY HTTP/1.1\r\nHost: x\r\n" + goodAuth, 403, "a rule forbids it"},
		{"GET http://127.0.0.8/CANARY HTTP/1.1\r\nHost: x\r\n", 407, "no user name has been given"},
		{"GET http://127.0.0.8/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic Q0FOQVJZOng=\r\n", 407, "user name or password is wrong"},
		{"GET http://127.0.0.8/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic dTpDQU5BUlk=\r\n", 407, "user name or password is wrong"},
		{"CONNECT no.example:1 HTTP/1.1\r\nHost: CANARY\r\n", 502, "the host has not been found"},
		{"GET http://" + closed + "/CANARY HTTP/1.1\r\nHost: x\r\n" + goodAuth, 502, "the server has refused the connection"},
		{"GET ftp://x/CANARY HTTP/1.1\r\nHost: x\r\n", 501, "URI scheme not supported"},
		{"GET /CANARY HTTP/1.1\r\nHost: x\r\n", 400, "the request line has a path only: a proxy needs the whole URL"},
		{"GET http://u:CANARY@x/ HTTP/1.1\r\nHost: x\r\n", 400, "user information in the request target"},
		{"GET http://x/ HTTP/1.1\r\nHost: x\r\nACCEPT\r\nCANARY : x\r\n", 400, "blank before the colon of a field"},
		{" http://CANARY/ HTTP/1.1\r\nHost: x\r\n", 400, "malformed request line"},
	} {
		for accept, contentType := range map[string]string{"*/*": "text/html; charset=utf-8", "application/json": "application/json", "text/plain": "text/plain; charset=utf-8"} {
			request := test.request
			if strings.Contains(request, "ACCEPT") {
				request = strings.Replace(request, "ACCEPT", "Accept: "+accept, 1)
			} else {
				request += "Accept: " + accept + "\r\n"
			}
			c := p.client(0)
			c.send("%s\r\n", request)
			c.CloseWrite()
			answer, _ := io.ReadAll(c.r)
			head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
			if !strings.HasPrefix(head, fmt.Sprintf("HTTP/1.1 %d ", test.status)) || !strings.Contains(head, "Content-Type: "+contentType) ||
				!strings.Contains(body, test.reason) || strings.Contains(string(answer), "CANARY") {
				t.Errorf("%q, Accept %s: %q", test.request, accept, answer)
			}
			if contentType == "application/json" && !json.Valid([]byte(body)) {
				t.Errorf("%q", body)
			}
		}
	}
}
