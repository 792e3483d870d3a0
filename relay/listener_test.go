package relay

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// acceptor is an AcceptHandler that keeps what it accepts.
type acceptor struct {
	admitted  int
	fds       []int32
	peers     []netip.AddrPort
	none      int // accepts that brought nothing
	exhausted int
	errno     unix.Errno
	refuse    func(s *Listener) bool
}

func (a *acceptor) Admit(s *Listener) bool {
	if a.refuse != nil && a.refuse(s) {
		return false
	}
	a.admitted++
	return true
}

func (a *acceptor) OnAccept(_ *Listener, fd int32, peer netip.AddrPort) {
	a.fds = append(a.fds, fd)
	a.peers = append(a.peers, peer)
}

func (a *acceptor) OnNoAccept(*Listener) {
	a.admitted--
	a.none++
}

func (a *acceptor) OnExhausted(_ *Listener, errno unix.Errno) {
	a.exhausted++
	a.errno = errno
}

func (a *acceptor) closeAll() {
	for _, fd := range a.fds {
		unix.Close(int(fd))
	}
	a.fds = nil
}

// dialTCP opens a blocking connection to sa.
func dialTCP(sa *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func dialMany(t *testing.T, sa *unix.SockaddrInet4, n int) {
	t.Helper()
	for range n {
		fd, err := dialTCP(sa)
		must(t, err)
		closeOnCleanup(t, fd)
	}
}

func (l *testLoop) listen(s *Listener, fd int, shared bool, h AcceptHandler) {
	l.t.Helper()
	if errno := l.Listen(s, int32(fd), shared, h); errno != 0 {
		l.t.Fatalf("Listen: %v", errno)
	}
}

// listenTCP has a Listener accept from a socket; all of it is closed with the test.
func (l *testLoop) listenTCP() (fd int, at *unix.SockaddrInet4, s *Listener, a *acceptor) {
	l.t.Helper()
	fd, at = listenTCP(l.t, 64)
	closeOnCleanup(l.t, fd)
	s, a = &Listener{}, &acceptor{}
	l.t.Cleanup(a.closeAll)
	l.listen(s, fd, false, a)
	return fd, at, s, a
}

func TestAccept(t *testing.T) { eachEngine(t, testAccept) }

func testAccept(t *testing.T) {
	l := newTestLoop(t, Options{})
	_, sa, s, a := l.listenTCP()
	dialMany(t, sa, 10)
	l.until("10 connections", func() bool { return len(a.fds) == 10 })
	if a.admitted != 10 {
		t.Errorf("%d admitted", a.admitted)
	}
	for i, p := range a.peers {
		if p.Addr() != netip.MustParseAddr("127.0.0.1") || p.Port() == 0 {
			t.Errorf("peer %v", p)
		}
		flags, err := unix.FcntlInt(uintptr(a.fds[i]), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("accepted socket: flags %#x, %v", flags, err)
		}
	}
	s.Pause()
}

func TestPauseAndResume(t *testing.T) { eachEngine(t, testPauseAndResume) }

func testPauseAndResume(t *testing.T) {
	l := newTestLoop(t, Options{})
	_, sa, s, a := l.listenTCP()
	s.Pause()
	s.Pause()
	dialMany(t, sa, 3)
	l.settle()
	if len(a.fds) != 0 || s.Active() {
		t.Fatalf("%d accepted while paused", len(a.fds))
	}
	for range 2 {
		if errno := s.Resume(); errno != 0 || !s.Active() {
			t.Fatalf("Resume: %v", errno)
		}
	}
	l.until("3 connections", func() bool { return len(a.fds) == 3 })

	s.PauseFor(100)
	start := l.Now()
	dialMany(t, sa, 1)
	l.until("the end of the pause", func() bool { return len(a.fds) == 4 })
	if waited := l.Now() - start; waited < 100 {
		t.Errorf("the pause of 100 ms took %d", waited)
	}
	s.PauseFor(20)
	s.Pause()
	l.settle()
	if s.Active() || s.retry.Set() {
		t.Error("Pause leaves the timer of PauseFor")
	}
}

// Refusing costs one turn each time: nothing spins while there is no room.
func TestAdmitRefuses(t *testing.T) { eachEngine(t, testAdmitRefuses) }

func testAdmitRefuses(t *testing.T) {
	l := newTestLoop(t, Options{})
	fd, sa := listenTCP(t, 64)
	closeOnCleanup(t, fd)
	var s Listener
	refused := 0
	a := acceptor{refuse: func(s *Listener) bool {
		if refused++; refused <= 3 {
			s.PauseFor(64)
			return true
		}
		return false
	}}
	t.Cleanup(a.closeAll)
	l.listen(&s, fd, false, &a)
	dialMany(t, sa, 1)
	before, start := l.stats.Turns, l.Now()
	l.until("the connection", func() bool { return len(a.fds) == 1 })
	// The test's own timer turns the loop as well.
	own := uint64(l.Now()-start) / nearTickMS
	if turns := l.stats.Turns - before; turns > 60+2*own {
		t.Errorf("%d turns for three refusals", turns)
	}
	s.Pause()
}

func TestDrain(t *testing.T) { eachEngine(t, testDrain) }

func testDrain(t *testing.T) {
	l := newTestLoop(t, Options{})
	_, sa, s, a := l.listenTCP()
	s.Pause()
	dialMany(t, sa, 5)
	s.Drain(2)
	if len(a.fds) != 2 {
		t.Errorf("Drain(2) accepted %d", len(a.fds))
	}
	s.Drain(100)
	if len(a.fds) != 5 || a.admitted != 5 {
		t.Errorf("Drain accepted %d, %d admitted", len(a.fds), a.admitted)
	}
}

// Several loops on one socket: each connection is taken once.
func TestSharedListener(t *testing.T) { eachEngine(t, testSharedListener) }

func testSharedListener(t *testing.T) {
	fd, sa := listenTCP(t, 256)
	closeOnCleanup(t, fd)
	var loops [3]*testLoop
	var lis [3]Listener
	var acc [3]acceptor
	for i := range loops {
		loops[i] = newTestLoop(t, Options{})
		t.Cleanup(acc[i].closeAll)
		loops[i].listen(&lis[i], fd, true, &acc[i])
	}
	dialMany(t, sa, 60)
	total := func() int { return len(acc[0].fds) + len(acc[1].fds) + len(acc[2].fds) }
	for start := time.Now(); total() < 60; {
		for _, l := range loops {
			l.turn()
		}
		if time.Since(start) > limit {
			t.Fatalf("%d of 60 connections accepted", total())
		}
	}
	for i := range lis {
		if acc[i].exhausted != 0 {
			t.Errorf("loop %d: %v", i, acc[i].errno)
		}
		lis[i].Pause()
		acc[i].closeAll()
	}
	for _, l := range loops {
		l.settle()
	}
}

// A listening socket that another holder has shut down is tried again and
// again, but the loop sleeps between.
func TestAcceptFromShutDownSocket(t *testing.T) { eachEngine(t, testAcceptFromShutDownSocket) }

func testAcceptFromShutDownSocket(t *testing.T) {
	l := newTestLoop(t, Options{})
	fd, _, s, a := l.listenTCP()
	must(t, unix.Shutdown(fd, unix.SHUT_RD))
	before := l.stats.Turns
	l.until("three attempts", func() bool { return a.none == 3 })
	if turns := l.stats.Turns - before; turns > 60 {
		t.Errorf("%d turns while nothing could be accepted", turns)
	}
	if a.exhausted != 0 {
		t.Errorf("reported as %v", a.errno)
	}
	must(t, unix.Listen(fd, 8))
	sa, err := unix.Getsockname(fd)
	must(t, err)
	dialMany(t, sa.(*unix.SockaddrInet4), 1)
	l.until("a connection", func() bool { return len(a.fds) == 1 })
	s.Pause()
}

// A listener may be started again while its pause has not ended.
func TestListenAgain(t *testing.T) { eachEngine(t, testListenAgain) }

func testListenAgain(t *testing.T) {
	l := newTestLoop(t, Options{})
	fd, _, s, a := l.listenTCP()
	s.PauseFor(50)
	l.listen(s, fd, false, a)
	start := l.Now()
	l.until("the old pause to pass", func() bool { return l.Now() > start+200 })
	s.Pause()
}

// Without descriptors accepting pauses and goes on by itself. The child process
// has a limit of its own.
func TestAcceptWithoutDescriptors(t *testing.T) { eachEngine(t, testAcceptWithoutDescriptors) }

func testAcceptWithoutDescriptors(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+testEngine.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

func childEMFILE(e Engine) int {
	runtime.LockOSThread()
	fail := func(format string, args ...any) int {
		fmt.Printf(format+"\n", args...)
		return 1
	}
	loop, err := NewLoop(Options{Engine: e})
	if err != nil {
		return fail("%v", err)
	}
	l := &testLoop{Loop: loop}
	l.OnTimer(nil)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fail("%v", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fail("%v", err)
	}
	unix.Listen(fd, 64)
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fail("%v", err)
	}
	const clients = 20
	for range clients {
		if _, err := dialTCP(sa.(*unix.SockaddrInet4)); err != nil {
			return fail("dial: %v", err)
		}
	}
	// Room for half of them.
	high := 0
	for fd := range 200 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			high = fd
		}
	}
	rl := unix.Rlimit{Cur: uint64(high + 1 + clients/2), Max: 1024}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &rl); err != nil {
		return fail("setrlimit: %v", err)
	}
	var s Listener
	var a acceptor
	if errno := l.Listen(&s, int32(fd), false, &a); errno != 0 {
		return fail("Listen: %v", errno)
	}
	start, before := time.Now(), l.stats.Turns
	for a.exhausted < 4 {
		if time.Since(start) > limit {
			return fail("accepting did not pause: %d accepted", len(a.fds))
		}
		l.turn()
	}
	accepted := len(a.fds)
	if accepted == 0 || accepted == clients || a.errno != unix.EMFILE {
		return fail("%d accepted, errno %v", accepted, a.errno)
	}
	// A turn per connection, and those of the beat and the pauses.
	allowed := uint64(accepted) + 20 + 3*uint64(time.Since(start)/(20*time.Millisecond))
	if turns := l.stats.Turns - before; turns > allowed {
		return fail("%d turns in %v: accepting spins", turns, time.Since(start))
	}
	a.closeAll()
	for start := time.Now(); a.admitted < clients; l.turn() {
		if time.Since(start) > limit {
			return fail("accepting did not resume: %d accepted", a.admitted)
		}
	}
	return 0
}
