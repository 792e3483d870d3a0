package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// blockSize is the size of the piece the test data is made of.
const blockSize = 1 << 20

var block = sync.OnceValue(func() []byte {
	b := make([]byte, blockSize)
	source := rand.NewChaCha8([32]byte{})
	source.Read(b)
	return b
})

// writePattern writes size bytes of test data: random blocks that begin with
// their number.
func writePattern(w io.Writer, size int64) error {
	b := append([]byte(nil), block()...)
	for i := int64(0); size > 0; i++ {
		binary.BigEndian.PutUint64(b, uint64(i))
		n, err := w.Write(b[:min(size, blockSize)])
		size -= int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

var sums struct {
	sync.Mutex
	known map[int64]string
}

// patternSum is the SHA-256 of size bytes of test data.
func patternSum(size int64) string {
	sums.Lock()
	defer sums.Unlock()
	if s, ok := sums.known[size]; ok {
		return s
	}
	h := sha256.New()
	_ = writePattern(h, size)
	if sums.known == nil {
		sums.known = map[int64]string{}
	}
	sums.known[size] = sum(h)
	return sums.known[size]
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// origin is an HTTP server: GET /bytes/N answers N bytes of test data, a
// request with a body is answered with the body's length and SHA-256, GET
// /header shows the request's fields, everything else answers "hello".
type origin struct {
	*httptest.Server
	conns atomic.Int64
	port  int
	cert  string // path of the certificate of a TLS origin
}

func newOrigin(t *testing.T, tls bool) *origin {
	t.Helper()
	o := &origin{}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(serve))
	o.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.conns.Add(1)
		}
	}
	if tls {
		o.StartTLS()
		o.cert = filepath.Join(t.TempDir(), "cert.pem")
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})
		if err := os.WriteFile(o.cert, data, 0o644); err != nil {
			t.Fatal(err)
		}
	} else {
		o.Start()
	}
	o.port = o.Listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(o.Close)
	return o
}

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut || r.Method == http.MethodPost {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %s %v\n", n, sum(h), err)
		return
	}
	if size, ok := strings.CutPrefix(r.URL.Path, "/bytes/"); ok {
		n, err := strconv.ParseInt(size, 10, 64)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", size)
		_ = writePattern(w, n)
		return
	}
	if r.URL.Path == "/header" {
		_ = r.Header.Write(w)
		return
	}
	fmt.Fprintln(w, "hello")
}

// echoOrigin answers what it gets, on every connection, until the client's
// FIN. It returns its port.
func echoOrigin(t *testing.T) int {
	t.Helper()
	return tcpOrigin(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

func tcpOrigin(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
