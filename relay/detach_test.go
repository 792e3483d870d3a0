package relay

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// detach takes both connections of x out of their loop; ready is called when
// it is done.
func (x *relayed) detach(ready func(cli, srv *Detached, up, down *FlowState)) {
	var up, down *FlowState
	for _, f := range []struct {
		flow  *Flow
		state **FlowState
	}{{&x.up, &up}, {&x.down, &down}} {
		if f.flow.Active() {
			s := f.flow.Halt()
			*f.state = &s
		}
	}
	var cli, srv *Detached
	done := func(d *Detached, to **Detached) {
		if *to = d; cli != nil && srv != nil {
			// What has been read on the way out goes to the other side.
			srv.Output = append(srv.Output, cli.Input...)
			cli.Output = append(cli.Output, srv.Input...)
			ready(cli, srv, up, down)
		}
	}
	x.cli.Detach(func(d *Detached) { done(d, &cli) })
	x.srv.Detach(func(d *Detached) { done(d, &srv) })
}

func (x *relayed) attach(l *testLoop, p *Policy, cli, srv *Detached, up, down *FlowState) {
	x.l = l
	for _, c := range []struct {
		conn *Conn
		d    *Detached
	}{{&x.cli, cli}, {&x.srv, srv}} {
		if errno := l.Attach(c.conn, c.d, x); errno != 0 {
			l.t.Fatalf("Attach: %v", errno)
		}
	}
	if up != nil {
		l.StartFlow(&x.up, &x.cli, &x.srv, Unlimited, p, x.meter)
		x.up.Resume(*up)
	}
	if down != nil {
		l.StartFlow(&x.down, &x.srv, &x.cli, Unlimited, p, x.meter)
		x.down.Resume(*down)
	}
	x.endWhenSent()
}

// Two joined connections change loops again and again, with readers that are
// slow, and while one direction has ended. Nothing is lost, nothing comes
// twice.
func TestDetachWhileRelaying(t *testing.T) { eachEngine(t, testDetachWhileRelaying) }

func testDetachWhileRelaying(t *testing.T) {
	eachKind(t, func(t *testing.T, pair func(*testing.T) (int, int), p *Policy) {
		loops := []*testLoop{newTestLoop(t, bigPipes), newTestLoop(t, bigPipes)}
		x := newRelayed(loops[0], p, func(t *testing.T) (int, int) {
			a, b := pair(t)
			smallBuffers(a)
			smallBuffers(b)
			return a, b
		})
		up, down := patterned(1, 400_000), patterned(2, 100_000)
		var gotUp, gotDown []byte
		var sentUp, sentDown int
		var endUp, endDown, away bool
		turn, moves, withOutput := 0, 0, 0
		step := func() {
			if turn++; turn%3 == 0 && !away && x.cli.Detachable() && x.srv.Detachable() {
				away = true
				x.detach(func(cli, srv *Detached, up, down *FlowState) {
					if len(cli.Output)+len(srv.Output) > 0 {
						withOutput++
					}
					moves++
					away = false
					x.attach(loops[moves%2], p, cli, srv, up, down)
				})
			}
			l := loops[moves%2]
			l.turn()
			poison(&l.chunks)
			sentUp += sendOrEnd(t, x.client, up, sentUp)
			sentDown += sendOrEnd(t, x.server, down, sentDown)
			gotUp, endUp = readInto(t, x.server, gotUp, 20_000, endUp)
			gotDown, endDown = readInto(t, x.client, gotDown, 20_000, endDown)
		}
		for start := time.Now(); !endUp || !endDown; step() {
			if time.Since(start) > limit {
				t.Fatal("the streams do not end")
			}
		}
		loops[moves%2].until("the close", func() bool { return x.ended })
		if !bytes.Equal(gotUp, up) || !bytes.Equal(gotDown, down) {
			t.Errorf("%d bytes of %d up, %d of %d down, or others", len(gotUp), len(up), len(gotDown), len(down))
		}
		if moves < 5 || withOutput == 0 {
			t.Errorf("%d moves, %d with output that waited", moves, withOutput)
		}
		x.free()
		for _, l := range loops {
			l.pipes.trim(0)
			l.submit()
		}
	})
}

// A FIN that waits for output goes along with it.
func TestDetachKeepsShutdown(t *testing.T) { eachEngine(t, testDetachKeepsShutdown) }

func testDetachKeepsShutdown(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, a := tcpPair(t)
	closeOnCleanup(t, peer)
	smallBuffers(a)
	h := recorder{t: t}
	var c, other Conn
	l.open(&c, a, &h)
	l.settle()
	all := patterned(3, 3<<20)
	c.Write(all)
	c.Shutdown()
	if c.Pending() == 0 {
		t.Fatal("nothing waits")
	}
	moved := false
	c.Detach(func(d *Detached) {
		if errno := l.Attach(&other, d, &h); errno != 0 {
			t.Fatalf("Attach: %v", errno)
		}
		moved = true
	})
	var got []byte
	ended := false
	l.until("the end", func() bool {
		got, ended = readInto(t, peer, got, 1<<20, ended)
		return ended && moved
	})
	if !bytes.Equal(got, all) {
		t.Errorf("%d bytes of %d, or others", len(got), len(all))
	}
	other.Close()
}

// The events of a descriptor that was given away do not come any more.
func TestDetachEndsEvents(t *testing.T) { eachEngine(t, testDetachEndsEvents) }

func testDetachEndsEvents(t *testing.T) {
	l := newTestLoop(t, Options{})
	peer, a := tcpPair(t)
	closeOnCleanup(t, peer)
	h := recorder{t: t}
	var c Conn
	l.open(&c, a, &h)
	l.settle()
	fd := int32(-1)
	c.Detach(func(d *Detached) { fd = d.FD })
	l.until("the descriptor", func() bool { return fd >= 0 })
	closeOnCleanup(t, int(fd))
	l.settle()
	before := l.stats.Events
	peerWrite(t, peer, []byte("x"))
	arrives(t, int(fd))
	l.settle()
	// The loop's own timer brings no events.
	if n := l.stats.Events - before; n != 0 || c.IsOpen() || len(h.log) > 0 {
		t.Errorf("%d events, calls %q", n, h.log)
	}
	must(t, unix.SetNonblock(int(fd), true))
	if p, _, err := peerRead(int(fd), 10); string(p) != "x" || err != nil {
		t.Errorf("read %q, %v", p, err)
	}
}
