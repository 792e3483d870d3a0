package worker

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Each protocol is told by its first byte, in pieces and all at once, and is
// served under the same rules as by its own service.
func TestAuto(t *testing.T) {
	o := startOrigin(t, say(ok("hello"), true))
	echoHost, echoPort := echoServer(t)
	port := tlsEcho(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+fmt.Sprintf("auto -pPORT -P%s\n", port))
	var want []string
	for _, n := range []int{1, 100000} {
		c := p.client(0)
		write(t, pieces{c, n}, fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", o.addr, o.addr))
		c.want("GET", 200, "hello")
		c.Close()

		c = p.client(0)
		write(t, pieces{c, n}, fmt.Sprintf("\r\nCONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\nearly", echoHost, echoPort))
		c.want("CONNECT", 200, "")
		c.wantBytes("early")
		c.Close()

		c = p.client(0)
		write(t, pieces{c, n}, "\x05\x01\x00")
		c.wantBytes("\x05\x00")
		write(t, pieces{c, n}, request5(1, echoHost, echoPort)+"early")
		readN(t, c.r, 10)
		c.wantBytes("early")
		c.Close()

		c = p.client(0)
		write(t, pieces{c, n}, request4(1, echoHost, echoPort, "me")+"early")
		readN(t, c.r, 8)
		c.wantBytes("early")
		c.Close()

		endTLS(t, wantTLS(t, pieces{p.dial(0), n}, "origin.test"))
		want = append(want, "PROXY 00000", "PROXY 00000", "SOCKS 00000", "SOCKS 00000", "TLSPR 00000")
	}
	for _, first := range []string{"\x00", "\x03", "\x06", "\x15\x03\x01", "\x17", "\x80", " GET", "\xff", ":"} {
		c := p.client(0)
		c.send(first)
		c.wantEnd()
		want = append(want, "AUTO 00801")
	}
	c := p.client(0)
	c.CloseWrite()
	c.wantEnd()
	want = append(want, "AUTO 00000")
	checkCounts(t, waitLines(t, path, len(want)), want)
}

// checkCounts compares the beginnings of lines, whatever their order.
func checkCounts(t *testing.T, lines, want []string) {
	t.Helper()
	counts := map[string]int{}
	for _, w := range want {
		counts[w]++
	}
	for _, line := range lines {
		f := strings.Fields(line)
		counts[f[0]+" "+f[1]]--
	}
	for start, n := range counts {
		if n != 0 {
			t.Errorf("%d lines %q are missing in %q", n, start, lines)
		}
	}
}

// A user has to log in by either protocol; TLS has no way to.
func TestAutoStrong(t *testing.T) {
	echoHost, echoPort := echoServer(t)
	p := startProxy(t, "internal 127.0.0.1\nnsrecord www.example.com 127.0.0.1\nusers u:CL:p\nauth strong\nauto -pPORT\n")
	c := p.client(0)
	c.send("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\n", echoHost, echoPort)
	c.want("CONNECT", 407, "")
	c = p.client(0)
	c.send("\x05\x01\x00")
	c.wantBytes("\x05\xff")
	c = p.client(0)
	c.send("\x05\x01\x02" + userPass("u", "p") + request5(1, echoHost, echoPort))
	c.wantBytes("\x05\x02\x01\x00\x05\x00")
	c = p.client(0)
	c.send(readHello(t, "curl"))
	c.wantBytes("\x15\x03\x01\x00\x02\x02\x31")
	c.wantEnd()
}

// A silent client has the time of a first HTTP head.
func TestAutoSilence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+"timeouts 1 1 1 1\nauto -pPORT\n")
	p.client(0).wantEnd()
	if line := waitLines(t, path, 1)[0]; !strings.HasPrefix(line, "AUTO 00092") {
		t.Errorf("logged %q", line)
	}
}
