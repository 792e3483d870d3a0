package relay

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var pairs = []struct {
	name string
	pair func(*testing.T) (int, int)
}{{"tcp", tcpPair}, {"unix", unixPair}}

var policies = []struct {
	name   string
	policy Policy
}{{"copy", copyOnly}, {"auto", autoPolicy}, {"always", alwaysPolicy}}

// eachKind runs a test over both kinds of sockets and all policies.
func eachKind(t *testing.T, test func(t *testing.T, pair func(*testing.T) (int, int), p *Policy)) {
	for _, k := range pairs {
		for _, p := range policies {
			t.Run(k.name+"/"+p.name, func(t *testing.T) { test(t, k.pair, &p.policy) })
		}
	}
}

var bigPipes = Options{MaxPipes: 8, PipeSize: 256 << 10}

// Both directions at once, with a reader that takes little at a time, to the
// end of both streams.
func TestFlowUnlimited(t *testing.T) { eachEngine(t, testFlowUnlimited) }

func testFlowUnlimited(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		l := newTestLoop(t, bigPipes)
		x := newRelayed(l, p, pair)
		up, down := patterned(1, 1<<20), patterned(2, 700_000)
		var gotUp, gotDown []byte
		var sentUp, sentDown int
		var endUp, endDown bool
		l.until("both streams", func() bool {
			poison(&l.chunks)
			sentUp += sendOrEnd(t, x.client, up, sentUp)
			sentDown += sendOrEnd(t, x.server, down, sentDown)
			gotUp, endUp = readInto(t, x.server, gotUp, 100_000, endUp)
			gotDown, endDown = readInto(t, x.client, gotDown, 700_000, endDown)
			return endUp && endDown
		})
		l.until("the close", func() bool { return x.ended })
		if !bytes.Equal(gotUp, up) || !bytes.Equal(gotDown, down) {
			t.Errorf("%d bytes of %d up, %d of %d down, or others", len(gotUp), len(up), len(gotDown), len(down))
		}
		if x.h.flows != 2 || x.h.err != 0 || !x.up.EOF() || !x.down.EOF() {
			t.Errorf("%d flows ended, %d errors", x.h.flows, x.h.err)
		}
		if x.up.Moved() != uint64(len(up)) || x.down.Moved() != uint64(len(down)) || x.meter.Bytes.Load() != uint64(len(up)+len(down)) {
			t.Errorf("counted %d up, %d down, %d in all", x.up.Moved(), x.down.Moved(), x.meter.Bytes.Load())
		}
		if spliced := x.meter.Spliced.Load(); p.Splice != (spliced > 0) {
			t.Errorf("%d bytes spliced", spliced)
		}
		x.free()
	})
}

// sendOrEnd writes the rest of p and, after the last of it, the FIN.
func sendOrEnd(t *testing.T, fd int, p []byte, sent int) int {
	t.Helper()
	if sent == len(p) {
		return 0
	}
	n := peerWrite(t, fd, p[sent:])
	if sent+n == len(p) {
		must(t, unix.Shutdown(fd, unix.SHUT_WR))
	}
	return n
}

func readInto(t *testing.T, fd int, got []byte, limit int, ended bool) ([]byte, bool) {
	t.Helper()
	if ended {
		return got, true
	}
	p, eof, err := peerRead(fd, limit)
	must(t, err)
	return append(got, p...), eof
}

// A flow of known length takes exactly that; what the last read brought beyond
// it goes to the handler, and nothing is lost between the two.
func TestFlowLength(t *testing.T) { eachEngine(t, testFlowLength) }

func testFlowLength(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		for _, length := range []int{1, 100, 16 << 10, 100_000, 500_000} {
			for _, surplus := range []int{0, 1, 5000} {
				l := newTestLoop(t, bigPipes)
				client, a := pair(t)
				server, b := pair(t)
				h := recorder{t: t}
				var src, dst Conn
				var f Flow
				l.open(&src, a, &h)
				l.open(&dst, b, &h)
				h.onFlow = func(*Flow) { src.StartRead() }
				meter := newMeter()
				l.StartFlow(&f, &src, &dst, int64(length), p, meter)
				all := patterned(9, length+surplus)
				sent := 0
				var got []byte
				l.until("the flow", func() bool {
					sent += peerWrite(t, client, all[sent:])
					got, _ = readInto(t, server, got, 1<<20, false)
					return len(got) >= length && h.flows == 1 && len(h.data) >= surplus
				})
				l.settle()
				if f.EOF() || f.Left() != 0 || f.Moved() != uint64(length) || h.flows != 1 {
					t.Errorf("length %d: eof %v, left %d, moved %d", length, f.EOF(), f.Left(), f.Moved())
				}
				got, _ = readInto(t, server, got, 1<<20, false)
				if !bytes.Equal(got, all[:length]) || !bytes.Equal(h.data, all[length:]) {
					t.Errorf("length %d: %d bytes through, %d of %d left over", length, len(got), len(h.data), surplus)
				}
				src.Close()
				dst.Close()
				unix.Close(client)
				unix.Close(server)
			}
		}
	})
}

// A stream that ends before the length says so.
func TestFlowEndsEarly(t *testing.T) { eachEngine(t, testFlowEndsEarly) }

func testFlowEndsEarly(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		l := newTestLoop(t, bigPipes)
		client, a := pair(t)
		server, b := pair(t)
		closeOnCleanup(t, client, server)
		h := recorder{t: t}
		var src, dst Conn
		var f Flow
		l.open(&src, a, &h)
		l.open(&dst, b, &h)
		l.StartFlow(&f, &src, &dst, 1<<20, p, newMeter())
		peerWrite(t, client, make([]byte, 1000))
		must(t, unix.Shutdown(client, unix.SHUT_WR))
		l.until("the end", func() bool { return h.flows == 1 })
		l.settle()
		if !f.EOF() || f.Left() != 1<<20-1000 || f.Moved() != 1000 {
			t.Errorf("eof %v, left %d, moved %d", f.EOF(), f.Left(), f.Moved())
		}
		if got, _ := readInto(t, server, nil, 1<<20, false); len(got) != 1000 {
			t.Errorf("%d bytes arrived", len(got))
		}
		src.Close()
		dst.Close()
	})
}

// Flows may follow each other on the same object from within OnFlow; what the
// last read brought beyond the first comes before the bytes of the second.
func TestFlowAfterFlow(t *testing.T) { eachEngine(t, testFlowAfterFlow) }

func testFlowAfterFlow(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		l := newTestLoop(t, Options{MaxPipes: 8, BufferSize: 1000})
		client, a := pair(t)
		server, b := pair(t)
		closeOnCleanup(t, client, server)
		h := recorder{t: t}
		var src, dst Conn
		var f Flow
		l.open(&src, a, &h)
		l.open(&dst, b, &h)
		h.onFlow = func(*Flow) { l.StartFlow(&f, &src, &dst, 1000, p, newMeter()) }
		h.onData = func(_ *Conn, p []byte) { dst.Write(p) }
		l.StartFlow(&f, &src, &dst, 1000, p, newMeter())
		all := patterned(4, 300_000)
		var sent int
		var got []byte
		l.until("all pieces", func() bool {
			sent += peerWrite(t, client, all[sent:])
			got, _ = readInto(t, server, got, 1<<20, false)
			return len(got) == len(all)
		})
		if want := (len(all) - len(h.data)) / 1000; !bytes.Equal(got, all) || h.flows != want {
			t.Errorf("%d flows, %d wanted, %d bytes beside them", h.flows, want, len(h.data))
		}
		src.Close()
		dst.Close()
	})
}

// Bulk switches a flow to splicing and small messages switch it back.
func TestFlowSwitches(t *testing.T) { eachEngine(t, testFlowSwitches) }

func testFlowSwitches(t *testing.T) {
	l := newTestLoop(t, Options{MaxPipes: 2, PipeSize: 256 << 10})
	x := newRelayed(l, &autoPolicy, tcpPair)
	echo := func(n int) {
		t.Helper()
		p := patterned(5, n)
		var got []byte
		sent := 0
		l.until("a message", func() bool {
			sent += peerWrite(t, x.client, p[sent:])
			got, _ = readInto(t, x.server, got, 1<<20, false)
			return len(got) == n
		})
		if !bytes.Equal(got, p) {
			t.Fatal("the message arrived changed")
		}
	}
	for range 20 {
		echo(100)
	}
	if x.up.splicing || x.meter.Spliced.Load() != 0 {
		t.Error("small messages are spliced")
	}
	for range 4 {
		echo(1 << 20)
	}
	if !x.up.splicing || x.meter.Spliced.Load() == 0 {
		t.Error("bulk is not spliced")
	}
	for range int(autoPolicy.Streak) + 2 {
		echo(100)
	}
	if x.up.splicing {
		t.Error("small messages do not switch back to copying")
	}
	if x.down.splicing {
		t.Error("the other direction has switched as well")
	}
	if x.up.pipe != nil || l.pipes.idle != l.pipes.open {
		t.Error("a pipe is held while nothing flows")
	}
	x.free()
}

// More than Streak small splices in a row switch back, and a large one starts
// the count anew, whatever Streak is.
func TestSpliceStreak(t *testing.T) {
	for _, streak := range []uint8{1, 2, 254, 255} {
		p := Policy{Splice: true, Min: 16 << 10, Streak: streak, Small: 4096}
		f := Flow{policy: &p, left: Unlimited, splicing: true}
		for range int(streak) {
			f.observeSplice(1)
		}
		f.observeSplice(4096)
		for i := range int(streak) + 1 {
			if !f.splicing {
				t.Fatalf("streak %d: switched back after %d", streak, i)
			}
			f.observeSplice(4095)
		}
		if f.splicing {
			t.Errorf("streak %d: not switched back", streak)
		}
		for i := range int(streak) {
			if f.splicing {
				t.Fatalf("streak %d: switched to splicing after %d", streak, i)
			}
			f.observe(16 << 10)
		}
		if !f.splicing {
			t.Errorf("streak %d: not switched to splicing", streak)
		}
	}
}

// Without a pipe a flow copies.
func TestFlowWithoutPipes(t *testing.T) { eachEngine(t, testFlowWithoutPipes) }

func testFlowWithoutPipes(t *testing.T) {
	l := newTestLoop(t, Options{MaxPipes: 0})
	x := newRelayed(l, &alwaysPolicy, tcpPair)
	p := patterned(6, 1<<20)
	var got []byte
	sent := 0
	l.until("the stream", func() bool {
		sent += peerWrite(t, x.client, p[sent:])
		got, _ = readInto(t, x.server, got, 1<<20, false)
		return len(got) == len(p)
	})
	if !bytes.Equal(got, p) || x.meter.Spliced.Load() != 0 {
		t.Error("the stream arrived changed, or spliced")
	}
	if l.Stats().PipeMisses == 0 {
		t.Error("no miss counted")
	}
	x.free()
}

// fillPipe has a flow splice into a server that does not read, until bytes
// stay in the pipe. It returns what was sent.
func fillPipe(l *testLoop, x *relayed) []byte {
	var all []byte
	for i := 0; x.up.inPipe == 0; i++ {
		if i == 5000 {
			l.t.Fatal("the pipe does not fill")
		}
		p := make([]byte, 64<<10)
		pattern(p, 7, len(all))
		n := peerWrite(l.t, x.client, p)
		all = append(all, p[:n]...)
		l.turn()
		if x.up.inPipe > 0 {
			l.settle()
		}
	}
	if !x.srv.Blocked() || x.srv.Pending() != 0 {
		l.t.Fatalf("blocked %v, pending %d", x.srv.Blocked(), x.srv.Pending())
	}
	return all
}

// blockedRelay is a tunnel whose upward pipe holds bytes.
func blockedRelay(l *testLoop) (*relayed, []byte) {
	x := newRelayed(l, &alwaysPolicy, tcpPair)
	smallBuffers(x.server)
	smallBuffers(int(x.srv.fd))
	return x, fillPipe(l, x)
}

func TestFullPipeGoesOn(t *testing.T) { eachEngine(t, testFullPipeGoesOn) }

func testFullPipeGoesOn(t *testing.T) {
	l := newTestLoop(t, bigPipes)
	x, all := blockedRelay(l)
	must(t, unix.Shutdown(x.client, unix.SHUT_WR))
	// Output of the handler that comes while the pipe is full goes after it.
	x.srv.Write([]byte("tail"))
	if x.srv.Pending() != 4 {
		t.Errorf("%d bytes pending", x.srv.Pending())
	}
	var got []byte
	end := false
	l.until("the stream", func() bool {
		got, end = readInto(t, x.server, got, 5000, end)
		return end
	})
	cut := bytes.Index(got, []byte("tail"))
	if cut < 0 || !bytes.Equal(append(got[:cut:cut], got[cut+4:]...), all) {
		t.Errorf("%d bytes of %d, the handler's at %d", len(got), len(all), cut)
	}
	x.free()
}

// However a flow ends while its pipe holds bytes, the pipe is closed.
func TestFullPipeIsNotLeaked(t *testing.T) { eachEngine(t, testFullPipeIsNotLeaked) }

func testFullPipeIsNotLeaked(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(x *relayed)
	}{
		{"stop", func(x *relayed) { x.up.Stop(); x.up.Stop() }},
		{"close source", func(x *relayed) { x.cli.Close() }},
		{"close destination", func(x *relayed) { x.srv.Close() }},
		{"reset source", func(x *relayed) { x.cli.Reset() }},
		{"server resets", func(x *relayed) {
			reset(x.server)
			x.l.until("the failure", func() bool { return x.h.err == 1 })
		}},
		{"server closes", func(x *relayed) {
			unix.Close(x.server)
			x.l.until("the failure", func() bool { return x.h.err == 1 })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTestLoop(t, bigPipes)
			x, _ := blockedRelay(l)
			c.end(x)
			if x.up.Active() || x.up.inPipe != 0 || x.up.pipe != nil {
				t.Error("the flow is still there")
			}
			if l.pipes.open != l.pipes.idle {
				t.Errorf("%d pipes open, %d idle", l.pipes.open, l.pipes.idle)
			}
			l.settle()
			if x.h.flows != 0 {
				t.Error("OnFlow for a flow that was ended")
			}
			x.close()
			unix.Close(x.client)
			if c.name != "server resets" && c.name != "server closes" {
				unix.Close(x.server)
			}
		})
	}
}

// A kernel that cannot splice a socket leaves the flow copying for good.
func TestSpliceNotSupported(t *testing.T) { eachEngine(t, testSpliceNotSupported) }

func testSpliceNotSupported(t *testing.T) {
	l := newTestLoop(t, bigPipes)
	x := newRelayed(l, &alwaysPolicy, tcpPair)
	x.up.pipe = l.pipes.get(0)
	x.up.spliceStopped(unix.EINVAL)
	p := patterned(8, 1<<20)
	var got []byte
	sent := 0
	l.until("the stream", func() bool {
		sent += peerWrite(t, x.client, p[sent:])
		got, _ = readInto(t, x.server, got, 1<<20, false)
		return len(got) == len(p)
	})
	if !bytes.Equal(got, p) || x.meter.Spliced.Load() != 0 {
		t.Error("the stream arrived changed, or spliced")
	}
	x.free()
}

// Urgent data in a spliced stream: splice stops at it, so the flow copies on.
func TestFlowUrgentData(t *testing.T) { eachEngine(t, testFlowUrgentData) }

func testFlowUrgentData(t *testing.T) {
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			l := newTestLoop(t, bigPipes)
			x := newRelayed(l, &p.policy, tcpPair)
			var want, got []byte
			for i := range 40 {
				piece := patterned(byte(i), 3000)
				piece = bytes.ReplaceAll(piece, []byte("!"), []byte("?"))
				want = append(want, piece...)
				peerWrite(t, x.client, piece)
				if i%3 == 0 {
					l.settle()
				}
				if i%5 == 2 {
					must(t, unix.Sendto(x.client, []byte("!"), unix.MSG_OOB, nil))
				}
				if i%7 == 0 {
					l.settle()
				}
			}
			must(t, unix.Shutdown(x.client, unix.SHUT_WR))
			end := false
			l.until("the stream", func() bool {
				got, end = readInto(t, x.server, got, 1<<20, end)
				return end
			})
			if got = bytes.ReplaceAll(got, []byte("!"), nil); !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d, or others", len(got), len(want))
			}
			x.free()
		})
	}
}

// A reset on either side of a tunnel is an error, not an end of the stream,
// whatever the flows are doing.
func TestFlowReset(t *testing.T) { eachEngine(t, testFlowReset) }

func testFlowReset(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		for _, side := range []string{"client", "server"} {
			for _, busy := range []bool{false, true} {
				l := newTestLoop(t, bigPipes)
				x := newRelayed(l, p, tcpPair)
				if busy {
					peerWrite(t, x.client, make([]byte, 200_000))
					peerWrite(t, x.server, make([]byte, 200_000))
					l.turn()
				}
				fd := x.client
				if side == "server" {
					fd = x.server
				}
				reset(fd)
				l.until("the failure", func() bool {
					peerRead(x.client, 1<<20)
					peerRead(x.server, 1<<20)
					return x.h.err > 0
				})
				l.settle()
				if x.h.err != 1 || x.h.flows != 0 {
					t.Errorf("%s, busy %v: %d errors, %d ends", side, busy, x.h.err, x.h.flows)
				}
				if fd == x.client {
					unix.Close(x.server)
				} else {
					unix.Close(x.client)
				}
			}
		}
	})
}

// A flow into a connection that is still connecting goes on when it stands.
func TestFlowIntoConnecting(t *testing.T) { eachEngine(t, testFlowIntoConnecting) }

func testFlowIntoConnecting(t *testing.T) {
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			l := newTestLoop(t, bigPipes)
			ln, sa := listenTCP(t, 8)
			client, a := tcpPair(t)
			closeOnCleanup(t, ln, client)
			h := recorder{t: t}
			var src, dst Conn
			var f Flow
			l.open(&src, a, &h)
			if op, errno := l.Connect(&dst, &Target{Addr: addrPort(sa)}, &h); errno != 0 {
				t.Fatalf("%s: %v", op, errno)
			}
			l.StartFlow(&f, &src, &dst, Unlimited, &p.policy, newMeter())
			peerWrite(t, client, []byte("early"))
			arrives(t, a)
			src.event(unix.EPOLLIN)
			if !dst.Blocked() {
				t.Error("a flow into a connection that is not there is not blocked")
			}
			l.settle()
			peerWrite(t, client, []byte(" late"))
			l.settle()
			fd, _, err := unix.Accept4(ln, unix.SOCK_NONBLOCK)
			must(t, err)
			var got []byte
			l.until("both pieces", func() bool {
				got, _ = readInto(t, fd, got, 100, false)
				return len(got) >= 10
			})
			if string(got) != "early late" {
				t.Errorf("got %q", got)
			}
			unix.Close(fd)
			src.Close()
			dst.Close()
		})
	}
}

// In a pair of connections over a real listening Unix socket the same holds as
// over TCP.
func TestFlowToUnixTarget(t *testing.T) { eachEngine(t, testFlowToUnixTarget) }

func testFlowToUnixTarget(t *testing.T) {
	l := newTestLoop(t, bigPipes)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	closeOnCleanup(t, ln)
	must(t, unix.Bind(ln, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(ln, 4))
	client, a := tcpPair(t)
	closeOnCleanup(t, client)
	h := recorder{t: t}
	var src, dst Conn
	var up, down Flow
	l.open(&src, a, &h)
	h.onConnect = func(*Conn, unix.Errno) {
		l.StartFlow(&up, &src, &dst, Unlimited, &alwaysPolicy, newMeter())
		l.StartFlow(&down, &dst, &src, Unlimited, &alwaysPolicy, newMeter())
	}
	if op, errno := l.Connect(&dst, &Target{Unix: path}, &h); errno != 0 {
		t.Fatalf("%s: %v", op, errno)
	}
	server, _, err := unix.Accept4(ln, unix.SOCK_NONBLOCK)
	must(t, err)
	closeOnCleanup(t, server)
	p := patterned(1, 1<<20)
	var got, back []byte
	var sent, returned int
	l.until("the echo", func() bool {
		sent += peerWrite(t, client, p[sent:])
		got, _ = readInto(t, server, got, 1<<20, false)
		returned += peerWrite(t, server, got[returned:])
		back, _ = readInto(t, client, back, 1<<20, false)
		return len(back) == len(p)
	})
	if !bytes.Equal(back, p) {
		t.Error("the echo differs")
	}
	src.Close()
	dst.Close()
}

// One stream at full speed among many slow conversations: a message of these
// is through after a few turns, and none of these is long.
func TestFairness(t *testing.T) { eachEngine(t, testFairness) }

func testFairness(t *testing.T) {
	slow := 500
	if raceEnabled || testing.Short() {
		slow = 100
	}
	if need := uint64(4*slow + 100); !roomFor(need) {
		t.Skipf("no %d descriptors", need)
	}
	for _, p := range policies {
		t.Run(p.name, func(t *testing.T) {
			l := newTestLoop(t, bigPipes)
			fast := newRelayed(l, &p.policy, tcpPair)
			var others []*relayed
			for range slow {
				others = append(others, newRelayed(l, &p.policy, tcpPair))
			}
			l.settle()
			stream := make([]byte, 1<<20)
			pumpFast := func() {
				peerWrite(t, fast.client, stream)
				peerRead(fast.server, 4<<20)
			}
			// Events of input and of room, which the ring tells of apart, and a
			// place in the run list in one turn.
			most := uint64(3 * readsPerTurn * DefaultBufferSize)
			buf := make([]byte, 16)
			for round := range 20 {
				for _, x := range others {
					peerWrite(t, x.client, []byte(fmt.Sprintf("%8d", round)))
				}
				waiting := len(others)
				for turns := 1; waiting > 0; turns++ {
					if turns > 25 {
						t.Fatalf("round %d: %d of %d messages not through after %d turns", round, waiting, slow, turns)
					}
					pumpFast()
					before := fast.up.Moved()
					l.turn()
					if moved := fast.up.Moved() - before; moved > most {
						t.Fatalf("%d bytes of the fast stream in one turn", moved)
					}
					waiting = 0
					for _, x := range others {
						if round >= arrived(x, buf) {
							waiting++
						}
					}
				}
			}
			if fast.up.Moved() == 0 {
				t.Error("the fast stream has not moved")
			}
			for _, x := range append(others, fast) {
				x.free()
			}
		})
	}
}

// arrived counts the messages that have come to the server of x.
func arrived(x *relayed, buf []byte) int {
	if n, err := unix.Read(x.server, buf[:8]); err == nil && n == 8 {
		x.h.conns++
	}
	return x.h.conns
}

func roomFor(n uint64) bool {
	var rl unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil && rl.Cur >= n
}
