package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// curlCmd prepares curl without the proxies of the environment.
func curlCmd(args ...string) *exec.Cmd {
	cmd := exec.Command("curl", append([]string{"-sS", "-q", "--max-time", "180"}, args...)...)
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	return cmd
}

// curl runs curl and returns what it prints; it must succeed.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := curlCmd(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl %v: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

// curlStatus is the status code curl sees, and its exit code.
func curlStatus(args ...string) (status string, code int) {
	cmd := curlCmd(append([]string{"-o", "/dev/null", "-w", "%{http_code}"}, args...)...)
	out, _ := cmd.Output()
	return string(out), cmd.ProcessState.ExitCode()
}

// download checks the SHA-256 of a download by curl.
func download(t *testing.T, size int64, args ...string) {
	t.Helper()
	h := sha256.New()
	var stderr bytes.Buffer
	cmd := curlCmd(args...)
	cmd.Stdout, cmd.Stderr = h, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl %v: %v: %s", args, err, stderr.String())
	}
	if got, want := sum(h), patternSum(size); got != want {
		t.Fatalf("SHA-256 %s instead of %s", got, want)
	}
}

// upload checks the SHA-256 of an upload by curl.
func upload(t *testing.T, size int64, args ...string) {
	t.Helper()
	r, w := io.Pipe()
	go func() { w.CloseWithError(writePattern(w, size)) }()
	cmd := curlCmd(append([]string{"-T", "-", "-H", fmt.Sprintf("Content-Length: %d", size), "-H", "Transfer-Encoding:"}, args...)...)
	cmd.Stdin = r
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("curl %v: %v: %s", args, err, out)
	}
	want := fmt.Sprintf("%d %s <nil>\n", size, patternSum(size))
	if string(out) != want {
		t.Fatalf("the origin got %q instead of %q", out, want)
	}
}

// dial connects to a port of 127.0.0.1; the connection is closed with the test.
func dial(t *testing.T, port int) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return c
}

// ping sends a word through a connection to an echo server.
func ping(c net.Conn) error {
	if _, err := io.WriteString(c, "ping"); err != nil {
		return err
	}
	return pong(c)
}

func pong(c net.Conn) error {
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "ping" {
		return fmt.Errorf("got %q", b)
	}
	return nil
}

func mustPing(t *testing.T, c net.Conn) {
	t.Helper()
	if err := ping(c); err != nil {
		t.Fatal(err)
	}
}

// connectVia opens a CONNECT tunnel through an HTTP proxy.
func connectVia(t *testing.T, proxy, target int) net.Conn {
	t.Helper()
	c := dial(t, proxy)
	fmt.Fprintf(c, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", target, target)
	readHead(t, c, "HTTP/1.1 200 ")
	return c
}

// readHead reads the head of an HTTP response that must begin with want. It is
// read byte by byte: what follows is left.
func readHead(t *testing.T, c net.Conn, want string) string {
	t.Helper()
	var head []byte
	b := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := c.Read(b); err != nil {
			t.Fatalf("after %q: %v", head, err)
		}
		head = append(head, b[0])
	}
	if !strings.HasPrefix(string(head), want) {
		t.Fatalf("the answer is %q instead of %q", head, want)
	}
	return string(head)
}

// pingOnce makes a connection to a port of 127.0.0.1 for one ping.
func pingOnce(port int) error {
	c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	return ping(c)
}
