package relay

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What a server sends on a new connection before the first write is told from an
// answer: what has been seen before the request is written by both engines, what
// has come by then by the ring, whose first write is not always its own call.
func TestEarly(t *testing.T) { eachEngine(t, testEarly) }

func testEarly(t *testing.T) {
	for _, test := range []struct {
		name         string
		before       bool // input comes before OnConnect
		between      bool // or after it, before the write is made
		small, large int  // sizes of what is written at first
		early        bool
	}{
		{"before OnConnect", true, false, 100, 0, true},
		{"before OnConnect, large", true, false, 0, 8000, true},
		{"before the write", false, true, 100, 0, testEngine == EngineURing},
		{"before a large write", false, true, 0, 8000, testEngine == EngineURing},
		{"before two writes", false, true, 100, 8000, testEngine == EngineURing},
		{"after the write", false, false, 100, 0, false},
		{"after a large write", false, false, 0, 8000, false},
		{"after two writes", false, false, 100, 8000, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newTestLoop(t, Options{})
			ln, sa := listenTCP(t, 8)
			closeOnCleanup(t, ln)
			h := &recorder{t: t}
			var c Conn
			t.Cleanup(c.Close)
			if op, errno := l.Connect(&c, &Target{Addr: addrPort(sa)}, h); errno != 0 {
				t.Fatalf("%s: %v", op, errno)
			}
			l.submit()
			arrives(t, ln)
			peer, _, err := unix.Accept4(ln, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			must(t, err)
			closeOnCleanup(t, peer)
			if test.before {
				peerWrite(t, peer, []byte("banner"))
				arrives(t, int(c.fd))
			}
			h.onConnect = func(c *Conn, errno unix.Errno) {
				if errno != 0 {
					t.Fatal(errno)
				}
				if test.between {
					peerWrite(t, peer, []byte("banner"))
					arrives(t, int(c.fd))
				}
				c.TellEarly()
				c.StartRead()
				if test.small > 0 {
					c.Write(make([]byte, test.small))
				}
				if test.large > 0 {
					c.Write(make([]byte, test.large))
				}
			}
			h.onData = func(c *Conn, p []byte) {
				if c.HasEarly() != test.early {
					t.Errorf("early %v", c.HasEarly())
				}
			}
			l.until("the connection", func() bool { return h.conns > 0 })
			if !test.before && !test.between {
				for got := 0; got < test.small+test.large; {
					l.turn()
					p, _, err := peerRead(peer, 1<<20)
					must(t, err)
					got += len(p)
				}
				peerWrite(t, peer, []byte("answer"))
			}
			l.until("input", func() bool { return len(h.data) > 0 })
			// What comes later is not early, but the connection stays marked.
			c.Write([]byte("again"))
			l.settle()
			if c.HasEarly() != test.early || c.flags&flagFirst != 0 {
				t.Errorf("flags %x at the end", c.flags)
			}
		})
	}
}
