package worker

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// waitLines waits until a log has n lines and returns them.
func waitLines(t *testing.T, path string, n int) []string {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if len(lines) >= n && len(data) > 0 {
			return lines
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d lines, want %d: %q", len(lines), n, lines)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// One line per request with code, user, target, bytes and text, and never a
// password.
func TestLogLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	response := ok("hello")
	o := startOrigin(t, func(c *net.TCPConn, r *bufio.Reader, head string, _ int) bool {
		if strings.HasPrefix(head, "POST") {
			_, _ = io.CopyN(io.Discard, r, 5)
		}
		_, err := io.WriteString(c, response)
		return err == nil
	})
	echoHost, echoPort := echoServer(t)
	_, port, _ := net.SplitHostPort(o.addr)
	closed := freePort(t)
	p := startProxy(t, "internal 127.0.0.1\nlog "+path+"\nlogformat \"L%N %E %U %n:%q %R %O %I %T\"\nnsrecord srv.example 127.0.0.1\nusers u:CL:s3cret\n"+
		"auth strong\ndeny * * 127.0.0.9\nallow *\nproxy -pPORT -a\nsocks -pPORT\n")
	basic := func(user, pass string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass)) + "\r\n"
	}
	good := basic("u", "s3cret")
	var want []string
	c := p.client(0)
	ask := func(method, url, fields, body string, status int, line string) {
		t.Helper()
		c.send("%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n%s", method, url, fields, body)
		resp := c.want(method, status, "")
		want = append(want, line)
		if resp.Close {
			c.Close()
			c = p.client(0)
		}
	}
	in := len(response)
	sent := func(head string, body int) int {
		return len(strings.ReplaceAll(head, "PORT", port)) + len("\r\n") + body
	}
	getOut := sent("GET /a HTTP/1.1\r\nHost: srv.example:PORT\r\n", 0)
	url := "http://srv.example:" + port
	for range 2 {
		ask("GET", url+"/a", good, "", 200, fmt.Sprintf("PROXY 00000 u srv.example:%s 127.0.0.1 %d %d GET %s/a HTTP/1.1", port, getOut, in, url))
	}
	postOut := sent("POST /a HTTP/1.1\r\nHost: srv.example:PORT\r\nContent-Length: 5\r\n", 5)
	ask("POST", url+"/a", good+"Content-Length: 5\r\n", "12345", 200, fmt.Sprintf("PROXY 00000 u srv.example:%s 127.0.0.1 %d %d POST %s/a HTTP/1.1", port, postOut, in, url))
	ask("GET", url+"/", "", "", 407, fmt.Sprintf("PROXY 00004 - srv.example:%s 0.0.0.0 0 0 GET %s/ HTTP/1.1", port, url))
	ask("GET", url+"/", basic("u", "wr0ng"), "", 407, fmt.Sprintf("PROXY 00006 u srv.example:%s 0.0.0.0 0 0 GET %s/ HTTP/1.1", port, url))
	ask("GET", url+"/", basic("x", "wr0ng"), "", 407, fmt.Sprintf("PROXY 00005 x srv.example:%s 0.0.0.0 0 0 GET %s/ HTTP/1.1", port, url))
	ask("GET", "http://127.0.0.9/", good, "", 403, "PROXY 00001 u [127.0.0.9]:80 0.0.0.0 0 0 GET http://127.0.0.9/ HTTP/1.1")
	ask("GET", fmt.Sprintf("http://127.0.0.1:%d/", closed), good, "", 502, fmt.Sprintf("PROXY 00013 u [127.0.0.1]:%d 0.0.0.0 0 0 GET http://127.0.0.1:%d/ HTTP/1.1", closed, closed))
	ask("GET", "http://u:s3cret@srv.example/", good, "", 400, "PROXY 00500 - [0.0.0.0]:0 0.0.0.0 0 0 GET http://srv.example/ HTTP/1.1")
	ask("CONNECT", "u:s3cret@srv.example:1", good, "", 400, "PROXY 00500 - [0.0.0.0]:0 0.0.0.0 0 0 CONNECT srv.example:1 HTTP/1.1")
	ask("GET", "/", good, "", 400, "PROXY 00500 - x:80 0.0.0.0 0 0 GET / HTTP/1.1")
	c.send("CONNECT %s:%d HTTP/1.1\r\n%s\r\n", echoHost, echoPort, good)
	c.want("CONNECT", 200, "")
	c.wantEcho()
	c.Close()
	want = append(want, fmt.Sprintf("PROXY 00000 u [127.0.0.1]:%d 127.0.0.1 13 13 CONNECT 127.0.0.1:%d HTTP/1.1", echoPort, echoPort))
	p.waitOpen(0, 0)

	s := p.client(1)
	s.send("\x05\x01\x02" + userPass("u", "s3cret") + request5(1, echoHost, echoPort))
	readN(t, s.r, 4)
	s.reply5()
	s.wantEcho()
	s.Close()
	want = append(want, fmt.Sprintf("SOCKS 00000 u [127.0.0.1]:%d 127.0.0.1 13 13 CONNECT 127.0.0.1:%d", echoPort, echoPort))
	p.waitOpen(1, 0)
	s = p.client(1)
	s.send("\x05\x01\x02" + userPass("u\nPROXY 000 forged", "wr0ng"))
	s.wantBytes("\x05\x02\x01\x01")
	s.wantEnd()
	s.Close()
	p.waitOpen(1, 0)

	got := waitLines(t, path, len(want)+1)
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Errorf("line %d:\ngot  %q\nwant %q", i, got[min(i, len(got)-1)], line)
		}
	}
	if len(got) != len(want)+1 {
		t.Errorf("%d lines, want %d: %q", len(got), len(want)+1, got)
	}
	for _, secret := range []string{"s3cret", "wr0ng", base64.StdEncoding.EncodeToString([]byte("u:s3cret"))} {
		if i := slices.IndexFunc(got, func(s string) bool { return strings.Contains(s, secret) }); i >= 0 {
			t.Errorf("password in the log: %q", got[i])
		}
	}
}

func TestTargetText(t *testing.T) {
	for in, want := range map[string]string{
		"http://h/p?q=a@b":          "http://h/p?q=a@b",
		"http://u:p@h/":             "http://h/",
		"http://u:p@x@h:1?a//b@c":   "http://h:1?a//b@c",
		"u:p@h:443":                 "h:443",
		"/path?x=http://u:p@h":      "/path?x=http://h",
		"ftp://u@h":                 "ftp://h",
		"*":                         "*",
		"h:443":                     "h:443",
		"mailto:a@b":                "b",
		"http://h/p@q":              "http://h/p@q",
		"//u:p@h/a":                 "//h/a",
		"http:u:p@h/":               "h/",
		"":                          "",
		"http://u:p@h/?r=http://a@": "http://h/?r=http://a@",
		"http:///u:p@h/":            "http:///h/",
		"http:/u:p@h/":              "http:/h/",
		`http:\\u:p@h/`:             `http:\\h/`,
		"http://u:p/w@h/":           "http://h/",
		"http://u:p?w@h/":           "http://h/",
		"http://u:p#w@h/":           "http://h/",
		"u:p/w@h:443":               "h:443",
		"ftp://h/p@q":               "ftp://h/p@q",
		"/p@q":                      "/p@q",
		"u:12/w@h:443":              "h:443",
		"u:12?w@h:443":              "h:443",
		"u:12#w@h:443":              "h:443",
		"http://u:12#w@h/":          "http://h/",
		"http://h:80/p@q":           "http://h:80/p@q",
		"http://u:p%40h/":           "http:///",
		"http://u:p@q%40h/a":        "http:///a",
		"u:p%40h:443":               "",
		"http://h/%40":              "http://h/%40",
		"http://h/a@b%40":           "http://h/a@b%40",
		"/a//b%40":                  "/a//b%40",
	} {
		if got := string(appendTargetText(nil, []byte("GET"), []byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Nothing of the userinfo of a CONNECT request is logged, wherever its host seems
// to end, nor of a request line that cannot be told apart.
func TestRefusedUserinfo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, "log "+path+"\nlogformat \"L%T\"\ninternal 127.0.0.1\nproxy -pPORT\n")
	lines := []string{
		"CONNECT u:12/s3cret@h:443 HTTP/1.1", "CONNECT s3cret:12/w@h:443 HTTP/1.1", "CONNECT http://s3cret:12/w@h:443 HTTP/1.1",
		"CONNECT u:12?s3cret@h:443 HTTP/1.1", "CONNECT u:12#s3cret@h:443 HTTP/1.1", "CONNECT u:s3cret%40h:443 HTTP/1.1",
		"CONNECT u:s3 cret@h:443 HTTP/1.1", "CONNECT u:s3cret cret@h:443 HTTP/1.1",
		"GET http://u:s3cret cret@h/ HTTP/1.1", "GET http://u:s3cret%40h/ HTTP/1.1", "GET http://u:12#s3cret@h/ HTTP/1.1",
		"GET http://u:s3cret@h/ HTTP/2.0", "GET ftp://u:s3cret@h/ HTTP/1.1", "GET http://u:s3cret HTTP/1.1@h/ HTTP/1.1",
	}
	for _, line := range lines {
		c := p.client(0)
		c.send(line + "\r\nHost: h\r\n\r\n")
		resp, body := c.answer("GET")
		if resp.StatusCode < 400 || !resp.Close || strings.Contains(body, "s3cret") {
			t.Errorf("%s: %d, close %v, %q", line, resp.StatusCode, resp.Close, body)
		}
	}
	for _, line := range waitLines(t, path, len(lines)) {
		if strings.Contains(line, "s3c") {
			t.Errorf("logged: %q", line)
		}
	}
}

// Whatever the target, no userinfo of an authority gets into the log.
func FuzzTargetText(f *testing.F) {
	for _, s := range []string{"http://u:p@h/", "u:p@h:1", "//@@/", "http://h?@", "a//b@c//d@e", "a:/u@/b@c", "http://u:p/w@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if got := string(appendTargetText(nil, []byte("CONNECT"), []byte(target))); strings.Contains(got, "@") {
			t.Fatalf("%q became %q", target, got)
		}
		got := string(appendTargetText([]byte("GET "), []byte("GET"), []byte(target)))
		rest, found := strings.CutPrefix(got, "GET ")
		if !found || len(rest) > len(target) {
			t.Fatalf("%q became %q", target, got)
		}
		_, authority, found := strings.Cut(rest, "//")
		if !found {
			authority = rest
		}
		if i := strings.IndexAny(authority, "/?#"); i >= 0 {
			authority = authority[:i]
		}
		if strings.Contains(authority, "@") {
			t.Fatalf("%q became %q", target, got)
		}
	})
}
