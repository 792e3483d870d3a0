package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestTLSClients reaches a TLS server by the name in the ClientHello, with the
// clients there are, through tlspr and through auto. The name is known to the
// daemon alone.
func TestTLSClients(t *testing.T) {
	t.Parallel()
	secure := newOrigin(t, true)
	tlspr, checked, auto := port(t), port(t), port(t)
	start(t, fmt.Sprintf(`
internal 127.0.0.1
nsrecord example.com 127.0.0.1
tlspr -p%d -P%[4]d
tlspr -p%[2]d -P%[4]d -c2
auto -p%[3]d -P%[4]d
`, tlspr, checked, auto, secure.port))
	for name, p := range map[string]int{"tlspr": tlspr, "c2": checked, "auto": auto} {
		t.Run(name+"/curl", func(t *testing.T) {
			need(t, "curl")
			url := fmt.Sprintf("https://example.com:%d", p)
			via := []string{"--cacert", secure.cert, "--resolve", fmt.Sprintf("example.com:%d:127.0.0.1", p)}
			for _, size := range []int64{0, 1000, 8<<20 + 17} {
				download(t, size, append(via[:3:3], via[3], fmt.Sprintf("%s/bytes/%d", url, size))...)
			}
			upload(t, 8<<20+17, append(via[:3:3], via[3], url+"/")...)
			connectTo := []string{"--cacert", secure.cert, "--connect-to", fmt.Sprintf("example.com:443:127.0.0.1:%d", p), "https://example.com/"}
			if got := curl(t, connectTo...); got != "hello\n" {
				t.Errorf("curl --connect-to: %q", got)
			}
		})
		t.Run(name+"/openssl", func(t *testing.T) {
			openssl := need(t, "openssl")
			for _, version := range []string{"-tls1_2", "-tls1_3"} {
				cmd := exec.Command(openssl, "s_client", "-quiet", "-verify_return_error", "-CAfile", secure.cert, version,
					"-connect", fmt.Sprintf("127.0.0.1:%d", p), "-servername", "Example.com", "-verify_hostname", "example.com")
				cmd.Stdin = strings.NewReader("GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
				out, err := cmd.CombinedOutput()
				if !strings.Contains(string(out), "hello") {
					t.Errorf("openssl %s: %v\n%s", version, err, out)
				}
			}
			out, err := exec.Command(openssl, "s_client", "-noservername", "-connect", fmt.Sprintf("127.0.0.1:%d", p)).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "unrecognized name") {
				t.Errorf("without a name: %v\n%s", err, out)
			}
		})
		t.Run(name+"/node", func(t *testing.T) {
			node := need(t, "node")
			script := fmt.Sprintf(`require('https').get({host: '127.0.0.1', port: %d, servername: 'example.com',
				headers: {host: 'example.com'}, ca: require('fs').readFileSync(%q)}, r => r.pipe(process.stdout))`, p, secure.cert)
			if out, err := exec.Command(node, "-e", script).CombinedOutput(); err != nil || string(out) != "hello\n" {
				t.Errorf("node: %v\n%s", err, out)
			}
		})
		t.Run(name+"/go", func(t *testing.T) {
			for _, server := range []string{"example.com", "127.0.0.1", "unknown.example"} {
				c := tls.Client(dial(t, p), &tls.Config{ServerName: server, InsecureSkipVerify: true})
				err := c.Handshake()
				if (err == nil) != (server == "example.com") {
					t.Errorf("%s: %v", server, err)
				}
			}
		})
	}
}

// TestAutoClients speaks every protocol to one port.
func TestAutoClients(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	plain, secure := newOrigin(t, false), newOrigin(t, true)
	auto := port(t)
	d := start(t, fmt.Sprintf("internal 127.0.0.1\nnsrecord origin.test 127.0.0.1\nauto -p%d\n", auto))
	at := fmt.Sprintf("127.0.0.1:%d", auto)
	const size = 3<<20 + 17
	for _, args := range [][]string{
		{"-x", "http://" + at}, {"-p", "-x", "http://" + at},
		{"--socks4", at}, {"--socks4a", at}, {"--socks5", at}, {"--socks5-hostname", at},
	} {
		download(t, size, append(args, fmt.Sprintf("http://127.0.0.1:%d/bytes/%d", plain.port, size))...)
		download(t, size, append(args, "--cacert", secure.cert, fmt.Sprintf("https://127.0.0.1:%d/bytes/%d", secure.port, size))...)
	}
	c := dial(t, auto)
	if _, err := c.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("an unknown protocol: %d, %v", n, err)
	}
	eventually(t, patience, func() string {
		if n := d.service("auto")["protocol_errors"]; n != 1 {
			return fmt.Sprintf("%d protocol errors", n)
		}
		return ""
	})
}

// TestTLSUpgrade keeps tunnels of tlspr, opened behind a PROXY protocol header,
// through an upgrade.
func TestTLSUpgrade(t *testing.T) {
	t.Parallel()
	cert := newOrigin(t, true).TLS.Certificates
	server := tcpOrigin(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: cert})
		b := make([]byte, 4)
		for {
			n, err := s.Read(b)
			if err != nil {
				return
			}
			_, _ = s.Write(b[:n])
		}
	})
	p := port(t)
	d := startUpgradable(t, fmt.Sprintf("internal 127.0.0.1\nnsrecord example.com 127.0.0.1\nworkers 2\nupgrade_trial 1\nauto -H -p%d -P%d\n", p, server))
	var tunnels []*tls.Conn
	for i := range 10 {
		c := dial(t, p)
		fmt.Fprintf(c, "PROXY TCP4 192.0.2.%d 198.51.100.1 1234 443\r\n", i+1)
		s := tls.Client(c, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
		mustPing(t, s)
		tunnels = append(tunnels, s)
	}
	d.upgrade()
	for _, s := range tunnels {
		_ = s.SetDeadline(time.Now().Add(patience))
		mustPing(t, s)
	}
	eventually(t, patience, func() string {
		seen := map[string]bool{}
		for _, s := range d.conns() {
			host, _, _ := net.SplitHostPort(s.Client)
			seen[host] = strings.HasPrefix(host, "192.0.2.") && strings.HasPrefix(s.Target, "example.com:")
		}
		if len(seen) != len(tunnels) {
			return fmt.Sprintf("clients %v", seen)
		}
		return ""
	})
	for _, s := range tunnels {
		s.Close()
	}
}
