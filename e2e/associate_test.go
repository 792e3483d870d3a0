package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"3proxyd/ipc"
)

// associate opens a UDP association through a SOCKS service; the connection
// keeps it alive.
func associate(t *testing.T, socks int) (control net.Conn, at *net.UDPAddr) {
	t.Helper()
	c := dial(t, socks)
	if _, err := c.Write([]byte("\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || reply[3] != 0 || reply[5] != 1 {
		t.Fatalf("reply %v, %v", reply, err)
	}
	return c, &net.UDPAddr{IP: net.IP(reply[6:10]), Port: int(reply[10])<<8 | int(reply[11])}
}

// startAssociating starts a daemon with one worker, a SOCKS service and an
// origin for datagrams. A configuration in more comes first.
func startAssociating(t *testing.T, more string) (d *daemon, socks int, origin *udpOrigin) {
	t.Helper()
	socks, origin = port(t), newUDPOrigin(t, "127.0.0.1:0")
	return start(t, fmt.Sprintf("workers 1\ninternal 127.0.0.1\nauth none\n%ssocks -p%d\n", more, socks)), socks, origin
}

// localUDP opens a UDP socket with a large receive buffer.
func localUDP(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	return c
}

// datagramTo is what a client of an association sends for a port of 127.0.0.1.
func datagramTo(port int, data string) []byte {
	return append([]byte{0, 0, 0, 1, 127, 0, 0, 1, byte(port >> 8), byte(port)}, data...)
}

// askThrough sends a word through an association and expects it back.
func askThrough(c *net.UDPConn, at *net.UDPAddr, target int, word string) error {
	want := datagramTo(target, word)
	if _, err := c.WriteToUDP(want, at); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	n, err := c.Read(buf)
	if err == nil && string(buf[:n]) != string(want) {
		err = fmt.Errorf("got %q, want %q", buf[:n], want)
	}
	return err
}

// bindVia asks for a BIND for any peer and returns where the proxy listens.
func bindVia(t *testing.T, socks int) (c net.Conn, at string) {
	t.Helper()
	c = dial(t, socks)
	if _, err := c.Write([]byte("\x05\x01\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || reply[3] != 0 {
		t.Fatalf("reply %v, %v", reply, err)
	}
	return c, net.JoinHostPort(net.IP(reply[6:10]).String(), strconv.Itoa(int(reply[10])<<8|int(reply[11])))
}

// mustBind connects to a BIND and sends a word each way.
func mustBind(t *testing.T, c net.Conn, at string) {
	t.Helper()
	peer, err := net.DialTimeout("tcp", at, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = peer.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.CopyN(peer, peer, 4) }()
	mustPing(t, c)
}

// sessionOf waits for the live session with an operation and returns it.
func (d *daemon) sessionOf(op, state string) (found ipc.Session) {
	d.t.Helper()
	eventually(d.t, patience, func() string {
		for _, found = range d.conns() {
			if found.Op == op && found.State == state {
				return ""
			}
		}
		return "no session for " + op
	})
	return found
}

// TestUpgradeAssociate upgrades under an association and a BIND that waits: the
// old daemon finishes them, the new one has those that come later.
func TestUpgradeAssociate(t *testing.T) {
	t.Parallel()
	socks, origin := port(t), newUDPOrigin(t, "127.0.0.1:0")
	d := startUpgradable(t, fmt.Sprintf("workers 1\nupgrade_trial 0\ninternal 127.0.0.1\nauth none\nsocks -p%d\n", socks))
	control, at := associate(t, socks)
	me := localUDP(t)
	check := func(when string) {
		t.Helper()
		for i := range 20 {
			if err := askThrough(me, at, origin.port(), fmt.Sprint(when, i)); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	check("before")
	s := d.sessionOf("UDPASSOC", "associate")
	if s.Target != fmt.Sprintf("127.0.0.1:%d", origin.port()) || s.DatagramsIn != 20 || s.DatagramsOut != 20 {
		t.Errorf("%+v", s)
	}
	bound, boundAt := bindVia(t, socks)
	d.sessionOf("BIND", "bind")
	d.upgrade()
	check("after")
	mustBind(t, bound, boundAt)
	bound.Close()
	later, laterAt := associate(t, socks)
	if err := askThrough(localUDP(t), laterAt, origin.port(), "in the new one"); err != nil {
		t.Error(err)
	}
	check("at last")
	control.Close()
	later.Close()
	d.awaitOldGone()
}

// TestDrainAssociate drains a worker: its association lives until the deadline.
func TestDrainAssociate(t *testing.T) {
	t.Parallel()
	d, socks, origin := startAssociating(t, "")
	control, at := associate(t, socks)
	me := localUDP(t)
	if err := askThrough(me, at, origin.port(), "before"); err != nil {
		t.Fatal(err)
	}
	d.ctl("drain", "--worker", "0", "--timeout", "2")
	if err := askThrough(me, at, origin.port(), "while it drains"); err != nil {
		t.Error(err)
	}
	_ = control.SetReadDeadline(time.Now().Add(patience))
	if n, err := control.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("after the deadline: %d, %v", n, err)
	}
}

// manyAssociations is how many one worker has in TestManyAssociations.
const manyAssociations = 2000

// TestManyAssociations has one worker serve thousands of associations: each
// answers, and none is left behind. It says what one costs. Then the associations
// are flooded, and say what arrives.
func TestManyAssociations(t *testing.T) {
	n := manyAssociations
	if testing.Short() {
		n = 200
	}
	d, socks, origin := startAssociating(t, "auth iponly\ndeny * * 10.0.0.0/8\nallow *\n")
	worker := d.worker(0).PID
	me := localUDP(t)
	warm, at := associate(t, socks)
	if err := askThrough(me, at, origin.port(), "warm"); err != nil {
		t.Fatal(err)
	}
	warm.Close()
	before := statusKB(t, worker, "VmRSS")
	var controls []net.Conn
	var ats []net.Addr
	for i := range n {
		c, at := associate(t, socks)
		if err := askThrough(me, at, origin.port(), fmt.Sprint(i)); err != nil {
			t.Fatalf("association %d: %v", i, err)
		}
		controls, ats = append(controls, c), append(ats, at)
	}
	t.Logf("%d associations: %.1f KB of the worker's memory each", n, float64(statusKB(t, worker, "VmRSS")-before)/float64(n))
	floodAssociations(t, d, me, ats)
	for i, at := range ats[:100] {
		drainUDP(me)
		if err := askThrough(me, at.(*net.UDPAddr), origin.port(), fmt.Sprint("again ", i)); err != nil {
			t.Fatalf("association %d after the flood: %v", i, err)
		}
	}
	for _, c := range controls {
		c.Close()
	}
	eventually(t, patience, func() string {
		if open := d.service("socks")["open"]; open != 0 {
			return fmt.Sprint(open, " associations are left")
		}
		return ""
	})
}

// drainUDP drops what waits in a socket.
func drainUDP(c *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// floodAssociations sends datagrams through all associations to a sink, at E2E_RATE a second
// (20,000 if it is not set), and logs where they have got to.
func floodAssociations(t *testing.T, d *daemon, me *net.UDPConn, ats []net.Addr) {
	t.Helper()
	rate := 20_000
	if text := os.Getenv("E2E_RATE"); text != "" {
		rate, _ = strconv.Atoi(text)
	}
	sink := localUDP(t)
	var received atomic.Int64
	go func() {
		in := ipv4.NewPacketConn(sink)
		batch := make([]ipv4.Message, 64)
		for i := range batch {
			batch[i].Buffers = [][]byte{make([]byte, 2048)}
		}
		for {
			n, err := in.ReadBatch(batch, 0)
			if err != nil {
				return
			}
			received.Add(int64(n))
		}
	}()
	data := datagramTo(sink.LocalAddr().(*net.UDPAddr).Port, strings.Repeat("x", 100))
	before, overruns := d.service("socks"), receiveOverruns(t)
	sent, failed, took := sendThrough(me, ats, data, rate, 2*time.Second)
	var last int64 = -1
	for last != received.Load() {
		last = received.Load()
		time.Sleep(200 * time.Millisecond)
	}
	after := d.service("socks")
	t.Logf("flood: %d sent in %.1f s (%.0f/s, %d calls failed), %d taken by the worker, %d dropped by it, %d received (%.2f %% lost); receive buffers overrun: %d",
		sent, took.Seconds(), float64(sent)/took.Seconds(), failed, after["datagrams_out"]-before["datagrams_out"],
		after["datagrams_dropped"]-before["datagrams_dropped"], last, 100*float64(int64(sent)-last)/float64(sent), receiveOverruns(t)-overruns)
	if last == 0 || after["datagrams_dropped"] != before["datagrams_dropped"] {
		t.Errorf("%d datagrams arrived, %d were dropped", last, after["datagrams_dropped"]-before["datagrams_dropped"])
	}
}

// receiveOverruns is UdpRcvbufErrors of /proc/net/snmp.
func receiveOverruns(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Udp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == "RcvbufErrors" {
					n, _ := strconv.Atoi(fields[i])
					return n
				}
			}
		}
	}
	t.Fatal("no RcvbufErrors in /proc/net/snmp")
	return 0
}

// TestKillAssociate kills a worker with an association: the client sees the end
// of its connection and can begin anew.
func TestKillAssociate(t *testing.T) {
	t.Parallel()
	d, socks, origin := startAssociating(t, "")
	control, at := associate(t, socks)
	me := localUDP(t)
	if err := askThrough(me, at, origin.port(), "before"); err != nil {
		t.Fatal(err)
	}
	pid := d.worker(0).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = control.SetReadDeadline(time.Now().Add(patience))
	if n, err := control.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("the connection of a dead worker: %d, %v", n, err)
	}
	d.awaitWorker(0, pid)
	_, at = associate(t, socks)
	if err := askThrough(me, at, origin.port(), "after"); err != nil {
		t.Error(err)
	}
}

// sendThrough sends a datagram to the addresses in turn, at a rate a second for a
// time, and returns how many it has sent, in which time, and how many calls failed.
func sendThrough(me *net.UDPConn, ats []net.Addr, data []byte, rate int, lasting time.Duration) (sent, failed int, took time.Duration) {
	out := ipv4.NewPacketConn(me)
	batch := make([]ipv4.Message, 64)
	start := time.Now()
	for end := start.Add(lasting); time.Now().Before(end); {
		for i := range batch {
			batch[i] = ipv4.Message{Buffers: [][]byte{data}, Addr: ats[(sent+i)%len(ats)]}
		}
		n, err := out.WriteBatch(batch, 0)
		if err != nil {
			failed++
		}
		sent += n
		if ahead := time.Duration(sent)*time.Second/time.Duration(rate) - time.Since(start); ahead > 0 {
			time.Sleep(ahead)
		}
	}
	return sent, failed, time.Since(start)
}
