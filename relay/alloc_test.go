package relay

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// pingPong is a request and an answer of size bytes through a tunnel whose
// peers run in the test's own goroutine.
type pingPong struct {
	x   *relayed
	req []byte
	buf []byte
}

func newPingPong(l *testLoop, policy *Policy, size int) *pingPong {
	p := &pingPong{x: newRelayed(l, policy, tcpPair), req: patterned(1, size), buf: make([]byte, 2*size)}
	l.settle()
	return p
}

func (p *pingPong) pass(from, to int) bool {
	if n, err := unix.Write(from, p.req); err != nil || n != len(p.req) {
		return false
	}
	for got := 0; got < len(p.req); {
		p.x.l.turn()
		p.x.l.submit()
		if n, err := unix.Read(to, p.buf); err == nil {
			got += n
		} else if err != unix.EAGAIN {
			return false
		}
	}
	return true
}

func (p *pingPong) round(t *testing.T) {
	if !p.pass(p.x.client, p.x.server) || !p.pass(p.x.server, p.x.client) {
		t.Fatal("no answer")
	}
}

// A request through a tunnel costs one turn each way and allocates nothing.
func TestPingPongCost(t *testing.T) { eachEngine(t, testPingPongCost) }

func testPingPongCost(t *testing.T) {
	l := newTestLoop(t, bigPipes)
	l.StopTimer(&l.beat)
	p := newPingPong(l, &autoPolicy, 1024)
	for range 10 {
		p.round(t)
	}
	const rounds = 500
	before := l.stats.Turns
	allocs := testing.AllocsPerRun(rounds-1, func() { p.round(t) })
	if turns := float64(l.stats.Turns-before) / rounds; turns > 2.05 {
		t.Errorf("%.2f turns for a request, 2 wanted", turns)
	}
	if allocs != 0 && !raceEnabled {
		t.Errorf("%.1f allocations for a request", allocs)
	}
	p.x.free()
}

// Nor do bulk, back pressure, timers and pipes allocate once the pools are
// filled.
func TestBulkAllocatesNothing(t *testing.T) { eachEngine(t, testBulkAllocatesNothing) }

func testBulkAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range policies {
		t.Run(c.name, func(t *testing.T) {
			l := newTestLoop(t, bigPipes)
			x := newRelayed(l, &c.policy, tcpPair)
			smallBuffers(x.server)
			data, buf := make([]byte, 256<<10), make([]byte, 64<<10)
			round := func() {
				unix.Write(x.client, data)
				l.turn()
				unix.Read(x.server, buf)
				l.turn()
			}
			// How much a socket takes varies, and with it the chunks in use.
			for _, size := range chunkSizes {
				l.chunks.put(l.chunks.get(size))
			}
			for range 10 {
				round()
			}
			if allocs := testing.AllocsPerRun(10, round); allocs != 0 {
				t.Errorf("%.1f allocations in a round", allocs)
			}
			if x.up.Moved() == 0 {
				t.Error("nothing moved")
			}
			x.free()
		})
	}
}

// A connection that comes and goes allocates nothing either: slots, timers and
// the Conn are reused.
func TestOpenCloseAllocatesNothing(t *testing.T) { eachEngine(t, testOpenCloseAllocatesNothing) }

func testOpenCloseAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := newTestLoop(t, Options{})
	h := &recorder{t: t}
	var c Conn
	var timer Timer
	round := func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil || l.Open(&c, int32(fd), h) != 0 {
			t.Fatal("no socket")
		}
		l.SetTimer(&timer, 60_000, l)
		c.Close()
		l.StopTimer(&timer)
	}
	round()
	if allocs := testing.AllocsPerRun(100, round); allocs != 0 {
		t.Errorf("%.1f allocations for a connection", allocs)
	}
}

func BenchmarkPingPong1K(b *testing.B) {
	for _, e := range []Engine{EngineEpoll, EngineURing} {
		b.Run(e.String(), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t := &testing.T{}
			o := bigPipes
			o.Engine = e
			loop, err := NewLoop(o)
			if err != nil {
				b.Fatal(err)
			}
			p := newPingPong(&testLoop{Loop: loop, t: t}, &autoPolicy, 1024)
			for b.Loop() {
				p.round(t)
			}
			p.x.free()
			loop.closeDescriptors()
		})
	}
}
