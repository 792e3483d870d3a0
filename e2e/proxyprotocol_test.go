package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dialFrom connects from another loopback address.
func dialFrom(t *testing.T, from string, p int) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// haproxy runs haproxy with the sections of a configuration.
func haproxy(t *testing.T, text string) {
	t.Helper()
	bin := need(t, "haproxy")
	conf := filepath.Join(t.TempDir(), "haproxy.cfg")
	text = "defaults\n\ttimeout connect 10s\n\ttimeout client 60s\n\ttimeout server 60s\n" + text
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	background(t, bin, "-db", "-q", "-f", conf)
}

// TestBehindHAProxy has haproxy in front, with either version of the header: the
// rules, the log and conns see its clients.
func TestBehindHAProxy(t *testing.T) {
	t.Parallel()
	need(t, "haproxy")
	echo := echoOrigin(t)
	ppm, front1, front2 := port(t), port(t), port(t)
	dir := t.TempDir()
	log, unix := filepath.Join(dir, "log"), filepath.Join(dir, "s")
	d := start(t, fmt.Sprintf(`
log %s
logformat "L%%E %%C %%i"
auth iponly
allow * 127.0.0.5
internal 127.0.0.1
tcppm -H %d 127.0.0.1 %d
tcppm -H -iunix:%s 1 127.0.0.1 %[3]d
`, log, ppm, echo, unix))
	haproxy(t, fmt.Sprintf(`
listen v1
	mode tcp
	bind 127.0.0.1:%d
	server s 127.0.0.1:%d send-proxy
listen v2
	mode tcp
	bind 127.0.0.1:%d
	server s unix@%s send-proxy-v2 proxy-v2-options unique-id,authority
`, front1, ppm, front2, unix))
	awaitPort(t, front1)
	awaitPort(t, front2)
	for _, front := range []int{front1, front2} {
		c := dialFrom(t, "127.0.0.5", front)
		mustPing(t, c)
		found := false
		for _, s := range d.conns() {
			found = found || s.Client == c.LocalAddr().String()
		}
		if !found {
			t.Errorf("%v is not in %v", c.LocalAddr(), d.conns())
		}
		c.Close()
		denied := dialFrom(t, "127.0.0.6", front)
		if err := ping(denied); err == nil {
			t.Error("a client that the list does not allow is served")
		}
		denied.Close()
	}
	eventually(t, patience, func() string {
		data, _ := os.ReadFile(log)
		for line, n := range map[string]int{"00000 127.0.0.5 127.0.0.1\n": 2, "00003 127.0.0.6 127.0.0.1\n": 2} {
			if got := strings.Count(string(data), line); got != n {
				return fmt.Sprintf("%d lines %q instead of %d in\n%s", got, line, n, data)
			}
		}
		return ""
	})
}

// TestInFrontOfServers has nginx and haproxy read the headers of tcppm.
func TestInFrontOfServers(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	need(t, "nginx")
	need(t, "haproxy")
	ngx, hap := port(t), port(t)
	startNginx(t, t.TempDir(), ngx, fmt.Sprintf("listen 127.0.0.1:%d proxy_protocol;\n"+
		`return 200 "$proxy_protocol_addr $proxy_protocol_server_addr $proxy_protocol_server_port";`, ngx))
	haproxy(t, fmt.Sprintf(`
frontend f
	mode http
	bind 127.0.0.1:%d accept-proxy
	http-request return status 200 content-type text/plain lf-string "%%[src] %%[dst] %%[dst_port]"
`, hap))
	awaitPort(t, hap)
	config := "internal 127.0.0.1\n"
	type mapping struct {
		port int
		what string
	}
	var mappings []mapping
	for what, target := range map[string]int{"nginx": ngx, "haproxy": hap} {
		for _, version := range []string{"1", "2"} {
			p := port(t)
			config += fmt.Sprintf("tcppm -Hout%s %d 127.0.0.1 %d\n", version, p, target)
			mappings = append(mappings, mapping{p, what + " version " + version})
		}
	}
	start(t, config)
	for _, m := range mappings {
		got := curl(t, "--interface", "127.0.0.7", fmt.Sprintf("http://127.0.0.1:%d/", m.port))
		if want := fmt.Sprintf("127.0.0.7 127.0.0.1 %d", m.port); got != want {
			t.Errorf("%s: %q, want %q", m.what, got, want)
		}
	}
}

// TestHeaderGarbage: clients without a header, with half of one, or from an
// address that is not believed, cost their session only.
func TestHeaderGarbage(t *testing.T) {
	t.Parallel()
	echo := echoOrigin(t)
	p, trusted := port(t), port(t)
	d := start(t, fmt.Sprintf("internal 127.0.0.1\ntimeouts 1 2\ntcppm -H %d 127.0.0.1 %d\ntcppm -H127.0.0.9 %d 127.0.0.1 %[2]d\n", p, echo, trusted))
	inputs := []string{"", "P", "PROXY TCP4 1.2.3.4", "GET / HTTP/1.1\r\n\r\n", "\r\n\r\n\x00\r\nQUIT\n\x21\x11",
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff", strings.Repeat("\x00", 5000)}
	var waiting []net.Conn
	for range 20 {
		for _, in := range inputs {
			c := dial(t, p)
			_, _ = io.WriteString(c, in)
			waiting = append(waiting, c)
		}
	}
	c := dial(t, p)
	_, _ = io.WriteString(c, "PROXY UNKNOWN\r\n")
	mustPing(t, c)
	c.Close()
	for _, c := range waiting {
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatalf("read %d, %v", n, err)
		}
		c.Close()
	}
	bad := dial(t, trusted)
	_, _ = io.WriteString(bad, "PROXY UNKNOWN\r\n")
	if err := pong(bad); err == nil {
		t.Error("a header of anybody is believed")
	}
	bad.Close()
	good := dialFrom(t, "127.0.0.9", trusted)
	_, _ = io.WriteString(good, "PROXY TCP6 2001:db8::1 ::1 1 2\r\n")
	mustPing(t, good)
	if list := d.conns(); len(list) != 1 || list[0].Client != "[2001:db8::1]:1" {
		t.Errorf("sessions %+v", list)
	}
	good.Close()
}
