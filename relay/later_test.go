package relay

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// openPair opens one end of a TCP connection in the loop and returns the other.
func openPair(l *testLoop, c *Conn, h Handler) (peer int) {
	peer, fd := tcpPair(l.t)
	l.open(c, fd, h)
	return peer
}

// peerHas returns what the peer can read without a further turn.
func peerHas(t *testing.T, peer int) []byte {
	t.Helper()
	p, _, err := peerRead(peer, 1<<20)
	must(t, err)
	return p
}

// What must be written before the turn ends, is: each operation that looks at
// the output, or ends it, writes first what was put off.
func TestPutOffIsWrittenBefore(t *testing.T) { eachEngine(t, testPutOffIsWrittenBefore) }

func testPutOffIsWrittenBefore(t *testing.T) {
	small, large := []byte("small"), patterned(1, laterMax+1)
	for name, c := range map[string]struct {
		do   func(c *Conn)
		want []byte
	}{
		"Pending":      {func(c *Conn) { c.Pending() }, small},
		"Blocked":      {func(c *Conn) { c.Blocked() }, small},
		"Unsent":       {func(c *Conn) { c.Unsent() }, small},
		"Shutdown":     {func(c *Conn) { c.Shutdown() }, small},
		"SendLast":     {func(c *Conn) { c.SendLast(); c.Close() }, small},
		"Close":        {func(c *Conn) { c.Close() }, small},
		"large Write":  {func(c *Conn) { c.Write(large) }, append(bytes.Clone(small), large...)},
		"large Write2": {func(c *Conn) { c.Write2(large, small) }, append(append(bytes.Clone(small), large...), small...)},
		"Detach":       {func(c *Conn) { c.Detach(func(d *Detached) { unix.Close(int(d.FD)) }) }, small},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			var conn Conn
			h := recorder{t: t}
			peer := openPair(l, &conn, &h)
			closeOnCleanup(t, peer)
			conn.Write(small)
			if p := peerHas(t, peer); len(p) != 0 {
				t.Fatalf("%q has been written at once", p)
			}
			c.do(&conn)
			arrives(t, peer)
			var got []byte
			for len(got) < len(c.want) {
				got = append(got, peerHas(t, peer)...)
			}
			if !bytes.Equal(got, c.want) {
				t.Errorf("%d bytes arrive, want %d", len(got), len(c.want))
			}
			conn.Close()
		})
	}
}

// Writes of one turn arrive whole and in order, however they are mixed.
func TestPutOffOrder(t *testing.T) { eachEngine(t, testPutOffOrder) }

func testPutOffOrder(t *testing.T) {
	l := newTestLoop(t, Options{})
	var conns [laterWrites + 8]Conn
	var peers [len(conns)]int
	h := recorder{t: t}
	for i := range conns {
		peers[i] = openPair(l, &conns[i], &h)
		closeOnCleanup(t, peers[i])
	}
	sizes := []int{1, 100, laterMax, laterMax + 1, 0, 7, laterMax - 1, 3000, 3000, 2}
	var want [len(conns)][]byte
	for round, size := range sizes {
		for i := range conns {
			if (i+round)%3 == 0 {
				continue
			}
			p := patterned(byte(i), len(want[i])+size)[len(want[i]):]
			half := len(p) / 2
			if round%2 == 0 {
				conns[i].Write(p)
			} else {
				conns[i].Write2(p[:half], p[half:])
			}
			want[i] = append(want[i], p...)
		}
	}
	for i := range conns {
		var got []byte
		l.until("the bytes", func() bool {
			got = append(got, peerHas(t, peers[i])...)
			return len(got) >= len(want[i])
		})
		if !bytes.Equal(got, want[i]) {
			t.Errorf("connection %d: %d bytes arrive and differ from %d", i, len(got), len(want[i]))
		}
		conns[i].Close()
	}
	if h.err != 0 {
		t.Errorf("failures: %v", h.log)
	}
}

// What a full socket does not take of a write that was put off is pending, and
// OnSent comes once it is gone.
func TestPutOffToFullSocket(t *testing.T) { eachEngine(t, testPutOffToFullSocket) }

func testPutOffToFullSocket(t *testing.T) {
	l := newTestLoop(t, Options{})
	var conn Conn
	h := recorder{t: t}
	peer := openPair(l, &conn, &h)
	closeOnCleanup(t, peer)
	smallBuffers(int(conn.fd))
	smallBuffers(peer)
	total := 0
	for conn.Backlog() == 0 {
		conn.Write(patterned(9, total+1000)[total:])
		total += 1000
		l.turn()
		if total > 1<<24 {
			t.Fatal("the socket takes everything")
		}
	}
	var got []byte
	l.until("OnSent", func() bool {
		got = append(got, peerHas(t, peer)...)
		return h.sents == 1 && len(got) >= total
	})
	if !bytes.Equal(got, patterned(9, total)) {
		t.Errorf("%d bytes arrive, %d were written", len(got), total)
	}
	conn.Close()
}

// A failure of a write that was put off reaches OnError from the loop, once, and
// other connections' writes are made all the same.
func TestPutOffToBrokenSocket(t *testing.T) { eachEngine(t, testPutOffToBrokenSocket) }

func testPutOffToBrokenSocket(t *testing.T) {
	l := newTestLoop(t, Options{})
	var broken, sound Conn
	hb, hs := recorder{t: t}, recorder{t: t}
	peer := openPair(l, &broken, &hb)
	other := openPair(l, &sound, &hs)
	closeOnCleanup(t, other)
	reset(peer)
	broken.Write([]byte("x"))
	sound.Write([]byte("y"))
	l.until("the failure", func() bool { return hb.err == 1 })
	l.settle()
	if p := peerHas(t, other); string(p) != "y" || hb.err != 1 || hs.err != 0 {
		t.Errorf("the other gets %q; failures %d and %d", p, hb.err, hs.err)
	}
	broken.Close()
	sound.Close()
}

// A write that was put off and finds a reset has taken the socket's error; the
// reset is no end of the stream all the same.
func TestPutOffMeetsReset(t *testing.T) { eachEngine(t, testPutOffMeetsReset) }

func testPutOffMeetsReset(t *testing.T) {
	l := newTestLoop(t, Options{})
	for range 20 {
		x := newRelayed(l, &autoPolicy, tcpPair)
		l.settle()
		peerWrite(t, x.client, []byte("x"))
		reset(x.server)
		l.until("the failure", func() bool { return x.h.err > 0 })
		if x.h.err != 1 || x.h.flows != 0 {
			t.Errorf("%d errors, %d ends", x.h.err, x.h.flows)
		}
		unix.Close(x.client)
	}
}
