package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"3proxyd/ipc"
)

// tlsConfig is that of a server with a certificate of its own.
func tlsConfig(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// tlsEcho is a TLS server that sends back the server name, a line, and then
// what it gets.
func tlsEcho(t testing.TB) (port string) {
	t.Helper()
	config := tlsConfig(t)
	_, port = serve(t, func(c *net.TCPConn) {
		s := tls.Server(c, config)
		if s.Handshake() != nil {
			return
		}
		fmt.Fprintln(s, s.ConnectionState().ServerName)
		_, _ = io.Copy(s, s)
		_ = s.CloseWrite()
	})
	return port
}

// pieces writes n bytes at a time.
type pieces struct {
	net.Conn
	n int
}

func (p pieces) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i += p.n {
		if _, err := p.Conn.Write(b[i:min(i+p.n, len(b))]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// wantTLS makes a TLS connection over c and checks which name the server saw.
func wantTLS(t *testing.T, c net.Conn, name string) *tls.Conn {
	t.Helper()
	s := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	want := strings.ToLower(name)
	if got := readN(t, s, len(want)+1); !strings.EqualFold(got, want+"\n") {
		t.Fatalf("the server saw %q", got)
	}
	exchange(t, s, "through TLS")
	return s
}

// endTLS ends a TLS connection in order.
func endTLS(t *testing.T, s *tls.Conn) {
	t.Helper()
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	readAll(t, s)
	s.Close()
}

func readHello(t testing.TB, client string) string {
	t.Helper()
	b, err := os.ReadFile("../proto/tlshello/testdata/" + client + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const tlsConfigText = "log %s\nlogformat \"L%%N %%E %%n %%q %%O %%T\"\ninternal 127.0.0.1\nnsrecord origin.test 127.0.0.1\n" +
	"nsrecord www.example.com 127.0.0.1\nnsrecord gone.test 0.0.0.0\n"

// The name decides where the connection goes, whatever the pieces it comes in.
func TestTLSPR(t *testing.T) {
	port := tlsEcho(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+fmt.Sprintf("tlspr -pPORT -P%s\ntlspr -pPORT -P%s -c2\n", port, port))
	for i := range 2 {
		for _, n := range []int{1, 100, 100000} {
			s := wantTLS(t, pieces{p.dial(i), n}, "Origin.test")
			endTLS(t, s)
			p.waitOpen(i, 0)
		}
	}
	for _, line := range waitLines(t, path, 6) {
		if !strings.HasPrefix(line, "TLSPR 00000 origin.test "+port+" ") || !strings.HasSuffix(line, " TLSv1.3 origin.test -") {
			t.Errorf("logged %q", line)
		}
	}
	if n := p.counter(0, ipc.Requests); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// What cannot be served is refused with an alert, and with the right code.
func TestTLSPRRefusals(t *testing.T) {
	const (
		handshakeFailure = "\x15\x03\x01\x00\x02\x02\x28"
		accessDenied     = "\x15\x03\x01\x00\x02\x02\x31"
		decodeError      = "\x15\x03\x01\x00\x02\x02\x32"
		unexpected       = "\x15\x03\x01\x00\x02\x02\x0a"
		illegal          = "\x15\x03\x01\x00\x02\x02\x2f"
		internal         = "\x15\x03\x01\x00\x02\x02\x50"
		unknownName      = "\x15\x03\x01\x00\x02\x02\x70"
	)
	closed := freePort(t)
	_, plain := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("220 mail server\r\n"))
		_, _ = io.Copy(io.Discard, c)
	})
	_, silent := serve(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1000)) })
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+
		fmt.Sprintf("tlspr -pPORT -P%d\ntlspr -pPORT -P%d -c1\n", closed, closed)+
		fmt.Sprintf("tlspr -pPORT -P%s -c2\ntlspr -pPORT -P%s -c2\n", plain, silent)+
		fmt.Sprintf("auth iponly\ndeny * * www.example.com\nallow *\ntlspr -pPORT -P%d\n", closed)+
		fmt.Sprintf("flush\ndeny * * 127.0.0.0/8\nallow *\ntlspr -pPORT -P%d\n", closed)+
		fmt.Sprintf("flush\nallow * * *.example.com\ntlspr -pPORT -P%d\n", closed))
	hello := readHello(t, "openssl")
	renamed := func(to string) string { return strings.Replace(hello, "WWW.Example.com", to, 1) }
	cases := []struct {
		service int
		send    string
		answer  string
		code    string
	}{
		{0, hello, internal, "00013"},
		{0, readHello(t, "openssl-noname"), unknownName, "00100"},
		{0, renamed("xx.unknown.test"), unknownName, "00100"},
		{0, renamed("127.000.000.001"), unknownName, "00100"},
		{0, renamed("127.0.0.1......"), illegal, "00310"},
		{0, "\x16\x03\x01\x00\x00", decodeError, "00310"},
		{0, "\x16\x03\x01\x00\x04\x02\x00\x00\x40", unexpected, "00310"},
		{0, "GET / HTTP/1.1\r\n\r\n", "", "00100"},
		{0, "\x80\x2e\x01\x03\x01", "", "00100"},
		{1, "GET / HTTP/1.1\r\n\r\n", "", "00300"},
		{1, hello, internal, "00013"},
		{2, hello, handshakeFailure, "00340"},
		{3, hello, handshakeFailure, "00340"},
		{4, hello, accessDenied, "00001"},
		{5, hello, accessDenied, "00001"},
		{5, renamed("xx.unknown.test"), unknownName, "00100"},
		{6, hello, internal, "00013"},
		{6, renamed("www.example2com"), accessDenied, "00003"},
		{6, readHello(t, "openssl-noname"), unknownName, "00003"},
	}
	for i, c := range cases {
		conn := p.client(c.service)
		conn.send(c.send)
		if got, _ := io.ReadAll(conn); string(got) != c.answer {
			t.Errorf("case %d: answered % x, want % x", i, got, c.answer)
		}
		conn.Close()
		lines := waitLines(t, path, i+1)
		if line := lines[i]; !strings.HasPrefix(line, "TLSPR "+c.code+" ") {
			t.Errorf("case %d: logged %q, want code %s", i, line, c.code)
		}
	}
}

// A slow client, and one that goes away, cost their session only.
func TestTLSPRTimeouts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+"timeouts 1 1 1\ntlspr -pPORT\n")
	p.client(0).wantEnd()
	slow := p.client(0)
	slow.send(readHello(t, "go")[:900])
	slow.wantEnd()
	gone := p.client(0)
	gone.send(readHello(t, "go")[:900])
	gone.CloseWrite()
	gone.wantEnd()
	quiet := p.client(0)
	quiet.CloseWrite()
	quiet.wantEnd()
	want := []string{"00092", "00092", "00310", "00000"}
	for i, line := range waitLines(t, path, len(want)) {
		if !strings.HasPrefix(line, "TLSPR "+want[i]) {
			t.Errorf("line %d is %q, want code %s", i, line, want[i])
		}
	}
}

// A session moves like any tunnel, and its line keeps what the hello said.
func TestTLSPRMove(t *testing.T) {
	port := tlsEcho(t)
	path := filepath.Join(t.TempDir(), "log")
	p := startProxy(t, fmt.Sprintf(tlsConfigText, path)+fmt.Sprintf("auto -pPORT -P%s\n", port))
	q := p.startSibling()
	s := wantTLS(t, p.dial(0), "origin.test")
	if m := p.move(q, ipc.MoveOut{}); m.Sessions != 1 {
		t.Fatalf("moved %+v", m)
	}
	exchange(t, s, "after the move")
	endTLS(t, s)
	if line := waitLines(t, path, 1)[0]; !strings.HasPrefix(line, "TLSPR 00000 origin.test ") {
		t.Errorf("logged %q", line)
	}
}

// longHello is a ClientHello for a name with padding (RFC 7685), in records of
// at most size bytes.
func longHello(name string, padding, size int) string {
	vector := func(n int, s string) string {
		b := []byte{byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))}
		return string(b[3-n:]) + s
	}
	extensions := "\x00\x15" + vector(2, strings.Repeat("\x00", padding)) +
		"\x00\x00" + vector(2, vector(2, "\x00"+vector(2, name)))
	body := "\x03\x03" + strings.Repeat("r", 32) + vector(1, "") + vector(2, "\x13\x01") + vector(1, "\x00") + vector(2, extensions)
	var b strings.Builder
	for msg := "\x01" + vector(3, body); msg != ""; {
		n := min(size, len(msg))
		b.WriteString("\x16\x03\x01" + vector(2, msg[:n]))
		msg = msg[n:]
	}
	return b.String()
}

// A long hello over many records arrives as it was sent, with what follows it;
// one over 64 KB is refused.
func TestTLSPRLongHello(t *testing.T) {
	got := make(chan string, 1)
	_, port := serve(t, func(c *net.TCPConn) { got <- readAll(t, c) })
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\nnsrecord origin.test 127.0.0.1\ntlspr -pPORT -P%s\n", port))
	for _, size := range []int{3, 1000, 16384} {
		padding := 65000
		if size == 3 {
			padding = 24000
		}
		hello := longHello("origin.test", padding, size)
		for _, n := range []int{7, 1 << 20} {
			c := p.dial(0)
			write(t, pieces{c, n}, hello+"what follows")
			_ = c.CloseWrite()
			if s := await(t, got); s != hello+"what follows" {
				t.Errorf("records of %d in pieces of %d: %d bytes of %d arrived", size, n, len(s), len(hello))
			}
			c.Close()
		}
	}
	for _, size := range []int{1, 16384} {
		c := p.client(0)
		_, _ = io.WriteString(c, longHello("origin.test", 65479, size))
		c.wantBytes("\x15\x03\x01\x00\x02\x02\x16")
	}
}
