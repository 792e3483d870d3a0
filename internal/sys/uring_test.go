package sys

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// newTestRing opens a ring on the test's thread.
func newTestRing(t *testing.T, entries, completions int) *Uring {
	t.Helper()
	if err := ProbeUring(); err != nil {
		t.Skip(err)
	}
	runtime.LockOSThread()
	u, err := NewUring(entries, completions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		u.Close()
		runtime.UnlockOSThread()
	})
	return u
}

// wait appends the completions that come next, at least one.
func (u *Uring) wait(t *testing.T, list []CQE) []CQE {
	t.Helper()
	for n := len(list); len(list) == n; list = u.Reap(list) {
		if errno := u.Enter(1000, false); errno != 0 && errno != unix.EINTR {
			t.Fatalf("Enter: %v", errno)
		}
	}
	return list
}

func streamPair(t *testing.T) (a, b int32) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(p[0])
		unix.Close(p[1])
	})
	return int32(p[0]), int32(p[1])
}

func TestUringReceive(t *testing.T) {
	u := newTestRing(t, 8, 16)
	b, err := u.ProvideBuffers(3, 4, 64)
	if err != nil {
		t.Fatal(err)
	}
	if errno := u.Enable(); errno != 0 {
		t.Fatal(errno)
	}
	fd, peer := streamPair(t)
	u.Recv(fd, 5, b, 7)
	unix.Write(int(peer), []byte("hello world"))
	list := u.wait(t, nil)
	id, ok := list[0].Buffer()
	if list[0].UserData != 7 || list[0].Res != 5 || !ok || string(b.Get(id)[:5]) != "hello" {
		t.Fatalf("%+v", list[0])
	}
	b.Recycle(id)
	b.Commit()
	got := []byte("hello")
	// Each buffer serves many times.
	for range 20 {
		unix.Write(int(peer), []byte("again"))
		u.Recv(fd, 64, b, 8)
		list = u.wait(t, list[:0])
		id, ok := list[0].Buffer()
		if len(list) != 1 || list[0].Res <= 0 || !ok {
			t.Fatalf("%+v", list)
		}
		got = append(got, b.Get(id)[:list[0].Res]...)
		b.Recycle(id)
		b.Commit()
	}
	if want := "hello world" + string(bytes.Repeat([]byte("again"), 20)); string(got) != want {
		t.Errorf("received %q", got)
	}
	// A cancelled request ends with ECANCELED and leaves nothing behind.
	u.Recv(fd, 64, b, 8)
	u.Cancel(8, 9)
	list = u.wait(t, list[:0])
	if len(list) != 1 || list[0].UserData != 8 || unix.Errno(-list[0].Res) != unix.ECANCELED {
		t.Errorf("after the cancel: %+v", list)
	}
}

// A send that is taken whole has no completion; one that is not tells how much
// was taken.
func TestUringSend(t *testing.T) {
	u := newTestRing(t, 8, 16)
	if errno := u.Enable(); errno != 0 {
		t.Fatal(errno)
	}
	fd, peer := streamPair(t)
	u.Send(fd, []byte("small"), 1)
	if errno := u.Enter(0, false); errno != 0 || u.Unsubmitted() != 0 {
		t.Fatalf("Enter: %v", errno)
	}
	if list := u.Reap(nil); len(list) != 0 {
		t.Errorf("completions of a send that was taken: %+v", list)
	}
	buf := make([]byte, 16)
	if n, err := unix.Read(int(peer), buf); err != nil || string(buf[:n]) != "small" {
		t.Errorf("peer got %q, %v", buf[:n], err)
	}
	big := make([]byte, 8<<20)
	u.Send(fd, big, 2)
	list := u.wait(t, nil)
	if len(list) != 1 || list[0].UserData != 2 || list[0].Res <= 0 || int(list[0].Res) >= len(big) {
		t.Errorf("a send that was taken in part: %+v", list)
	}
	u.Send(fd, big, 3)
	list = u.wait(t, nil)
	if len(list) != 1 || unix.Errno(-list[0].Res) != unix.EAGAIN {
		t.Errorf("a send that was not taken: %+v", list)
	}
	unix.Close(int(peer))
	u.Send(fd, big, 4)
	list = u.wait(t, nil)
	if len(list) != 1 || unix.Errno(-list[0].Res) != unix.EPIPE {
		t.Errorf("a send to nobody: %+v", list)
	}
}

// More completions than the queue holds are kept by the kernel and reaped.
func TestUringOverflow(t *testing.T) {
	u := newTestRing(t, 8, 8)
	if errno := u.Enable(); errno != 0 {
		t.Fatal(errno)
	}
	fd, _ := streamPair(t)
	const polls = 100
	for i := range polls {
		if u.Room() < 1 {
			u.Enter(0, false)
		}
		u.Poll(fd, unix.EPOLLOUT, uint64(i+1))
	}
	var list []CQE
	for len(list) < polls {
		list = u.wait(t, list)
	}
	seen := map[uint64]bool{}
	for _, e := range list {
		seen[e.UserData] = true
	}
	if len(seen) != polls {
		t.Errorf("%d completions of %d requests", len(list), len(seen))
	}
}

func TestUringConnectAndClose(t *testing.T) {
	u := newTestRing(t, 8, 16)
	if errno := u.Enable(); errno != 0 {
		t.Fatal(errno)
	}
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ln)
	if err := unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	unix.Listen(ln, 4)
	var sa Sockaddr
	Getsockname(int32(ln), &sa)
	fd, errno := Socket(unix.AF_INET)
	if errno != 0 {
		t.Fatal(errno)
	}
	u.Connect(fd, &sa, 1)
	if list := u.wait(t, nil); list[0].Res != 0 {
		t.Errorf("connect: %+v", list)
	}
	u.CloseFD(fd, 2)
	u.Enter(0, false)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is still open: %v", err)
	}
}
