package ipc

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newPair(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	near, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	far, err := NewConn(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return near, far
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestConnCarriesDescriptors(t *testing.T) {
	a, b := newPair(t)
	memfd, err := WriteMemfd("test", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	defer memfd.Close()
	before := openFDs(t)

	fds := make([]int, MaxFDs)
	for i := range fds {
		fds[i] = int(memfd.Fd())
	}
	if err := a.Send(MsgFiles, 42, Files{Gen: 3}, fds...); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var body Files
	if err := m.Decode(&body); err != nil || m.Type != MsgFiles || m.ID != 42 || body.Gen != 3 {
		t.Errorf("received %+v, %v", m, err)
	}
	if len(m.FDs) != MaxFDs {
		t.Fatalf("%d descriptors", len(m.FDs))
	}
	for _, fd := range m.FDs {
		if data, err := ReadMemfd(fd, 100); err != nil || string(data) != "content" {
			t.Fatalf("descriptor %d holds %q, %v", fd, data, err)
		}
		if flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
			t.Fatalf("descriptor %d is not close-on-exec", fd)
		}
	}
	m.CloseFDs()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors open, before %d", after, before)
	}
}

func TestConnBadPacketsLeaveItUsable(t *testing.T) {
	a, b := newPair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := openFDs(t)

	send := func(packet []byte, fds ...int) {
		t.Helper()
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		err := a.raw.Control(func(fd uintptr) {
			if _, err := unix.SendmsgN(int(fd), packet, rights, nil, 0); err != nil {
				t.Errorf("sendmsg: %v", err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	frame, _ := encode(Version, MsgHello, 1, nil, 0)
	many := make([]int, MaxFDs+10)
	for i := range many {
		many[i] = int(null.Fd())
	}
	for name, bad := range map[string]func(){
		"unannounced descriptor": func() { send(frame, int(null.Fd())) },
		"too many descriptors":   func() { send(frame, many...) },
		"short packet":           func() { send(frame[:3]) },
		"oversized packet":       func() { send(make([]byte, headerSize+MaxBody+1)) },
	} {
		bad()
		if _, err := b.Recv(); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: error %v", name, err)
		}
		if after := openFDs(t); after != before {
			t.Fatalf("%s: %d descriptors open, before %d", name, after, before)
		}
	}
	if err := a.Send(MsgHello, 5, nil); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Recv(); err != nil || m.ID != 5 {
		t.Errorf("received %+v, %v", m, err)
	}
}

func TestConnEnds(t *testing.T) {
	a, b := newPair(t)
	if err := b.Send(MsgHello, 1, nil); err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
	if _, err := b.Recv(); err != io.EOF {
		t.Errorf("Recv after the peer closed with unread packets: %v", err)
	}
	if err := b.Send(MsgHello, 1, nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Send to a closed peer: %v", err)
	}
}

func TestConnDeadlineAndClose(t *testing.T) {
	a, _ := newPair(t)
	_ = a.SetRecvDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := a.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Recv past its deadline: %v", err)
	}
	_ = a.SetRecvDeadline(time.Time{})
	done := make(chan error)
	go func() {
		_, err := a.Recv()
		done <- err
	}()
	_ = a.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Recv of a closed Conn: %v", err)
	}
}

func TestConnConcurrentUse(t *testing.T) {
	a, b := newPair(t)
	const senders, each = 4, 50
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for range each {
				if err := a.Send(MsgCommit, uint32(i), Generation{Gen: uint64(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range senders * each {
		m, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var g Generation
		if err := m.Decode(&g); err != nil || g.Gen != uint64(m.ID) {
			t.Errorf("message %d holds %+v, %v", m.ID, g, err)
		}
	}
	wg.Wait()
}

func TestNewConnRefusesOtherSockets(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(fds[:])
	if _, err := NewConn(fds[0]); err == nil {
		t.Error("a stream socket was accepted")
	}
}

func TestReadMemfdRefuses(t *testing.T) {
	memfd, err := WriteMemfd("test", make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	defer memfd.Close()
	if _, err := ReadMemfd(int(memfd.Fd()), 99); err == nil {
		t.Error("an oversized memfd was read")
	}
	if _, err := memfd.Write([]byte("x")); err == nil {
		t.Error("a sealed memfd was written")
	}
	file, err := os.Open("conn_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := ReadMemfd(int(file.Fd()), 1<<20); err == nil {
		t.Error("an ordinary file was read as memfd")
	}
}
