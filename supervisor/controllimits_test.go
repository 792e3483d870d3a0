package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

func TestControlPlaces(t *testing.T) {
	l := newLimitListener(nil, func(uid int) bool { return uid == 0 })
	for i := range userConns {
		if !l.take(1000) {
			t.Fatalf("connection %d of a user is refused", i)
		}
	}
	if l.take(1000) {
		t.Error("a user has more than its places")
	}
	for uid := 1001; l.take(uid); uid++ {
	}
	if l.otherOpen != otherConns {
		t.Errorf("%d places of others are taken", l.otherOpen)
	}
	for i := range privilegedConns {
		if !l.take(0) {
			t.Fatalf("connection %d of root is refused", i)
		}
	}
	if l.take(0) {
		t.Error("root has more than its places")
	}
	l.give(1000)
	l.give(0)
	if !l.take(1000) || !l.take(0) {
		t.Error("a place given back cannot be taken")
	}
}

// TestControlRefusal takes all places with connections that ask nothing.
func TestControlRefusal(t *testing.T) {
	cfg := testConfig(t, freePorts(t, 1)...)
	b := startBed(t, cfg)
	var conns []net.Conn
	for range privilegedConns {
		c, err := net.Dial("unix", cfg.Control.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	c, err := net.Dial("unix", cfg.Control.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	answer := make([]byte, 1024)
	n, _ := c.Read(answer)
	_, body, _ := strings.Cut(string(answer[:n]), "\r\n\r\n")
	var e ipc.APIError
	if err := json.Unmarshal([]byte(body), &e); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 503 ") ||
		!strings.Contains(string(answer[:n]), fmt.Sprintf("Content-Length: %d\r\n", len(body))) {
		t.Errorf("answer %q, %v", answer[:n], err)
	}
	// A client that sends its request later still gets the answer. The places of
	// those that waited for the start may have become free.
	for range 2 {
		c, err := net.Dial("unix", cfg.Control.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	_, err = b.client.Status(t.Context())
	var failed *ipc.RequestError
	if !errors.As(err, &failed) || failed.Status != 503 {
		t.Errorf("a request beyond the places: %v", err)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	b.eventually("the places are free again", func() error {
		_, err := b.client.Status(t.Context())
		return err
	})
}

func TestSilence(t *testing.T) {
	for name, c := range map[string]struct {
		now  time.Duration
		beat uint64
		age  time.Duration
		want time.Duration
	}{
		"fresh":            {100 * time.Second, 98_000, time.Hour, 2 * time.Second},
		"old":              {100 * time.Second, 70_000, time.Hour, 30 * time.Second},
		"of a predecessor": {100 * time.Second, 10_000, time.Second, time.Second},
		"none yet":         {100 * time.Second, 0, 3 * time.Second, 3 * time.Second},
		"ahead":            {100 * time.Second, 100_001, time.Hour, 0},
	} {
		if got := silence(c.now, c.beat, c.age); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestStalledWorkerIsNamed(t *testing.T) {
	cfg := testConfig(t, freePorts(t, 1)...)
	short := quick()
	short.conns = 300 * time.Millisecond
	b := startBedWith(t, cfg, short)
	pid := b.workerOf(0).PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.eventually("the worker has stopped", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			return errors.New(string(stat))
		}
		return err
	})
	err := b.client.Conns(t.Context(), func(ipc.Session) error { return nil })
	want := fmt.Sprintf("worker 0 (pid %d) does not answer", pid)
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "worker 1") {
		t.Errorf("error %v, want %s", err, want)
	}
	_ = unix.Kill(pid, unix.SIGCONT)
}
