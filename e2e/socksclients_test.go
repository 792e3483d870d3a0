package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// socksService is a SOCKS service for everybody, one for users with a password,
// and origins that send back what they get.
type socksService struct {
	*daemon
	open, login int
	tcp, udp    int
}

func startSocksService(t *testing.T) *socksService {
	t.Helper()
	s := &socksService{open: port(t), login: port(t), tcp: echoOrigin(t), udp: newUDPOrigin(t, "127.0.0.1:0").port()}
	s.daemon = start(t, fmt.Sprintf("workers 2\ninternal 127.0.0.1\nlog\nnsrecord srv.example 127.0.0.1\nusers alice:CL:wonder\nauth none\nsocks -p%d\nauth strong\nsocks -p%d\n", s.open, s.login))
	return s
}

func (s *socksService) runScript(t *testing.T, name string, env []string, command ...string) {
	t.Helper()
	env = append(env, fmt.Sprintf("SOCKS=127.0.0.1:%d", s.open), fmt.Sprintf("LOGIN=127.0.0.1:%d", s.login),
		fmt.Sprintf("TCP=%d", s.tcp), fmt.Sprintf("UDP=%d", s.udp))
	runClient(t, name, env, command...)
}

func TestPySocks(t *testing.T) {
	t.Parallel()
	python := needPython(t, "socks")
	startSocksService(t).runScript(t, "pysocks_client.py", nil, python)
}

func TestNodeSocks(t *testing.T) {
	t.Parallel()
	node := needNode(t, "socks", "SocksClient")
	startSocksService(t).runScript(t, "socks_client.js", []string{nodePath}, node)
}

// TestSocksify runs a program that knows no proxy under dante's client library.
func TestSocksify(t *testing.T) {
	t.Parallel()
	socksify, python := need(t, "socksify"), needPython(t, "socket")
	s := startSocksService(t)
	conf := filepath.Join(t.TempDir(), "socks.conf")
	text := fmt.Sprintf("route {\n from: 0.0.0.0/0 to: 127.0.0.0/8 via: 127.0.0.1 port = %d\n proxyprotocol: socks_v5\n protocol: tcp udp\n command: bind connect udpassociate\n method: none\n}\n", s.open)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.runScript(t, "sockified.py", []string{"SOCKS_CONF=" + conf, "SOCKS_AUTOADD_LANROUTES=no"}, socksify, python)
	if n := s.service("socks")["requests"]; n != 2 {
		t.Errorf("%d requests came through the proxy", n)
	}
}

// TestGoProxy uses golang.org/x/net/proxy.
func TestGoProxy(t *testing.T) {
	t.Parallel()
	s := startSocksService(t)
	for _, test := range []struct {
		port int
		auth *proxy.Auth
		ok   bool
	}{
		{s.open, nil, true},
		{s.open, &proxy.Auth{User: "any", Password: "one"}, true},
		{s.login, &proxy.Auth{User: "alice", Password: "wonder"}, true},
		{s.login, &proxy.Auth{User: "alice", Password: "wrong"}, false},
		{s.login, nil, false},
	} {
		d, err := proxy.SOCKS5("tcp", fmt.Sprintf("127.0.0.1:%d", test.port), test.auth, &net.Dialer{Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Dial("tcp", fmt.Sprintf("srv.example:%d", s.tcp))
		if (err == nil) != test.ok {
			t.Fatalf("%+v: %v", test, err)
		}
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			mustPing(t, c)
			c.Close()
		}
	}
}
