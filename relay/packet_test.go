package relay

import (
	"bytes"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// packetEcho is a PacketHandler that notes what comes, and sends it back when
// it is an echo.
type packetEcho struct {
	t       *testing.T
	echo    bool
	packets []Packet // copies
	calls   int
	count   int
	quiet   bool // count only
	errs    []unix.Errno
	on      func(c *PacketConn)
}

func (e *packetEcho) OnPackets(c *PacketConn, packets []Packet) {
	e.calls++
	e.count += len(packets)
	for i := range packets {
		p := &packets[i]
		if p.Truncated {
			e.t.Error("a datagram is truncated")
		}
		if e.echo {
			c.Send(&p.Path, p.Data, nil)
		}
		if !e.quiet {
			k := *p
			k.Data = bytes.Clone(p.Data)
			e.packets = append(e.packets, k)
		}
	}
	if e.on != nil {
		e.on(c)
	}
}

func (e *packetEcho) OnPacketError(_ *PacketConn, errno unix.Errno) { e.errs = append(e.errs, errno) }

func (l *testLoop) listenPacket(c *PacketConn, local string, h PacketHandler) netip.AddrPort {
	l.t.Helper()
	op, errno := l.ListenPacket(c, netip.MustParseAddrPort(local), nil, h)
	if errno == unix.EADDRNOTAVAIL || errno == unix.EAFNOSUPPORT {
		l.t.Skipf("%s: no such address here: %v", local, errno)
	}
	if errno != 0 {
		l.t.Fatalf("%s %s: %v", op, local, errno)
	}
	return c.LocalAddr()
}

func (l *testLoop) dialPacket(c *PacketConn, to netip.AddrPort, h PacketHandler) {
	l.t.Helper()
	if op, errno := l.DialPacket(c, &Target{Addr: to}, h); errno != 0 {
		l.t.Fatalf("%s %s: %v", op, to, errno)
	}
}

func TestPacketEcho(t *testing.T) { eachEngine(t, testPacketEcho) }

func testPacketEcho(t *testing.T) {
	for _, local := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(local, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			server, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t}
			var s, c PacketConn
			to := l.listenPacket(&s, local, server)
			l.dialPacket(&c, to, client)
			for n, size := range []int{0, 1, 1024, 9000, 65507} {
				sent := patterned(byte(size), size)
				c.Send(&Path{}, sent[:size/2], sent[size/2:])
				l.until("the echo", func() bool { return len(client.packets) > n })
				got := client.packets[n]
				if !bytes.Equal(got.Data, sent) {
					t.Errorf("%d bytes became %d", size, len(got.Data))
				}
				if got.Peer != to || got.Local.IsValid() {
					t.Errorf("answer from %v to %v", got.Peer, got.Local)
				}
				if from := server.packets[n].Peer; from != c.LocalAddr() {
					t.Errorf("datagram from %v, client is %v", from, c.LocalAddr())
				}
			}
			if st := l.Stats(); st.PacketsIn != 10 || st.PacketsOut != 10 || st.PacketsDropped != 0 {
				t.Errorf("counters %+v", st)
			}
			s.Close()
			c.Close()
			c.Close()
			if c.IsOpen() || c.LocalAddr().IsValid() {
				t.Error("a closed socket is open")
			}
		})
	}
}

// An answer from a wildcard socket leaves from the address that was asked.
func TestPacketWildcard(t *testing.T) { eachEngine(t, testPacketWildcard) }

func testPacketWildcard(t *testing.T) {
	for _, c := range []struct{ listen, ask string }{
		{"0.0.0.0:0", "127.0.0.1"},
		{"0.0.0.0:0", "127.1.2.3"},
		{"[::]:0", "::1"},
		{"[::]:0", "127.7.7.7"}, // by a v4-mapped address
	} {
		t.Run(c.listen+" "+c.ask, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			server, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t}
			var s, k PacketConn
			at := l.listenPacket(&s, c.listen, server)
			ask := netip.MustParseAddr(c.ask)
			l.dialPacket(&k, netip.AddrPortFrom(ask, at.Port()), client)
			k.Send(&Path{}, []byte("hello"), nil)
			l.until("the answer", func() bool { return len(client.packets) == 1 })
			if got := server.packets[0].Local; got != ask {
				t.Errorf("sent to %v, told %v", ask, got)
			}
			s.Close()
			k.Close()
		})
	}
}

// What ICMP says of a connected socket's peer is an event; the socket goes on.
func TestPacketRefused(t *testing.T) { eachEngine(t, testPacketRefused) }

func testPacketRefused(t *testing.T) {
	l := newTestLoop(t, Options{})
	server, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	s.Close()
	l.dialPacket(&c, to, client)
	for n := range 3 {
		c.Send(&Path{}, []byte("nobody"), nil)
		l.until("the refusal", func() bool { return len(client.errs) > n })
		if client.errs[n] != unix.ECONNREFUSED {
			t.Fatalf("refused with %v", client.errs[n])
		}
	}
	if op, errno := l.ListenPacket(&s, to, nil, server); errno != 0 {
		t.Fatalf("%s: %v", op, errno)
	}
	c.Send(&Path{}, []byte("somebody"), nil)
	l.until("the answer", func() bool { return len(client.packets) == 1 })
	if errs := len(client.errs); errs != 3 || l.Stats().PacketsDropped != 0 {
		t.Errorf("%d errors, %d dropped", errs, l.Stats().PacketsDropped)
	}
	s.Close()
	c.Close()
}

// What a destination is refused for is dropped and counted, and does not keep
// the others of the batch back.
func TestPacketDropped(t *testing.T) { eachEngine(t, testPacketDropped) }

func testPacketDropped(t *testing.T) {
	l := newTestLoop(t, Options{})
	server, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	l.listenPacket(&c, "127.0.0.1:0", client)
	good := Path{Peer: to}
	for _, bad := range []Path{
		{Peer: netip.MustParseAddrPort("255.255.255.255:1")}, // EACCES
		{Peer: to, Local: netip.MustParseAddr("192.0.2.1")},  // not an address of the host
		{Peer: netip.MustParseAddrPort("[::1]:1")},           // the other family
		{Peer: netip.AddrPortFrom(to.Addr(), 0)},             // port 0
	} {
		c.Send(&bad, []byte("bad"), nil)
		c.Send(&good, []byte("good"), nil)
	}
	c.Send(&good, make([]byte, sys.MaxDatagram), nil)   // EMSGSIZE
	c.Send(&good, make([]byte, sys.MaxDatagram+1), nil) // beyond any datagram
	l.until("the good ones", func() bool { return server.count == 4 && len(client.packets) == 4 })
	if st := l.Stats(); st.PacketsDropped != 6 {
		t.Errorf("%d dropped, errors %v", st.PacketsDropped, client.errs)
	}
	s.Close()
	c.Close()
}

// A flood is taken and answered in batches, in order; a turn does a bounded
// part of it.
func TestPacketFlood(t *testing.T) { eachEngine(t, testPacketFlood) }

func testPacketFlood(t *testing.T) {
	l := newTestLoop(t, Options{})
	server, client := &packetEcho{t: t, echo: true, quiet: true}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	l.dialPacket(&c, to, client)
	const burst = 100
	for round := range 20 {
		for i := range burst {
			c.Send(&Path{}, []byte{byte(round), byte(i)}, nil)
		}
		l.until("the echoes", func() bool { return len(client.packets) == (round+1)*burst })
	}
	for i, p := range client.packets {
		if want := []byte{byte(i / burst), byte(i % burst)}; !bytes.Equal(p.Data, want) {
			t.Fatalf("datagram %d is %v", i, p.Data)
		}
	}
	if server.calls > server.count/8 {
		t.Errorf("%d datagrams in %d batches", server.count, server.calls)
	}
	s.Close()
	c.Close()
}

// More than a turn gathers is sent before its end.
func TestPacketQueueOverflow(t *testing.T) { eachEngine(t, testPacketQueueOverflow) }

func testPacketQueueOverflow(t *testing.T) {
	l := newTestLoop(t, Options{})
	server := &packetEcho{t: t, quiet: true}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	must(t, unix.SetsockoptInt(int(s.FD()), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	l.dialPacket(&c, to, &packetEcho{t: t})
	for range 3 * packetQueueSize {
		c.Send(&Path{}, []byte("small"), nil)
	}
	large := make([]byte, 60000)
	for range 2 * packetQueueBytes / len(large) {
		c.Send(&Path{}, large, nil)
	}
	want := 3*packetQueueSize + 2*packetQueueBytes/len(large)
	l.until("all", func() bool { return server.count == want })
	s.Close()
	c.Close()
}

// unixPackets returns the two ends of a pair of datagram sockets, whose room
// runs out, as that of UDP does on a slow link.
func unixPackets(t *testing.T) (a, b int) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	return p[0], p[1]
}

// What the socket has no room for is held, in order, up to a limit.
func TestPacketHeld(t *testing.T) { eachEngine(t, testPacketHeld) }

func testPacketHeld(t *testing.T) {
	l := newTestLoop(t, Options{})
	a, b := unixPackets(t)
	closeOnCleanup(t, b)
	smallBuffers(a)
	var c PacketConn
	if errno := l.OpenPacket(&c, int32(a), PacketOptions{}, &packetEcho{t: t}); errno != 0 {
		t.Fatal(errno)
	}
	for i := range 200 {
		c.Send(&Path{}, []byte{byte(i)}, nil)
	}
	l.sendPackets()
	if c.held == nil || l.packets.held == 0 {
		t.Fatal("nothing is held")
	}
	got := 0
	buf := make([]byte, 16)
	l.until("all of it", func() bool {
		for {
			n, err := unix.Read(b, buf)
			if err != nil {
				return got == 200
			}
			if n != 1 || buf[0] != byte(got) {
				t.Fatalf("datagram %d is %v", got, buf[:n])
			}
			got++
		}
	})
	if c.held != nil || l.packets.held != 0 || l.Stats().PacketsDropped != 0 {
		t.Errorf("%d held, %d dropped", l.packets.held, l.Stats().PacketsDropped)
	}
	for range 4 * heldMax {
		c.Send(&Path{}, []byte("x"), nil)
	}
	l.sendPackets()
	if st := l.Stats(); len(c.held.packets) != heldMax || st.PacketsDropped == 0 {
		t.Errorf("%d held, %d dropped", len(c.held.packets), st.PacketsDropped)
	}
	c.Close()
	if l.packets.held != 0 {
		t.Errorf("%d bytes held by a closed socket", l.packets.held)
	}
}

// A paused socket delivers nothing, loses nothing, and can send.
func TestPacketPause(t *testing.T) { eachEngine(t, testPacketPause) }

func testPacketPause(t *testing.T) {
	l := newTestLoop(t, Options{})
	server, client := &packetEcho{t: t}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	l.dialPacket(&c, to, client)
	s.Pause()
	s.Pause()
	for range 50 {
		c.Send(&Path{}, []byte("wait"), nil)
	}
	l.settle()
	s.Send(&Path{Peer: c.LocalAddr()}, []byte("news"), nil)
	l.until("news", func() bool { return len(client.packets) == 1 })
	if len(server.packets) != 0 {
		t.Errorf("a paused socket has delivered %d", len(server.packets))
	}
	s.Resume()
	l.until("what waited", func() bool { return len(server.packets) == 50 })
	c.Send(&Path{}, []byte("more"), nil)
	l.until("more", func() bool { return len(server.packets) == 51 })
	s.Close()
	c.Close()
}

// A detached socket, with what waits in it, is served by another loop.
func TestPacketDetach(t *testing.T) { eachEngine(t, testPacketDetach) }

func testPacketDetach(t *testing.T) {
	l := newTestLoop(t, Options{})
	first, second, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t, echo: true}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", first)
	l.dialPacket(&c, to, client)
	c.Send(&Path{}, []byte("one"), nil)
	l.until("an answer", func() bool { return len(client.packets) == 1 })
	fd := s.Detach()
	for range 3 {
		c.Send(&Path{}, []byte("two"), nil)
	}
	l.settle()
	if errno := l.OpenPacket(&s, fd, PacketOptions{}, second); errno != 0 {
		t.Fatal(errno)
	}
	l.until("answers", func() bool { return len(client.packets) == 4 })
	if first.count != 1 || second.count != 3 {
		t.Errorf("%d and %d served", first.count, second.count)
	}
	s.Close()
	c.Close()
}

// A handler may close the socket it is called for, and others, with datagrams
// under way.
func TestPacketCloseInCall(t *testing.T) { eachEngine(t, testPacketCloseInCall) }

func testPacketCloseInCall(t *testing.T) {
	l := newTestLoop(t, Options{})
	server, client := &packetEcho{t: t, echo: true}, &packetEcho{t: t}
	var s, c PacketConn
	to := l.listenPacket(&s, "127.0.0.1:0", server)
	l.dialPacket(&c, to, client)
	server.on = func(p *PacketConn) { p.Close() }
	for range 40 {
		c.Send(&Path{}, []byte("x"), nil)
	}
	l.until("the last echo", func() bool { return len(client.packets) > 0 })
	if s.IsOpen() {
		t.Error("the socket is open")
	}
	// What was queued before Close has been sent.
	if server.count != len(client.packets) {
		t.Errorf("%d served, %d answers", server.count, len(client.packets))
	}
	c.Close()
	l.settle()
}

// A borrowed descriptor stays open, and is not polled any more.
func TestPacketBorrowed(t *testing.T) { eachEngine(t, testPacketBorrowed) }

func testPacketBorrowed(t *testing.T) {
	l := newTestLoop(t, Options{})
	a, b := unixPackets(t)
	closeOnCleanup(t, a, b)
	h := &packetEcho{t: t}
	var c PacketConn
	if errno := l.OpenPacket(&c, int32(a), PacketOptions{Borrowed: true}, h); errno != 0 {
		t.Fatal(errno)
	}
	if l.Descriptors() != 0 {
		t.Error("a borrowed descriptor is counted")
	}
	l.settle()
	c.Close()
	if _, err := unix.Write(b, []byte("x")); err != nil {
		t.Fatal(err)
	}
	l.settle()
	if h.count != 0 {
		t.Error("a closed socket has delivered")
	}
}

// A datagram through a relay of two sockets allocates nothing.
func TestPacketAllocs(t *testing.T) { eachEngine(t, testPacketAllocs) }

func testPacketAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newTestLoop(t, Options{})
	l.StopTimer(&l.beat)
	server, client := &packetEcho{t: t, echo: true, quiet: true}, &packetEcho{t: t, quiet: true}
	var s, c PacketConn
	at := l.listenPacket(&s, "[::]:0", server)
	l.dialPacket(&c, netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()), client)
	data := make([]byte, 512)
	round := func() {
		want := client.count + 8
		for range 8 {
			c.Send(&Path{}, data, nil)
		}
		// Nothing ends the wait before what is sent outside a turn.
		l.sendPackets()
		for client.count < want {
			l.turn()
		}
	}
	round()
	if allocs := testing.AllocsPerRun(200, round); allocs != 0 {
		t.Errorf("%.1f allocations for 16 datagrams", allocs)
	}
	s.Close()
	c.Close()
}

func BenchmarkPacketEcho(b *testing.B) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		b.Run(listen, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t := &testing.T{}
			loop, err := NewLoop(Options{Engine: EngineEpoll})
			if err != nil {
				b.Fatal(err)
			}
			l := &testLoop{Loop: loop, t: t}
			server, client := &packetEcho{t: t, echo: true, quiet: true}, &packetEcho{t: t, quiet: true}
			var s, c PacketConn
			at := l.listenPacket(&s, listen, server)
			l.dialPacket(&c, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port()), client)
			data := make([]byte, 512)
			for b.Loop() {
				for want := client.count + 1; client.count < want; l.turn() {
					c.Send(&Path{}, data, nil)
				}
			}
			s.Close()
			c.Close()
			loop.closeDescriptors()
		})
	}
}
