package relay

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRunList(t *testing.T) {
	var r runList
	c := make([]Conn, 4)
	r.push(&c[0])
	r.push(&c[1])
	r.push(&c[0])
	if r.length != 2 || r.pop() != &c[0] {
		t.Fatal("a connection is in the list twice, or out of order")
	}
	r.push(&c[0])
	r.push(&c[2])
	for _, want := range []*Conn{&c[1], &c[0], &c[2]} {
		if got := r.pop(); got != want || got.flags&flagQueued != 0 || got.next != nil {
			t.Fatal("wrong order, or still linked")
		}
	}
	if !r.empty() || r.length != 0 || r.tail != nil {
		t.Error("the list is not empty")
	}
}

func TestGenerations(t *testing.T) {
	table := sourceTable{gen: 1<<32 - 3}
	seen := map[uint32]bool{}
	for range 6 {
		slot, gen := table.take(sourceConn, nil)
		if slot != 0 || gen == 0 || seen[gen] {
			t.Fatalf("slot %d generation %d", slot, gen)
		}
		seen[gen] = true
		table.release(slot)
	}
}

// An event that was taken before its connection was closed must not reach the
// next owner of the slot and descriptor.
func TestStaleEvent(t *testing.T) { eachEngine(t, testStaleEvent) }

func testStaleEvent(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, fd := tcpPair(t)
	closeOnCleanup(t, peer)
	old := recorder{t: t}
	var c Conn
	l.open(&c, fd, &old)
	c.StartRead()
	stale := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.slot), Pad: int32(c.gen)}
	slot := c.slot
	c.Close()

	peer2, fd2 := tcpPair(t)
	closeOnCleanup(t, peer2)
	h := recorder{t: t}
	l.open(&c, fd2, &h)
	c.StartRead()
	if c.slot != slot {
		t.Fatalf("slot %d, not %d again", c.slot, slot)
	}
	peerWrite(t, peer2, []byte("x"))
	l.dispatch(&stale)
	if len(h.log) != 0 || len(old.log) != 0 {
		t.Errorf("a stale event called %v %v", h.log, old.log)
	}
	l.until("the byte", func() bool { return len(h.data) == 1 })
	c.Close()
}

func TestPostFromManyGoroutines(t *testing.T) { eachEngine(t, testPostFromManyGoroutines) }

func testPostFromManyGoroutines(t *testing.T) {
	loop, err := NewLoop(Options{Engine: testEngine})
	must(t, err)
	const posters, each = 8, 500
	var last [posters]int
	total := 0
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		loop.Run()
		close(ended)
	}()
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				loop.Post(func() {
					if last[p] != i {
						t.Errorf("poster %d: call %d, %d expected", p, i, last[p])
					}
					last[p]++
					if total++; total == posters*each {
						loop.Stop()
					}
				})
			}
		})
	}
	wg.Wait()
	<-ended
	if total != posters*each {
		t.Errorf("%d of %d calls made", total, posters*each)
	}
	loop.Post(func() { t.Error("called after the loop has ended") })
}

// Posting from within the loop is not lost, however often.
func TestPostFromTheLoop(t *testing.T) { eachEngine(t, testPostFromTheLoop) }

func testPostFromTheLoop(t *testing.T) {
	l := newTestLoop(t, Options{})
	n := 0
	var again func()
	again = func() {
		if n++; n < 100 {
			l.Post(again)
		}
	}
	l.Post(again)
	l.until("100 calls", func() bool { return n == 100 })
}

// Garbage collection must get through while the loop waits unseen by the
// scheduler.
func TestCollectionWhileWaiting(t *testing.T) { eachEngine(t, testCollectionWhileWaiting) }

func testCollectionWhileWaiting(t *testing.T) {
	loop, err := NewLoop(Options{Engine: testEngine})
	must(t, err)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		loop.Run()
		close(ended)
	}()
	for range 20 {
		called := make(chan struct{})
		loop.Post(func() { close(called) })
		<-called
		runtime.GC()
	}
	loop.Post(loop.Stop)
	<-ended
}

func TestStatsAndDescriptors(t *testing.T) { eachEngine(t, testStatsAndDescriptors) }

func testStatsAndDescriptors(t *testing.T) {
	l := newTestLoop(t, Options{MaxPipes: 1})
	peer, fd := tcpPair(t)
	closeOnCleanup(t, peer)
	var c Conn
	l.open(&c, fd, &recorder{t: t})
	q := l.pipes.get(0)
	if n := l.Descriptors(); n != 3 {
		t.Errorf("Descriptors() = %d for a connection and a pipe, 3 wanted", n)
	}
	if s := l.Stats(); s.PipesOpen != 1 {
		t.Errorf("PipesOpen = %d", s.PipesOpen)
	}
	l.pipes.put(q)
	l.TrimPipes(0)
	c.Close()
	if n := l.Descriptors(); n != 0 {
		t.Errorf("Descriptors() = %d at the end", n)
	}
}

func TestBufferSizeIsBounded(t *testing.T) { eachEngine(t, testBufferSizeIsBounded) }

func testBufferSizeIsBounded(t *testing.T) {
	l := newTestLoop(t, Options{BufferSize: 64 << 20})
	if len(l.buf) != MaxBufferSize {
		t.Errorf("a buffer of %d bytes", len(l.buf))
	}
}

// timerFunc is a TimerHandler.
type timerFunc func()

func (f timerFunc) OnTimer(*Timer) { f() }

// A connection that always has work holds up neither timers nor posted calls
// nor the events of others.
func TestBusyRunList(t *testing.T) { eachEngine(t, testBusyRunList) }

func testBusyRunList(t *testing.T) {
	l := newTestLoop(t, Options{})
	l.StopTimer(&l.beat)
	peer, fd := tcpPair(t)
	peer2, fd2 := tcpPair(t)
	closeOnCleanup(t, peer, peer2)
	var busy, other Conn
	h := recorder{t: t}
	h.onSent = func(c *Conn) { c.NotifySent() }
	l.open(&busy, fd, &h)
	busy.NotifySent()
	h2 := recorder{t: t}
	l.open(&other, fd2, &h2)
	other.StartRead()
	peerWrite(t, peer2, []byte("x"))
	timed, posted := false, false
	var timer Timer
	l.SetTimer(&timer, 50, timerFunc(func() { timed = true }))
	l.Post(func() { posted = true })
	l.until("timer, call and event", func() bool { return timed && posted && len(h2.data) == 1 })
	if l.run.length != 1 || h.sents < 3 {
		t.Errorf("%d in the run list after %d turns", l.run.length, h.sents)
	}
	busy.Close()
	other.Close()
}
