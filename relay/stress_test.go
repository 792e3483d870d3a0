package relay

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var stressFor = flag.Duration("stress", 2*time.Second, "how long the randomised stress test runs")

// end is one peer of a stressed tunnel: what it has sent and got, and how it
// has left.
type end struct {
	fd     int
	seed   byte
	sent   int
	total  int
	got    int
	eof    bool
	shut   bool
	broken bool // reset or closed, by itself or by the relay
}

// stressed is a tunnel between two ends that do what chance tells them.
type stressed struct {
	*relayed
	ends  [2]*end
	rude  bool // one end may reset or close
	stall int  // rounds without any progress
}

func newStressed(l *testLoop, r *rand.Rand) *stressed {
	policy := &policies[r.IntN(len(policies))].policy
	x := &stressed{relayed: newRelayed(l, policy, pairs[r.IntN(2)].pair), rude: r.IntN(3) == 0}
	for i, fd := range []int{x.client, x.server} {
		total := r.IntN(1 << (4 + r.IntN(16)))
		x.ends[i] = &end{fd: fd, seed: byte(r.IntN(256)), total: total}
		if r.IntN(2) == 0 {
			smallBuffers(fd)
		}
	}
	if r.IntN(2) == 0 {
		smallBuffers(int(x.cli.fd))
		smallBuffers(int(x.srv.fd))
	}
	x.cli.SetReadSize(r.IntN(3) * 3000)
	return x
}

// act lets both ends do something; it reports whether the tunnel is over.
func (x *stressed) act(t *testing.T, r *rand.Rand, buf []byte) bool {
	progress := false
	for i, e := range x.ends {
		if e.broken {
			continue
		}
		if x.rude && r.IntN(200) == 0 {
			x.leave(r, e)
			progress = true
			continue
		}
		if r.IntN(3) > 0 && x.write(r, e, buf) {
			progress = true
		}
		if r.IntN(3) > 0 && x.read(t, r, e, x.ends[1-i], buf) {
			progress = true
		}
	}
	if progress {
		x.stall = 0
	} else {
		x.stall++
	}
	return x.over()
}

func (x *stressed) leave(r *rand.Rand, e *end) {
	e.broken = true
	if r.IntN(2) == 0 {
		reset(e.fd)
	} else {
		unix.Close(e.fd)
	}
}

func (x *stressed) write(r *rand.Rand, e *end, buf []byte) bool {
	if e.shut {
		return false
	}
	if e.sent == e.total {
		e.shut = true
		unix.Shutdown(e.fd, unix.SHUT_WR)
		return true
	}
	p := buf[:min(e.total-e.sent, 1+r.IntN(1<<r.IntN(17)))]
	pattern(p, e.seed, e.sent)
	n, err := unix.SendmsgN(e.fd, p, nil, nil, unix.MSG_NOSIGNAL)
	if err == unix.EAGAIN {
		return false
	}
	if err != nil {
		e.broken = true
		unix.Close(e.fd)
		return true
	}
	e.sent += n
	return true
}

func (x *stressed) read(t *testing.T, r *rand.Rand, e, from *end, buf []byte) bool {
	if e.eof {
		return false
	}
	p := buf[:1+r.IntN(1<<r.IntN(17))]
	n, err := unix.Read(e.fd, p)
	if err == unix.EAGAIN {
		return false
	}
	if err != nil {
		if !x.rude {
			t.Fatalf("read: %v, though no end is rude", err)
		}
		e.broken = true
		unix.Close(e.fd)
		return true
	}
	if n == 0 {
		e.eof = true
		if !x.rude && (!from.shut || e.got != from.total) {
			t.Fatalf("end of the stream after %d bytes of %d", e.got, from.total)
		}
		return true
	}
	want := make([]byte, n)
	pattern(want, from.seed, e.got)
	if !bytes.Equal(p[:n], want) {
		t.Fatalf("wrong bytes at %d of %d", e.got, from.total)
	}
	e.got += n
	return true
}

// over reports whether nothing more can come: both streams have ended, or the
// relay has given the tunnel up and both ends have seen it.
func (x *stressed) over() bool {
	for _, e := range x.ends {
		if !e.broken && !(e.eof && e.shut) {
			return false
		}
	}
	return true
}

// A hundred tunnels with random sizes, policies, pauses, half-closes and
// failures: what arrives is what was sent, ends are passed on, nothing stalls
// and nothing is left over.
func TestStress(t *testing.T) { eachEngine(t, testStress) }

func testStress(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	l := newTestLoop(t, Options{BufferSize: 8 << 10, MaxPipes: 20, PipeSize: 128 << 10})
	buf := make([]byte, 1<<17)
	var live []*stressed
	done := 0
	for start := time.Now(); time.Since(start) < *stressFor || len(live) > 0; {
		if len(live) < 100 && time.Since(start) < *stressFor {
			live = append(live, newStressed(l, r))
		}
		if r.IntN(8) == 0 {
			poison(&l.chunks)
		}
		kept := live[:0]
		for _, x := range live {
			if !x.act(t, r, buf) {
				if x.stall > 200_000 || time.Since(start) > *stressFor+limit {
					t.Fatalf("a tunnel is stuck: %+v %+v up %+v down %+v", *x.ends[0], *x.ends[1], x.up, x.down)
				}
				kept = append(kept, x)
				continue
			}
			done++
			x.finish(t)
		}
		live = kept
		l.Post(func() {})
		l.turn()
	}
	t.Logf("%d tunnels in %d turns", done, l.stats.Turns)
	l.settle()
	if _, size := freeChunks(&l.chunks); size%arenaSize != 0 {
		t.Errorf("chunks have been lost: %d bytes free", size)
	}
}

// finish waits for the relay to notice the end of a tunnel and checks that it
// did so in the right way.
func (x *stressed) finish(t *testing.T) {
	t.Helper()
	for _, e := range x.ends {
		if !e.broken {
			unix.Close(e.fd)
		}
	}
	x.l.until("the relay to close the tunnel", func() bool { return x.ended })
	if !x.rude && (x.h.err != 0 || x.h.flows != 2) {
		t.Fatalf("%d errors, %d flows ended in an orderly tunnel", x.h.err, x.h.flows)
	}
	if x.h.flows > 2 || x.h.err > 1 {
		t.Fatalf("%d errors, %d flows ended", x.h.err, x.h.flows)
	}
}
