package relay

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// Many small pieces make a direction rest; what comes meanwhile arrives after
// the rest, and large pieces never have to wait.
func TestGrace(t *testing.T) { eachEngine(t, testGrace) }

func testGrace(t *testing.T) {
	policy := Policy{Grace: Grace{Traffic: 100, Reads: 5, DelayMS: 200}}
	for name, c := range map[string]struct {
		size int
		rest bool
	}{"small": {10, true}, "large": {100, false}} {
		t.Run(name, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			x := newRelayed(l, &policy, tcpPair)
			var want, got []byte
			piece := func() {
				p := patterned(3, len(want)+c.size)[len(want):]
				want = append(want, p...)
				peerWrite(t, x.client, p)
			}
			for range policy.Grace.Reads {
				piece()
				l.until("a piece", func() bool {
					got = append(got, peerHas(t, x.server)...)
					return len(got) == len(want)
				})
			}
			if x.up.resting() != c.rest {
				t.Errorf("resting %v after %d reads", x.up.resting(), policy.Grace.Reads)
			}
			start := l.Now()
			piece()
			piece()
			must(t, unix.Shutdown(x.client, unix.SHUT_WR))
			l.until("the rest", func() bool {
				got = append(got, peerHas(t, x.server)...)
				return len(got) == len(want)
			})
			if waited := l.Now() - start; c.rest && waited < policy.Grace.DelayMS-nearTickMS {
				t.Errorf("the rest ended after %d ms", waited)
			}
			if !bytes.Equal(got, want) {
				t.Error("other bytes arrive")
			}
			l.until("the end", func() bool { return x.h.flows == 1 })
			x.free()
		})
	}
}

// A connection that is closed while it rests leaves no timer behind.
func TestGraceClosed(t *testing.T) { eachEngine(t, testGraceClosed) }

func testGraceClosed(t *testing.T) {
	policy := Policy{Grace: Grace{Traffic: 100, Reads: 1, DelayMS: 100}}
	l := newTestLoop(t, Options{})
	x := newRelayed(l, &policy, tcpPair)
	peerWrite(t, x.client, []byte("x"))
	l.until("the rest", func() bool { return x.up.resting() })
	r := x.up.rest
	x.free()
	if r.timer.Set() || r.flow != nil {
		t.Error("the timer is set")
	}
	if y := newRelayed(l, &policy, tcpPair); y.up.resting() || y.down.resting() || y.up.rest == y.down.rest {
		t.Error("the rest is not new")
	} else {
		y.free()
	}
}
