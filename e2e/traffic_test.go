package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// route is a way for curl to reach an origin through a daemon.
type route struct {
	name string
	args []string
	tls  bool
	host string // the origin's host in the URL
	port int    // in the URL; 0 is the origin's
}

// routes runs a daemon with every service and returns the ways through it.
// The name origin.test is known to the daemon alone.
func routes(t *testing.T, plain *origin) []route {
	t.Helper()
	proxy, socks, ppm := port(t), port(t), port(t)
	start(t, fmt.Sprintf(`
auth none
internal 127.0.0.1
nsrecord origin.test 127.0.0.1
proxy -p%d
socks -p%d
tcppm %d 127.0.0.1 %d
`, proxy, socks, ppm, plain.port))
	viaProxy := []string{"-x", fmt.Sprintf("http://127.0.0.1:%d", proxy)}
	at := fmt.Sprintf("127.0.0.1:%d", socks)
	const ip, name = "127.0.0.1", "origin.test"
	return []route{
		{name: "http", args: viaProxy, host: name},
		{name: "connect", args: append(viaProxy[:2:2], "-p"), host: name},
		{name: "https", args: viaProxy, tls: true, host: ip},
		{name: "socks4", args: []string{"--socks4", at}, host: ip},
		{name: "socks4a", args: []string{"--socks4a", at}, host: name},
		{name: "socks5", args: []string{"--socks5", at}, host: ip},
		{name: "socks5-hostname", args: []string{"--socks5-hostname", at}, host: name},
		{name: "tcppm", host: ip, port: ppm},
	}
}

func (r route) url(plain, secure *origin, path string) []string {
	if r.tls {
		return append(r.args[:len(r.args):len(r.args)], "--cacert", secure.cert,
			fmt.Sprintf("https://%s:%d%s", r.host, secure.port, path))
	}
	p := plain.port
	if r.port != 0 {
		p = r.port
	}
	return append(r.args[:len(r.args):len(r.args)], fmt.Sprintf("http://%s:%d%s", r.host, p, path))
}

// TestRoutes moves small and middling amounts over every route that curl
// knows, in both directions.
func TestRoutes(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	for _, r := range routes(t, plain) {
		t.Run(r.name, func(t *testing.T) {
			for _, size := range []int64{0, 1, 1000, 65536, 20<<20 + 17} {
				download(t, size, r.url(plain, secure, fmt.Sprintf("/bytes/%d", size))...)
			}
			for _, size := range []int64{1, 1000, 20<<20 + 17} {
				upload(t, size, r.url(plain, secure, "/")...)
			}
		})
	}
}

// TestGiB moves 1 GiB (64 MiB with -short) each way through each service.
func TestGiB(t *testing.T) {
	need(t, "curl")
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	plain := newOrigin(t, false)
	for _, r := range routes(t, plain) {
		switch r.name {
		case "http", "connect", "socks5", "tcppm":
		default:
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			download(t, size, r.url(plain, nil, fmt.Sprintf("/bytes/%d", size))...)
			upload(t, size, r.url(plain, nil, "/")...)
		})
	}
}

// TestLogin asks for user and password over each protocol that has them.
func TestLogin(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	o := newOrigin(t, false)
	proxy, socks := port(t), port(t)
	d := start(t, fmt.Sprintf(`
users alice:CL:wonderland "bob:CL:with ""quotes"" and blanks"
auth strong
allow alice
deny bob
internal 127.0.0.1
proxy -p%d
socks -p%d
`, proxy, socks))
	url := fmt.Sprintf("http://127.0.0.1:%d/", o.port)
	via := func(scheme, user string) []string {
		p := proxy
		if scheme != "http" {
			p = socks
		}
		return []string{"-x", fmt.Sprintf("%s://%s127.0.0.1:%d", scheme, user, p)}
	}
	for _, tunnel := range [][]string{nil, {"-p"}} {
		for _, c := range []struct {
			user, status string
		}{
			{"alice:wonderland@", "200"},
			{"alice:wrong@", "407"},
			{"nobody:wonderland@", "407"},
			{"bob:with%20%22quotes%22%20and%20blanks@", "403"},
			{"", "407"},
		} {
			args := append(append(via("http", c.user), tunnel...), "-w", "%{http_code} %{http_connect}", "-o", "/dev/null", url)
			out, _ := curlCmd(args...).Output()
			want := c.status + " 000"
			if tunnel != nil {
				want = "000 " + c.status
			}
			if tunnel != nil && c.status == "200" {
				want = "200 200"
			}
			if string(out) != want {
				t.Errorf("http %v %q: %s instead of %s", tunnel, c.user, out, want)
			}
		}
	}
	for _, c := range []struct {
		scheme, user string
		code         int
	}{
		{"socks5", "alice:wonderland@", 0},
		{"socks5h", "alice:wonderland@", 0},
		{"socks5", "alice:wrong@", 97},
		{"socks5", "", 97},
		{"socks5", "bob:with%20%22quotes%22%20and%20blanks@", 97},
		{"socks4", "alice@", 97}, // SOCKS 4 has no password
	} {
		if _, code := curlStatus(append(via(c.scheme, c.user), url)...); code != c.code {
			t.Errorf("%s %q: curl ends with %d instead of %d", c.scheme, c.user, code, c.code)
		}
	}
	if n := d.stats().Total["auth_failed"]; n == 0 {
		t.Error("no failed login was counted")
	}
	if n := d.stats().Total["denied"]; n == 0 {
		t.Error("no denial was counted")
	}
	if strings.Contains(d.out.String(), "wonderland") {
		t.Error("a password was printed")
	}
}

// TestKeepAlive sends requests for two origins over one connection and expects
// that the connections to the origins are used again.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	a, b := newOrigin(t, false), newOrigin(t, false)
	proxy := port(t)
	start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	c := dial(t, proxy)
	in := bufio.NewReader(c)
	const rounds = 20
	for range rounds {
		for _, o := range []*origin{a, b} {
			fmt.Fprintf(c, "GET %s/bytes/5000 HTTP/1.1\r\nHost: %s\r\n\r\n", o.URL, o.Listener.Addr())
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || len(body) != 5000 || resp.StatusCode != 200 {
				t.Fatalf("%s: %d bytes, %v", resp.Status, len(body), err)
			}
		}
	}
	for _, o := range []*origin{a, b} {
		if n := o.conns.Load(); n != 1 {
			t.Errorf("%d requests took %d connections to the origin", rounds, n)
		}
	}
}

// TestPipelining sends many requests at once.
func TestPipelining(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, false)
	proxy := port(t)
	start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	c := dial(t, proxy)
	const n = 50
	var requests bytes.Buffer
	for i := range n {
		fmt.Fprintf(&requests, "GET %s/bytes/%d HTTP/1.1\r\nHost: x\r\n\r\n", o.URL, i*100)
	}
	if _, err := c.Write(requests.Bytes()); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || len(body) != i*100 {
			t.Fatalf("answer %d: %d bytes, %v", i, len(body), err)
		}
	}
}

// TestHalfClose sends a FIN before the answer comes.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	digest := tcpOrigin(t, func(c net.Conn) {
		h := sha256.New()
		_, _ = io.Copy(h, c)
		_, _ = io.WriteString(c, sum(h))
	})
	ppm, proxy := port(t), port(t)
	start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nproxy -p%d\n", ppm, digest, proxy))
	for name, c := range map[string]net.Conn{"tcppm": dial(t, ppm), "connect": connectVia(t, proxy, digest)} {
		const size = 5<<20 + 3
		if err := writePattern(c, size); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != patternSum(size) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestNetcat drives tcppm with nc.
func TestNetcat(t *testing.T) {
	t.Parallel()
	nc := need(t, "nc")
	echo, ppm := echoOrigin(t), port(t)
	start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	cmd := exec.Command(nc, "-N", "127.0.0.1", fmt.Sprint(ppm))
	cmd.Stdin = strings.NewReader("over the wire\n")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "over the wire\n" {
		t.Fatalf("%q, %v", out, err)
	}
}

// TestUnixSockets maps a Unix socket to a port and a port to a Unix socket.
func TestUnixSockets(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := newDaemon(t, "")
	path := d.dir + "/echo.sock"
	d.write(fmt.Sprintf("auth none\ntcppm -iunix:%s 1 127.0.0.1 %d\ninternal 127.0.0.1\ntcppm %d unix:%s 0\n", path, echo, ppm, path))
	d.launch()
	d.await()
	mustPing(t, dial(t, ppm))
	if n := d.stats().Total["accepted"]; n != 2 {
		t.Errorf("%d sessions instead of 2", n)
	}
}

// TestRefusals checks what clients are told when there is no server.
func TestRefusals(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	closed := port(t)
	proxy, socks := port(t), port(t)
	d := start(t, fmt.Sprintf(`
nsrecord nowhere.test 0.0.0.0
auth iponly
deny * * * 25
allow *
internal 127.0.0.1
proxy -p%d
socks -p%d
`, proxy, socks))
	via := []string{"-x", fmt.Sprintf("http://127.0.0.1:%d", proxy)}
	for url, want := range map[string]string{
		fmt.Sprintf("http://127.0.0.1:%d/", closed): "502",
		"http://nowhere.test/":                      "502",
		"http://127.0.0.1:25/":                      "403",
	} {
		if status, _ := curlStatus(append(via, url)...); status != want {
			t.Errorf("%s: %s instead of %s", url, status, want)
		}
		if _, code := curlStatus("--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socks), url); code != 97 {
			t.Errorf("SOCKS 5 to %s: curl ends with %d", url, code)
		}
	}
	total := d.stats().Total
	for _, counter := range []string{"connect_failed", "name_failed", "denied"} {
		if total[counter] != 2 {
			t.Errorf("%s is %d instead of 2", counter, total[counter])
		}
	}
}
