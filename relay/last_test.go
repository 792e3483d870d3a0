package relay

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// segmentsIn returns how many segments the socket has received, tcp(7).
func segmentsIn(t *testing.T, fd int) uint32 {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	must(t, err)
	return info.Segs_in
}

// readToEnd waits for all that comes up to the FIN.
func readToEnd(t *testing.T, fd int) (got []byte) {
	t.Helper()
	for {
		arrives(t, fd)
		p, end, err := peerRead(fd, 1<<20)
		must(t, err)
		if got = append(got, p...); end {
			return got
		}
	}
}

// The last bytes of a connection and its FIN go in one packet.
func TestFINWithLastBytes(t *testing.T) { eachEngine(t, testFINWithLastBytes) }

func testFINWithLastBytes(t *testing.T) {
	for name, end := range map[string]func(c *Conn){
		"Shutdown":               (*Conn).Shutdown,
		"Close":                  (*Conn).Close,
		"SendLast and Shutdown":  func(c *Conn) { c.SendLast(); c.Shutdown() },
		"SendLast and Close":     func(c *Conn) { c.SendLast(); c.Close() },
		"Shutdown after a write": func(c *Conn) { c.Write([]byte("er")); c.Shutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			var conn Conn
			peer := openPair(l, &conn, &recorder{t: t})
			closeOnCleanup(t, peer)
			before := segmentsIn(t, peer)
			conn.Write([]byte("small"))
			end(&conn)
			l.submit()
			got := readToEnd(t, peer)
			if !bytes.HasPrefix(got, []byte("small")) {
				t.Errorf("%q arrives", got)
			}
			if n := segmentsIn(t, peer) - before; n != 1 {
				t.Errorf("%d segments, want 1", n)
			}
			conn.Close()
		})
	}
}

// A flow whose source has both, bytes and the FIN, when it is looked at passes
// them on as one packet, also with a ring, whose receive brings the bytes alone.
func TestFlowPassesFINWithLastBytes(t *testing.T) { eachEngine(t, testFlowPassesFINWithLastBytes) }

func testFlowPassesFINWithLastBytes(t *testing.T) {
	for _, size := range []int{1, lendMin, 1400} {
		l := newTestLoop(t, bigPipes)
		x := newRelayed(l, &autoPolicy, tcpPair)
		l.settle()
		last := patterned(3, size)
		if n := peerWrite(t, x.server, last); n != size {
			t.Fatalf("%d bytes written", n)
		}
		must(t, unix.Shutdown(x.server, unix.SHUT_WR))
		before := segmentsIn(t, x.client)
		l.until("the end", func() bool { return x.h.flows == 1 })
		l.submit()
		if got := readToEnd(t, x.client); !bytes.Equal(got, last) {
			t.Errorf("%d bytes: %d others arrive", size, len(got))
		}
		if n := segmentsIn(t, x.client) - before; n != 1 {
			t.Errorf("%d bytes: %d segments, want 1", size, n)
		}
		must(t, unix.Shutdown(x.client, unix.SHUT_WR))
		l.until("the close", func() bool { return x.ended })
		x.free()
	}
}

// A reset does not take what was written before it.
func TestResetAfterWrite(t *testing.T) { eachEngine(t, testResetAfterWrite) }

func testResetAfterWrite(t *testing.T) {
	l := newTestLoop(t, Options{})
	var conn Conn
	peer := openPair(l, &conn, &recorder{t: t})
	closeOnCleanup(t, peer)
	before := segmentsIn(t, peer)
	conn.Write([]byte("small"))
	conn.Reset()
	l.submit()
	for segmentsIn(t, peer) < before+2 {
		arrives(t, peer)
	}
}
