package relay

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRunList(t *testing.T) {
	l := &Loop{}
	c := make([]Conn, 3)
	for i := range c {
		c[i].loop = l
	}
	for round := range 3 {
		for _, i := range []int{1, 0, 1, 2, 0} {
			c[i].enqueue()
		}
		due := l.run.take()
		if !slices.Equal(due, []*Conn{&c[1], &c[0], &c[2]}) {
			t.Fatalf("round %d: a connection is in the list twice, or out of order", round)
		}
		for _, c := range due {
			c.flags &^= flagQueued
		}
		due[0].enqueue()
		if next := l.run.take(); len(next) != 1 || next[0] != &c[1] {
			t.Fatalf("round %d: what is put off during the turn is not due in the next", round)
		}
		c[1].flags &^= flagQueued
		if !l.run.empty() {
			t.Errorf("round %d: the list is not empty", round)
		}
	}
}

// What is closed while it is in the list is left out, and reopened it is in it
// once.
func TestRunListReopened(t *testing.T) {
	l := newTestLoop(t, Options{})
	h := recorder{t: t}
	var c Conn
	for range 3 {
		peer, fd := tcpPair(t)
		l.open(&c, fd, &h)
		c.NotifySent()
		closeOnCleanup(t, peer)
		if len(l.run.due) != 1 {
			t.Fatalf("%d entries in the run list for one connection", len(l.run.due))
		}
		c.Close()
	}
	l.turn()
	if h.sents != 0 || !l.run.empty() {
		t.Errorf("a closed connection was processed %d times, %d in the run list", h.sents, len(l.run.due))
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
	if len(l.run.due) != 1 || h.sents < 3 {
		t.Errorf("%d in the run list after %d turns", len(l.run.due), h.sents)
	}
	busy.Close()
	other.Close()
}
