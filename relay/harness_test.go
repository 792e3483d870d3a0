package relay

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// childEnv names the part that the test binary plays when a test has started
// it again.
const childEnv = "RELAY_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		// The runtime opens its own descriptors with the first timer.
		time.Sleep(time.Millisecond)
		countFDs()
		os.Exit(m.Run())
	case EngineEpoll.String():
		os.Exit(childEMFILE(EngineEpoll))
	case EngineURing.String():
		os.Exit(childEMFILE(EngineURing))
	case "collect-epoll":
		os.Exit(childCollect(EngineEpoll))
	case "collect-io_uring":
		os.Exit(childCollect(EngineURing))
	default:
		os.Exit(2)
	}
}

// testEngine is the engine of the loops that a test opens.
var testEngine = EngineEpoll

// eachEngine runs a test with every engine that this machine permits.
func eachEngine(t *testing.T, test func(t *testing.T)) {
	t.Run(EngineEpoll.String(), test)
	t.Run(EngineURing.String(), func(t *testing.T) { onRing(t, test) })
}

// onRing runs a test with the engine io_uring.
func onRing(t *testing.T, test func(t *testing.T)) {
	if err := sys.ProbeUring(); err != nil {
		t.Skip(err)
	}
	testEngine = EngineURing
	defer func() { testEngine = EngineEpoll }()
	test(t)
}

// limit bounds a wait for something that must come; it is generous because the
// machine may be busy.
const limit = 30 * time.Second

func countFDs() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(names)
}

// testLoop is a Loop that a test drives turn by turn, with a timer that lets
// no turn wait for long.
type testLoop struct {
	*Loop
	t    *testing.T
	beat Timer
}

// newTestLoop opens a loop and checks, when the test ends, that no descriptor
// is left over.
func newTestLoop(t *testing.T, o Options) *testLoop {
	t.Helper()
	// The ring belongs to one thread.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	before := countFDs()
	o.Engine = testEngine
	loop, err := NewLoop(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &testLoop{Loop: loop, t: t}
	l.OnTimer(nil)
	t.Cleanup(func() {
		l.pipes.trim(0)
		if l.pipes.open != 0 {
			t.Errorf("%d pipes are in use after the test", l.pipes.open)
		}
		if l.conns != 0 {
			t.Errorf("%d connections are open after the test", l.conns)
		}
		l.closeInbox()
		l.closeDescriptors()
		if after := countFDs(); after != before {
			t.Errorf("%d descriptors before the test, %d after", before, after)
		}
	})
	return l
}

func (l *testLoop) OnTimer(*Timer) { l.SetTimer(&l.beat, nearTickMS, l) }

// submit has the kernel do what the ring has prepared, for peers that are
// looked at before the next turn.
func (l *testLoop) submit() {
	if l.ring != nil {
		l.ring.prepare()
		l.ring.submit()
	}
}

// until turns the loop until cond holds.
func (l *testLoop) until(what string, cond func() bool) {
	l.t.Helper()
	for start := time.Now(); !cond(); l.turn() {
		if time.Since(start) > limit {
			l.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// settle turns the loop until a turn has waited in vain: what the kernel does
// in its own time has arrived by then.
func (l *testLoop) settle() {
	for {
		before, start := l.stats.Events, time.Now()
		l.turn()
		if l.stats.Events == before && l.run.empty() && time.Since(start) > 5*time.Millisecond {
			return
		}
	}
}

// arrives waits until fd has something to read.
func arrives(t *testing.T, fd int) {
	t.Helper()
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(limit.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Fatalf("nothing arrives: %v", err)
		}
		return
	}
}

// closeOnCleanup closes fd before the loop's own check of descriptors.
func closeOnCleanup(t *testing.T, fds ...int) {
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listenTCP returns a listening socket on a free loopback port.
func listenTCP(t *testing.T, backlog int) (fd int, addr *unix.SockaddrInet4) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(fd, backlog))
	sa, err := unix.Getsockname(fd)
	must(t, err)
	return fd, sa.(*unix.SockaddrInet4)
}

// tcpPair returns the two ends of a TCP connection, both non-blocking.
func tcpPair(t *testing.T) (a, b int) {
	t.Helper()
	ln, addr := listenTCP(t, 8)
	defer unix.Close(ln)
	a, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	// Segments as on a real link: with those of loopback, larger than the
	// small buffers, TCP falls back to its persist timer.
	must(t, unix.SetsockoptInt(ln, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1448))
	must(t, unix.SetsockoptInt(a, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1448))
	must(t, unix.Connect(a, addr))
	must(t, unix.SetNonblock(a, true))
	for {
		b, _, err = unix.Accept4(ln, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != unix.EAGAIN {
			break
		}
	}
	must(t, err)
	for _, fd := range []int{a, b} {
		must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	return a, b
}

func unixPair(t *testing.T) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	return p[0], p[1]
}

func smallBuffers(fd int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 32<<10)
}

// peerWrite writes what the socket takes of p.
func peerWrite(t *testing.T, fd int, p []byte) int {
	t.Helper()
	sent := 0
	for sent < len(p) {
		n, err := unix.SendmsgN(fd, p[sent:], nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			t.Fatalf("peer's write: %v", err)
		}
		sent += n
	}
	return sent
}

// peerRead reads what is there, up to limit bytes; err is nil at EAGAIN.
func peerRead(fd, limit int) (p []byte, eof bool, err error) {
	for len(p) < limit {
		buf := make([]byte, min(limit-len(p), 64<<10))
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EAGAIN:
			return p, false, nil
		case err != nil:
			return p, false, err
		case n == 0:
			return p, true, nil
		}
		p = append(p, buf[:n]...)
	}
	return p, false, nil
}

// reset closes fd with a RST.
func reset(fd int) {
	unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}

// pattern fills p with the bytes of the stream seed from offset off.
func pattern(p []byte, seed byte, off int) {
	for i := range p {
		x := uint32(off + i)
		x *= 2654435761
		p[i] = byte(x>>24) ^ byte(x>>11) ^ seed
	}
}

func patterned(seed byte, n int) []byte {
	p := make([]byte, n)
	pattern(p, seed, 0)
	return p
}

// recorder is a Handler that notes its calls and lets a test hook into them.
type recorder struct {
	t     *testing.T
	log   []string
	data  []byte
	errno unix.Errno
	err   int
	eofs  int
	sents int
	flows int
	conns int

	onConnect func(c *Conn, errno unix.Errno)
	onData    func(c *Conn, p []byte)
	onEOF     func(c *Conn)
	onSent    func(c *Conn)
	onError   func(c *Conn, errno unix.Errno)
	onFlow    func(f *Flow)
}

func (r *recorder) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) check(c *Conn, call string) {
	if c != nil && !c.IsOpen() {
		r.t.Errorf("%s for a closed connection", call)
	}
}

func (r *recorder) OnConnect(c *Conn, errno unix.Errno) {
	r.check(c, "OnConnect")
	r.note("connect %d", errno)
	r.conns++
	r.errno = errno
	if r.onConnect != nil {
		r.onConnect(c, errno)
	}
}

func (r *recorder) OnData(c *Conn, p []byte) {
	r.check(c, "OnData")
	r.note("data %d", len(p))
	r.data = append(r.data, p...)
	if r.onData != nil {
		r.onData(c, p)
	}
}

func (r *recorder) OnEOF(c *Conn) {
	r.check(c, "OnEOF")
	r.note("eof")
	r.eofs++
	if r.onEOF != nil {
		r.onEOF(c)
	}
}

func (r *recorder) OnSent(c *Conn) {
	r.check(c, "OnSent")
	r.note("sent")
	r.sents++
	if r.onSent != nil {
		r.onSent(c)
	}
}

func (r *recorder) OnError(c *Conn, errno unix.Errno) {
	r.check(c, "OnError")
	r.note("error %d", errno)
	r.err++
	r.errno = errno
	if r.onError != nil {
		r.onError(c, errno)
	}
}

func (r *recorder) OnFlow(f *Flow) {
	r.note("flow eof=%v left=%d", f.EOF(), f.Left())
	r.flows++
	if f.Active() {
		r.t.Error("OnFlow for a flow that is active")
	}
	if r.onFlow != nil {
		r.onFlow(f)
	}
}

func (l *testLoop) open(c *Conn, fd int, h Handler) {
	l.t.Helper()
	if errno := l.Open(c, int32(fd), h); errno != 0 {
		l.t.Fatalf("Open: %v", errno)
	}
}

// openPair opens one end of a TCP connection; the other is closed with the test.
func (l *testLoop) openPair() (peer int, c *Conn, h *recorder) {
	l.t.Helper()
	peer, fd := tcpPair(l.t)
	closeOnCleanup(l.t, peer)
	c, h = &Conn{}, &recorder{t: l.t}
	l.open(c, fd, h)
	return peer, c, h
}

func newMeter() *Meter { return &Meter{Bytes: new(atomic.Uint64), Spliced: new(atomic.Uint64)} }

var (
	autoPolicy   = Policy{Splice: true, Min: 16 << 10, Streak: 2, Small: 4 << 10}
	alwaysPolicy = Policy{Splice: true, Always: true}
)

// relayed is a client and a server at the ends of two connections that flows
// join, as in a tunnel.
type relayed struct {
	l        *testLoop
	client   int
	server   int
	cli, srv Conn
	up, down Flow
	h        recorder
	meter    *Meter
	ended    bool
}

// newRelayed joins two pairs of sockets. A direction that ends is passed on; the
// connections are closed when both have, or when one breaks.
func newRelayed(l *testLoop, policy *Policy, pair func(*testing.T) (int, int)) *relayed {
	x := &relayed{l: l, meter: newMeter()}
	x.h.t = l.t
	var a, b int
	x.client, a = pair(l.t)
	x.server, b = pair(l.t)
	l.open(&x.cli, a, x)
	l.open(&x.srv, b, x)
	l.StartFlow(&x.up, &x.cli, &x.srv, Unlimited, policy, x.meter)
	l.StartFlow(&x.down, &x.srv, &x.cli, Unlimited, policy, x.meter)
	return x
}

func (x *relayed) close() {
	x.ended = true
	x.cli.Close()
	x.srv.Close()
}

func (x *relayed) OnConnect(c *Conn, e unix.Errno) { x.h.OnConnect(c, e) }
func (x *relayed) OnData(c *Conn, p []byte)        { x.h.OnData(c, p) }
func (x *relayed) OnEOF(c *Conn)                   { x.h.OnEOF(c) }

func (x *relayed) OnSent(c *Conn) {
	x.h.sents++
	x.endWhenSent()
}

func (x *relayed) OnError(c *Conn, errno unix.Errno) {
	x.h.err++
	x.h.errno = errno
	x.close()
}

func (x *relayed) OnFlow(f *Flow) {
	x.h.OnFlow(f)
	if f == &x.up {
		x.srv.Shutdown()
	} else {
		x.cli.Shutdown()
	}
	x.endWhenSent()
}

func (x *relayed) endWhenSent() {
	if !x.up.Active() && !x.down.Active() && x.cli.Pending() == 0 && x.srv.Pending() == 0 {
		x.close()
	}
}

// free closes the peers' ends and the connections.
func (x *relayed) free() {
	x.close()
	unix.Close(x.client)
	unix.Close(x.server)
}
