package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDefaultControlPath(t *testing.T) {
	for _, c := range []struct {
		uid           int
		runtime, want string
	}{
		{0, "/run/user/0", "/run/3proxy/control.sock"},
		{1000, "/run/user/1000", "/run/user/1000/3proxy/control.sock"},
		{1000, "", "/tmp/3proxy-1000/control.sock"},
		{1000, "relative", "/tmp/3proxy-1000/control.sock"},
	} {
		if got := DefaultControlPath(c.uid, c.runtime); got != c.want {
			t.Errorf("user %d, %q: %s", c.uid, c.runtime, got)
		}
	}
}

func TestPeerOf(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := PeerOf(c.(syscall.Conn))
	if want := (Peer{os.Getpid(), os.Getuid(), os.Getgid()}); err != nil || peer != want {
		t.Errorf("%+v, %v", peer, err)
	}
}

func TestClientWithoutDaemon(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none"))
	if _, err := c.Status(context.Background()); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("error %v", err)
	}
}

// TestClientOfOthers asks a daemon that a process which is not trusted plays.
func TestClientOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClientOf(path, func(p Peer) bool { return p.PID != os.Getpid() })
	want := fmt.Sprintf("process %d of user %d answers at %s", os.Getpid(), os.Getuid(), path)
	if _, err := c.Status(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v instead of %s", err, want)
	}
}
