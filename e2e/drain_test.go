package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// idleClients makes HTTP clients that have had an answer and keep their
// connection.
func idleClients(t *testing.T, proxy int, url string, n int) []net.Conn {
	t.Helper()
	var list []net.Conn
	for range n {
		c := dial(t, proxy)
		fmt.Fprintf(c, "GET %s/x HTTP/1.1\r\nHost: x\r\n\r\n", url)
		readHead(t, c, "HTTP/1.1 200 ")
		if _, err := io.ReadFull(c, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// TestDrainHTTP drains with idle HTTP clients: one that asks again is told that
// its connection ends, the others are closed within seconds; a tunnel goes on
// until the deadline.
func TestDrainHTTP(t *testing.T) {
	t.Parallel()
	o, echo, proxy := newOrigin(t, false), echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	tunnel := connectVia(t, proxy, echo)
	mustPing(t, tunnel)
	clients := idleClients(t, proxy, o.URL, 20)
	silent := dial(t, proxy)
	eventually(t, patience, func() string {
		if n := len(d.conns()); n != 22 {
			return fmt.Sprintf("%d sessions", n)
		}
		return ""
	})
	follow := exec.Command(ctlBin, "-s", d.socket, "drain", "--timeout", "12", "--follow")
	var progress output
	follow.Stdout, follow.Stderr = &progress, &progress
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if d.status().Drain == nil {
			return "no drain in the status"
		}
		return ""
	})
	answered, closed := 0, 0
	for _, c := range clients[:10] {
		fmt.Fprintf(c, "GET %s/x HTTP/1.1\r\nHost: x\r\n\r\n", o.URL)
		head, err := io.ReadAll(c)
		c.Close()
		switch {
		case strings.HasPrefix(string(head), "HTTP/1.1 200 ") && strings.Contains(string(head), "Connection: close"):
			answered++
		case len(head) == 0:
			closed++
		default:
			t.Errorf("%v after %q", err, head)
		}
	}
	t.Logf("%d were answered, %d had been closed", answered, closed)
	if answered == 0 {
		t.Error("nobody was answered")
	}
	began := time.Now()
	for _, c := range append(clients[10:], silent) {
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("an idle client read %d bytes, %v", n, err)
		}
		c.Close()
	}
	if waited := time.Since(began); waited > 8*time.Second {
		t.Errorf("idle clients were closed after %v", waited)
	}
	mustPing(t, tunnel)
	eventually(t, patience, func() string {
		if p := d.status().Drain; p == nil || p.Sessions != 1 || p.SecondsLeft > 12 {
			return fmt.Sprintf("drain: %+v", p)
		}
		return ""
	})
	text, _, _ := d.ctl("status")
	if !strings.Contains(text, "1 session left, to be ended in ") {
		t.Errorf("status:\n%s", text)
	}
	if !d.waitExit(patience) {
		t.Fatal("the daemon outlives its drain")
	}
	if ping(tunnel) == nil {
		t.Error("the tunnel outlives the drain")
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("drain --follow: %v", err)
	}
	for _, want := range []string{"1 session left, ", "the daemon has ended"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("the progress does not say %q:\n%s", want, progress.String())
		}
	}
}

// TestStopSignals drains upon the first SIGTERM and ends at once upon the
// second.
func TestStopSignals(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, patience, func() string {
		if listens(ppm) {
			return "it listens"
		}
		return ""
	})
	if _, stderr, code := d.ctl("reload"); code != 1 || !strings.Contains(stderr, "draining") {
		t.Errorf("a reload during the drain: %d %s", code, stderr)
	}
	time.Sleep(time.Second)
	mustPing(t, c)
	began := time.Now()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if !d.waitExit(patience) {
		t.Fatal("the second SIGTERM does not end it")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the second SIGTERM took %v", took)
	}
	if ping(c) == nil {
		t.Error("the session outlives the daemon")
	}
}

// TestDrainWorkerFollow shows the progress of one worker's drain.
func TestDrainWorkerFollow(t *testing.T) {
	t.Parallel()
	ppm, hold := port(t), tcpOrigin(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, hold))
	c := dial(t, ppm)
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if d.service("tcppm")["requests"] != 1 {
			return "no session"
		}
		return ""
	})
	out, stderr, code := d.ctl("drain", "--worker", "0", "--timeout", "2", "--follow")
	if code != 0 || !strings.Contains(out, "the worker has ended") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
}
