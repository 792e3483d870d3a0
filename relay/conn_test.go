package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func addrPort(sa *unix.SockaddrInet4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
}

func TestConnect(t *testing.T) { eachEngine(t, testConnect) }

func testConnect(t *testing.T) {
	l := newTestLoop(t, Options{})
	ln, sa := listenTCP(t, 8)
	closeOnCleanup(t, ln)
	loopback := netip.MustParseAddr("127.0.0.1")
	mapped := netip.AddrPortFrom(netip.AddrFrom16(netip.MustParseAddr("::ffff:127.0.0.1").As16()), uint16(sa.Port))
	prepared := 0
	for _, target := range []Target{
		{Addr: addrPort(sa)},
		{Addr: mapped},
		{Addr: addrPort(sa), Source: netip.MustParseAddr("127.0.0.9")},
		{Addr: addrPort(sa), Source: loopback, Prepare: func(int32) unix.Errno { prepared++; return 0 }},
	} {
		h := recorder{t: t}
		var c Conn
		if op, errno := l.Connect(&c, &target, &h); errno != 0 {
			t.Fatalf("%v: %s: %v", target.Addr, op, errno)
		}
		l.until("the connection", func() bool { return h.conns == 1 })
		if h.errno != 0 {
			t.Errorf("%v: OnConnect says %v", target.Addr, h.errno)
		}
		local := c.LocalAddr()
		if target.Source.IsValid() && local.Addr() != target.Source || !local.IsValid() {
			t.Errorf("source %v: local address %v", target.Source, local)
		}
		c.Close()
	}
	if prepared != 1 {
		t.Errorf("Prepare called %d times", prepared)
	}
}

// TCP_NODELAY is in force from the second write on, and not asked for where it
// is not wanted.
func TestNoDelay(t *testing.T) { eachEngine(t, testNoDelay) }

func testNoDelay(t *testing.T) {
	l := newTestLoop(t, Options{})
	ln, sa := listenTCP(t, 8)
	closeOnCleanup(t, ln)
	for _, want := range []bool{true, false} {
		h := recorder{t: t}
		var c Conn
		if op, errno := l.Connect(&c, &Target{Addr: addrPort(sa), NoDelay: want}, &h); errno != 0 {
			t.Fatalf("%s: %v", op, errno)
		}
		l.until("the connection", func() bool { return h.conns == 1 })
		for i := range 3 {
			c.Write([]byte("x"))
			if n := c.Pending(); n != 0 {
				t.Fatalf("%d bytes pending", n)
			}
			v, err := unix.GetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
			must(t, err)
			if is := v != 0; is != (want && i > 0) {
				t.Errorf("wanted %v: after write %d it is %v", want, i+1, is)
			}
		}
		c.Close()
	}
}

func TestConnectUnix(t *testing.T) { eachEngine(t, testConnectUnix) }

func testConnectUnix(t *testing.T) {
	l := newTestLoop(t, Options{})
	path := filepath.Join(t.TempDir(), "s")
	for _, name := range []string{path, fmt.Sprintf("@relay-test-%d", unix.Getpid())} {
		ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Bind(ln, &unix.SockaddrUnix{Name: name}))
		must(t, unix.Listen(ln, 1))
		h := recorder{t: t}
		var c Conn
		if op, errno := l.Connect(&c, &Target{Unix: name}, &h); errno != 0 {
			t.Fatalf("%s: %s: %v", name, op, errno)
		}
		if h.conns != 0 {
			t.Error("OnConnect came from within Connect")
		}
		l.until("the connection", func() bool { return h.conns == 1 })
		l.settle()
		if h.conns != 1 || h.errno != 0 || len(h.log) != 1 {
			t.Errorf("%s: %v", name, h.log)
		}
		c.Close()
		unix.Close(ln)
	}
}

// connectFails says how a connection failed, be it at once or later.
func connectFails(l *testLoop, target *Target) unix.Errno {
	h := recorder{t: l.t}
	var c Conn
	_, errno := l.Connect(&c, target, &h)
	if errno != 0 {
		if c.IsOpen() {
			l.t.Error("a connection that could not be started is open")
		}
		return errno
	}
	l.until("the failure", func() bool { return h.conns == 1 })
	l.settle()
	if h.conns != 1 || h.err != 0 {
		l.t.Errorf("calls of a connection that failed: %v", h.log)
	}
	c.Close()
	return h.errno
}

func TestConnectFails(t *testing.T) { eachEngine(t, testConnectFails) }

func testConnectFails(t *testing.T) {
	l := newTestLoop(t, Options{})
	ln, sa := listenTCP(t, 1)
	unix.Close(ln)
	for _, c := range []struct {
		name   string
		target Target
		want   unix.Errno
	}{
		{"refused", Target{Addr: addrPort(sa)}, unix.ECONNREFUSED},
		{"no such file", Target{Unix: filepath.Join(t.TempDir(), "none")}, unix.ENOENT},
		{"name too long", Target{Unix: string(make([]byte, 200))}, unix.ENAMETOOLONG},
		{"foreign source", Target{Addr: addrPort(sa), Source: netip.MustParseAddr("192.0.2.1")}, unix.EADDRNOTAVAIL},
		{"option refused", Target{Addr: addrPort(sa), Prepare: func(int32) unix.Errno { return unix.EPERM }}, unix.EPERM},
	} {
		if got := connectFails(l, &c.target); got != c.want {
			t.Errorf("%s: %v, %v wanted", c.name, got, c.want)
		}
	}
}

// A connection whose SYN is never answered stays silent until its owner closes
// it, as upon a timeout.
func TestConnectTimesOut(t *testing.T) { eachEngine(t, testConnectTimesOut) }

func testConnectTimesOut(t *testing.T) {
	l := newTestLoop(t, Options{})
	ln, sa := listenTCP(t, 0)
	closeOnCleanup(t, ln)
	var conns [4]Conn
	h := recorder{t: t}
	for i := range conns {
		if op, errno := l.Connect(&conns[i], &Target{Addr: addrPort(sa)}, &h); errno != 0 {
			t.Fatalf("%s: %v", op, errno)
		}
	}
	l.settle()
	if h.conns == len(conns) {
		t.Skip("the kernel's accept queue took all connections")
	}
	before := h.conns
	for i := range conns {
		conns[i].Close()
	}
	l.settle()
	if h.conns != before {
		t.Error("OnConnect after Close")
	}
}

// What is written before the connection stands goes out when it does, and the
// FIN after it.
func TestWriteBeforeConnected(t *testing.T) { eachEngine(t, testWriteBeforeConnected) }

func testWriteBeforeConnected(t *testing.T) {
	l := newTestLoop(t, Options{})
	ln, sa := listenTCP(t, 8)
	closeOnCleanup(t, ln)
	h := recorder{t: t}
	var c Conn
	if op, errno := l.Connect(&c, &Target{Addr: addrPort(sa)}, &h); errno != 0 {
		t.Fatalf("%s: %v", op, errno)
	}
	c.flags &^= flagWritable
	c.Write([]byte("early "))
	c.Write2([]byte("and "), []byte("late"))
	c.Shutdown()
	if c.Pending() != 14 {
		t.Fatalf("%d bytes wait, 14 wanted", c.Pending())
	}
	l.until("OnSent", func() bool { return h.sents == 1 })
	fd, _, err := unix.Accept4(ln, unix.SOCK_NONBLOCK)
	must(t, err)
	closeOnCleanup(t, fd)
	got, eof, err := peerRead(fd, 100)
	if string(got) != "early and late" || !eof || err != nil {
		t.Errorf("peer got %q, eof %v, %v", got, eof, err)
	}
	c.Close()
}

// writeRandomly writes the pattern in pieces by Write and Write2.
func writeRandomly(r *rand.Rand, c *Conn, p []byte) {
	for len(p) > 0 {
		n := min(len(p), 1+r.IntN(1<<r.IntN(17)))
		if r.IntN(2) == 0 {
			c.Write(p[:n])
		} else {
			k := r.IntN(n + 1)
			c.Write2(p[:k], p[k:n])
		}
		p = p[n:]
	}
}

func TestWriteToSlowReader(t *testing.T) { eachEngine(t, testWriteToSlowReader) }

func testWriteToSlowReader(t *testing.T) {
	for _, pair := range []func(*testing.T) (int, int){tcpPair, unixPair} {
		for seed := range uint64(2) {
			l := newTestLoop(t, Options{})
			r := rand.New(rand.NewPCG(seed, 4))
			peer, fd := pair(t)
			smallBuffers(fd)
			smallBuffers(peer)
			h := recorder{t: t}
			var c Conn
			l.open(&c, fd, &h)
			want := patterned(byte(seed), 1<<19)
			writeRandomly(r, &c, want)
			if c.Pending() == 0 || !c.Blocked() {
				t.Fatal("512 KB went into a small socket")
			}
			c.Shutdown()
			var got []byte
			eof := false
			l.until("the stream", func() bool {
				if h.sents > 0 && c.Pending() > 0 {
					t.Fatal("OnSent while output waits")
				}
				poison(&l.chunks)
				p, end, err := peerRead(peer, 1+r.IntN(60_000))
				must(t, err)
				got = append(got, p...)
				eof = end
				return end
			})
			if !eof || !bytes.Equal(got, want) {
				t.Fatalf("seed %d: the reader got %d bytes of %d, or others", seed, len(got), len(want))
			}
			l.until("OnSent", func() bool { return h.sents > 0 })
			if h.sents != 1 || c.Blocked() {
				t.Errorf("OnSent %d times, blocked %v", h.sents, c.Blocked())
			}
			c.Close()
			unix.Close(peer)
		}
	}
}

// A write that the socket takes whole makes no OnSent; NotifySent does, once.
func TestNotifySent(t *testing.T) { eachEngine(t, testNotifySent) }

func testNotifySent(t *testing.T) {
	l := newTestLoop(t, Options{})
	_, c, h := l.openPair()
	c.Write([]byte("hello"))
	l.settle()
	if h.sents != 0 {
		t.Error("OnSent for output that never waited")
	}
	c.NotifySent()
	if h.sents != 0 {
		t.Error("OnSent from within NotifySent")
	}
	l.settle()
	if h.sents != 1 {
		t.Errorf("OnSent %d times, 1 wanted", h.sents)
	}
	c.Close()
	c.Write([]byte("x"))
	c.Write2([]byte("x"), []byte("y"))
	if c.Pending() != 0 {
		t.Error("a closed connection keeps output")
	}
	c.Close()
}

func TestReadAndEOF(t *testing.T) { eachEngine(t, testReadAndEOF) }

func testReadAndEOF(t *testing.T) {
	for _, size := range []int{0, 1, 5, 1 << 16} {
		l := newTestLoop(t, Options{})
		peer, fd := tcpPair(t)
		h := recorder{t: t}
		var c Conn
		l.open(&c, fd, &h)
		c.SetReadSize(size)
		want := patterned(1, 5000)
		peerWrite(t, peer, want)
		must(t, unix.Shutdown(peer, unix.SHUT_WR))
		// Data and FIN are there before the loop looks: one event for both.
		c.StartRead()
		l.until("the end", func() bool { return h.eofs == 1 })
		l.settle()
		if !bytes.Equal(h.data, want) || h.eofs != 1 || h.err != 0 {
			t.Errorf("read size %d: %d bytes, %d ends, %d errors", size, len(h.data), h.eofs, h.err)
		}
		if !c.HangupSeen() {
			t.Error("HangupSeen does not say that the peer has finished")
		}
		c.Close()
		unix.Close(peer)
	}
}

// With the FIN in the same event of epoll no further read is needed to see the
// end.
func TestEOFIsInferred(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, c, h := l.openPair()
	c.StartRead()
	peerWrite(t, peer, []byte("request"))
	must(t, unix.Shutdown(peer, unix.SHUT_WR))
	drained := false
	h.onData = func(c *Conn, _ []byte) { drained = c.flags&flagDrained != 0 }
	l.until("the end", func() bool { return h.eofs == 1 })
	if !drained || string(h.data) != "request" {
		t.Errorf("drained %v after %q", drained, h.data)
	}
	c.Close()
}

// Data that arrives after the handler has stopped waits, as does the end.
func TestStopRead(t *testing.T) { eachEngine(t, testStopRead) }

func testStopRead(t *testing.T) {
	for _, size := range []int{0, 3} {
		l := newTestLoop(t, Options{})
		peer, fd := tcpPair(t)
		h := recorder{t: t, onData: func(c *Conn, _ []byte) { c.StopRead() }}
		var c Conn
		l.open(&c, fd, &h)
		c.SetReadSize(size)
		c.StartRead()
		peerWrite(t, peer, []byte("abcdef"))
		must(t, unix.Shutdown(peer, unix.SHUT_WR))
		l.settle()
		calls := 1
		if len(h.log) != calls {
			t.Fatalf("calls after StopRead: %v", h.log)
		}
		for h.eofs == 0 {
			c.StartRead()
			l.settle()
			if len(h.log) > calls+1 {
				t.Fatalf("more than one call for one StartRead: %v", h.log)
			}
			if len(h.log) == calls {
				t.Fatalf("StartRead brings nothing more after %v", h.log)
			}
			calls++
		}
		if string(h.data) != "abcdef" {
			t.Errorf("got %q", h.data)
		}
		c.Close()
		unix.Close(peer)
	}
}

// A short read before urgent data is not the end of what has come (tcp(7)).
func TestUrgentData(t *testing.T) { eachEngine(t, testUrgentData) }

func testUrgentData(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, c, h := l.openPair()
	c.StartRead()
	for range 20 {
		peerWrite(t, peer, []byte("before"))
		must(t, unix.Sendto(peer, []byte("!"), unix.MSG_OOB, nil))
		peerWrite(t, peer, []byte("after."))
	}
	must(t, unix.Shutdown(peer, unix.SHUT_WR))
	l.until("the end", func() bool { return h.eofs == 1 })
	got := bytes.ReplaceAll(h.data, []byte("!"), nil)
	if want := bytes.Repeat([]byte("beforeafter."), 20); !bytes.Equal(got, want) {
		t.Errorf("got %q", h.data)
	}
	c.Close()
}

// states are what a connection can be doing when its peer goes away.
var states = []struct {
	name  string
	begin func(l *testLoop, c *Conn, peer int)
}{
	{"idle", func(*testLoop, *Conn, int) {}},
	{"reading", func(_ *testLoop, c *Conn, _ int) { c.StartRead() }},
	{"stopped with unread data", func(l *testLoop, c *Conn, peer int) {
		peerWrite(l.t, peer, []byte("unread"))
		l.settle()
	}},
	{"output waits", func(l *testLoop, c *Conn, _ int) {
		c.Write(make([]byte, 16<<20))
		l.settle()
	}},
	{"reading while output waits", func(l *testLoop, c *Conn, _ int) {
		c.StartRead()
		c.Write(make([]byte, 16<<20))
		l.settle()
	}},
	{"shut down", func(_ *testLoop, c *Conn, _ int) { c.Shutdown() }},
	{"shut down and reading", func(_ *testLoop, c *Conn, _ int) {
		c.StartRead()
		c.Shutdown()
	}},
}

func TestResetIsReportedOnce(t *testing.T) { eachEngine(t, testResetIsReportedOnce) }

func testResetIsReportedOnce(t *testing.T) {
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			peer, fd := tcpPair(t)
			h := recorder{t: t}
			var c Conn
			l.open(&c, fd, &h)
			s.begin(l, &c, peer)
			l.settle()
			reset(peer)
			l.until("OnError", func() bool { return h.err > 0 })
			l.settle()
			c.Write([]byte("more"))
			c.Shutdown()
			l.settle()
			if h.err != 1 || h.eofs != 0 {
				t.Errorf("calls: %v", h.log)
			}
			if h.errno != unix.ECONNRESET && h.errno != unix.EPIPE {
				t.Errorf("errno %v", h.errno)
			}
			if !c.HangupSeen() {
				t.Error("HangupSeen is false after a reset")
			}
			c.Close()
		})
	}
}

// A peer that closes in order ends the stream, and no error is made of it.
func TestOrderlyCloseIsNoError(t *testing.T) { eachEngine(t, testOrderlyCloseIsNoError) }

func testOrderlyCloseIsNoError(t *testing.T) {
	l := newTestLoop(t, Options{})
	for _, pair := range []func(*testing.T) (int, int){tcpPair, unixPair} {
		peer, fd := pair(t)
		h := recorder{t: t}
		var c Conn
		l.open(&c, fd, &h)
		c.Shutdown()
		l.settle()
		unix.Close(peer)
		l.settle()
		if len(h.log) != 0 {
			t.Errorf("calls without reading: %v", h.log)
		}
		c.StartRead()
		l.until("the end", func() bool { return h.eofs == 1 })
		if h.err != 0 {
			t.Errorf("calls: %v", h.log)
		}
		c.Close()
	}
}

// What came before a close is read first, even when the close was a reset.
func TestDataBeforeClose(t *testing.T) { eachEngine(t, testDataBeforeClose) }

func testDataBeforeClose(t *testing.T) {
	for _, end := range []func(int){func(fd int) { unix.Close(fd) }, func(fd int) { unix.Shutdown(fd, unix.SHUT_WR) }} {
		for _, pair := range []func(*testing.T) (int, int){tcpPair, unixPair} {
			l := newTestLoop(t, Options{BufferSize: 1000})
			peer, fd := pair(t)
			h := recorder{t: t}
			var c Conn
			l.open(&c, fd, &h)
			want := patterned(3, 30_000)
			if n := peerWrite(t, peer, want); n < len(want) {
				t.Fatalf("the socket took %d bytes only", n)
			}
			end(peer)
			c.StartRead()
			l.until("the end", func() bool { return h.eofs == 1 })
			if !bytes.Equal(h.data, want) {
				t.Errorf("%d bytes of %d", len(h.data), len(want))
			}
			c.Close()
			unix.Close(peer)
		}
	}
}

// Each callback may close its connection and open it again at once on another
// descriptor; nothing of the first life may reach the second.
func TestCloseAndReuseInCallbacks(t *testing.T) { eachEngine(t, testCloseAndReuseInCallbacks) }

func testCloseAndReuseInCallbacks(t *testing.T) {
	for _, call := range []string{"connect", "data", "eof", "sent", "error", "flow"} {
		t.Run(call, func(t *testing.T) {
			l := newTestLoop(t, Options{BufferSize: 64})
			ln, sa := listenTCP(t, 8)
			peer, fd := tcpPair(t)
			peer2, fd2 := tcpPair(t)
			sink, fd3 := tcpPair(t)
			closeOnCleanup(t, ln, peer2, sink)
			second := recorder{t: t}
			var c, dst Conn
			var f Flow
			done := false
			reuse := func(c *Conn) {
				c.Close()
				l.open(c, fd2, &second)
				c.StartRead()
				done = true
			}
			h := recorder{t: t}
			begin := func() { l.open(&c, fd, &h) }
			trigger := func() {}
			switch call {
			case "connect":
				unix.Close(fd)
				h.onConnect = func(c *Conn, _ unix.Errno) { reuse(c) }
				begin = func() { l.Connect(&c, &Target{Addr: addrPort(sa)}, &h) }
			case "data":
				h.onData = func(c *Conn, _ []byte) { reuse(c) }
				trigger = func() { c.StartRead(); peerWrite(t, peer, make([]byte, 1000)) }
			case "eof":
				h.onEOF = func(c *Conn) { reuse(c) }
				trigger = func() { c.StartRead(); unix.Shutdown(peer, unix.SHUT_WR) }
			case "sent":
				h.onSent = func(c *Conn) { reuse(c) }
				trigger = func() {
					c.StartRead()
					c.Write([]byte("x"))
					c.NotifySent()
					peerWrite(t, peer, make([]byte, 1000))
				}
			case "error":
				h.onError = func(c *Conn, _ unix.Errno) { reuse(c) }
				trigger = func() {
					c.StartRead()
					c.Write(make([]byte, 1000))
					l.settle()
					reset(peer)
					peer = -1
				}
			case "flow":
				h.onFlow = func(*Flow) { reuse(&c) }
				trigger = func() {
					l.StartFlow(&f, &c, &dst, 100, &copyOnly, newMeter())
					peerWrite(t, peer, make([]byte, 1000))
				}
			}
			l.open(&dst, fd3, &recorder{t: t})
			begin()
			trigger()
			l.until("the callback", func() bool { return done })
			calls := len(h.log)
			peerWrite(t, peer2, []byte("second life"))
			l.until("data of the second life", func() bool { return len(second.data) == 11 })
			l.settle()
			if len(h.log) != calls {
				t.Errorf("the first handler was called again: %v", h.log)
			}
			if want := []string{"data 11"}; !slices.Equal(second.log, want) {
				t.Errorf("calls of the second life: %v", second.log)
			}
			c.Close()
			dst.Close()
			unix.Close(peer)
		})
	}
}

func TestResetSendsRST(t *testing.T) { eachEngine(t, testResetSendsRST) }

func testResetSendsRST(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, fd := tcpPair(t)
	closeOnCleanup(t, peer)
	var c Conn
	l.open(&c, fd, &recorder{t: t})
	c.Reset()
	l.settle()
	if _, _, err := peerRead(peer, 1); err != unix.ECONNRESET {
		t.Errorf("peer reads %v, ECONNRESET wanted", err)
	}
	c.Reset()
}

func TestOpenFails(t *testing.T) {
	l := newTestLoop(t, Options{})
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	reg, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	unix.Close(fd)
	var c Conn
	if errno := l.Open(&c, int32(reg), &recorder{t: t}); errno != unix.EPERM {
		t.Errorf("a regular file in epoll: %v", errno)
	}
	if c.IsOpen() {
		t.Error("open after a failure")
	}
}

// The ring finds out later that a descriptor is no socket.
func TestNoSocketInRing(t *testing.T) {
	onRing(t, func(t *testing.T) {
		l := newTestLoop(t, Options{})
		reg, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		h := recorder{t: t}
		var c Conn
		l.open(&c, reg, &h)
		c.StartRead()
		l.until("the failure", func() bool { return h.err == 1 })
		c.Close()
	})
}

// A flood from one peer does not keep the others waiting: each turn reads a
// bounded number of times from it.
func TestReadsPerTurn(t *testing.T) { eachEngine(t, testReadsPerTurn) }

func testReadsPerTurn(t *testing.T) {
	l := newTestLoop(t, Options{BufferSize: 1000})
	peer, c, h := l.openPair()
	c.StartRead()
	peerWrite(t, peer, make([]byte, 200_000))
	for len(h.log) < 100 {
		before := len(h.log)
		l.turn()
		if n := len(h.log) - before; n > 2*readsPerTurn {
			t.Fatalf("%d reads in a turn", n)
		}
	}
	c.Close()
}
