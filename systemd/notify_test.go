package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manager is the socket of a service manager.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func startManager(t *testing.T, address string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv(notifyEnv, address)
	return &manager{t, conn}
}

// receive returns one message and its descriptors.
func (m *manager) receive() (string, []int) {
	m.t.Helper()
	data, oob := make([]byte, 4096), make([]byte, 4096)
	if err := m.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	n, oobn, _, _, err := m.conn.ReadMsgUnix(data, oob)
	if err != nil {
		m.t.Fatal(err)
	}
	var fds []int
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, msg := range msgs {
		rights, _ := unix.ParseUnixRights(&msg)
		fds = append(fds, rights...)
	}
	return string(data[:n]), fds
}

func TestNotify(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "notify"), "@3proxyd-test-" + filepath.Base(t.TempDir())} {
		m := startManager(t, address)
		if err := Notify(Ready, Status("a\nMAINPID=1\x00b"), MainPID(7)); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.receive(); got != "READY=1\nSTATUS=a MAINPID=1 b\nMAINPID=7" {
			t.Errorf("%q", got)
		}
		if err := Notify(Reloading()); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.receive(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") || strings.HasSuffix(got, "\n") {
			t.Errorf("%q", got)
		}
		if got := ExtendTimeout(1500 * time.Millisecond); got != "EXTEND_TIMEOUT_USEC=1500000" {
			t.Errorf("%q", got)
		}
	}
}

func TestNotifyFiles(t *testing.T) {
	m := startManager(t, filepath.Join(t.TempDir(), "notify"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := NotifyFiles("FDSTORE=1\nFDNAME=x", int(r.Fd()), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	text, fds := m.receive()
	if text != "FDSTORE=1\nFDNAME=x" || len(fds) != 2 {
		t.Fatalf("%q, descriptors %v", text, fds)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err := NotifyFiles("FDSTORE=1", make([]int, 254)...); err == nil {
		t.Error("254 descriptors are accepted")
	}
}

func TestNotifyWithoutManager(t *testing.T) {
	t.Setenv(notifyEnv, "")
	if Managed() {
		t.Error("a manager without a socket")
	}
	if err := NotifyFiles(Ready, -1); err != nil {
		t.Error(err)
	}
	if err := Barrier(time.Second); err != nil {
		t.Error(err)
	}
	for _, address := range []string{"vsock:2:1", "relative", "@", "/" + strings.Repeat("x", 107), filepath.Join(t.TempDir(), "none")} {
		t.Setenv(notifyEnv, address)
		if err := Notify(Ready); err == nil {
			t.Errorf("%q: no error", address)
		}
	}
}

func TestBarrier(t *testing.T) {
	m := startManager(t, filepath.Join(t.TempDir(), "notify"))
	if err := Barrier(10 * time.Millisecond); err == nil {
		t.Error("a barrier nobody answers")
	}
	_, _ = m.receive()
	done := make(chan error)
	go func() { done <- Barrier(10 * time.Second) }()
	text, fds := m.receive()
	if text != "BARRIER=1" || len(fds) != 1 {
		t.Fatalf("%q, descriptors %v", text, fds)
	}
	unix.Close(fds[0])
	if err := <-done; err != nil {
		t.Error(err)
	}
}
