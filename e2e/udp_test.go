package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

// udpOrigin answers every datagram with itself, and counts them.
type udpOrigin struct {
	*net.UDPConn
	count atomic.Int64
	// peers are the addresses that have sent something.
	mu    sync.Mutex
	peers map[string]bool
}

func newUDPOrigin(t *testing.T, address string) *udpOrigin {
	t.Helper()
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadBuffer(4 << 20)
	o := &udpOrigin{UDPConn: c, peers: map[string]bool{}}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, peer, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			o.count.Add(1)
			o.mu.Lock()
			o.peers[peer.String()] = true
			o.mu.Unlock()
			_, _ = c.WriteToUDPAddrPort(buf[:n], peer)
		}
	}()
	return o
}

func (o *udpOrigin) port() int { return o.LocalAddr().(*net.UDPAddr).Port }

func (o *udpOrigin) peerCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.peers)
}

func dialUDP(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// echoed sends a datagram and reports whether it comes back.
func echoed(c net.Conn, p []byte) error {
	if _, err := c.Write(p); err != nil {
		return err
	}
	return awaitEcho(c, p, patience)
}

func awaitEcho(c net.Conn, p []byte, limit time.Duration) error {
	buf := make([]byte, 64<<10)
	_ = c.SetReadDeadline(time.Now().Add(limit))
	n, err := c.Read(buf)
	if err == nil && !bytes.Equal(buf[:n], p) {
		return fmt.Errorf("%d bytes came back instead of %d", n, len(p))
	}
	return err
}

// hasIPv6 says whether ::1 can be used here.
func hasIPv6() bool {
	c, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func TestUDPPM(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, listen, ask, origin, target string }{
		{"IPv4", "127.0.0.1", "127.0.0.1", "127.0.0.1:0", "127.0.0.1"},
		{"wildcard", "0.0.0.0", "127.4.5.6", "127.0.0.1:0", "127.0.0.1"},
		{"name", "127.0.0.1", "127.0.0.1", "127.0.0.1:0", "origin.test"},
		{"IPv6", "::1", "[::1]", "[::1]:0", "::1"},
		{"IPv6 wildcard, IPv4 target", "::", "[::1]", "127.0.0.1:0", "127.0.0.1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "IPv6") && !hasIPv6() {
				skip(t, "there is no ::1")
			}
			origin, ppm := newUDPOrigin(t, c.origin), port(t)
			d := newDaemon(t, "")
			log := filepath.Join(d.dir, "access")
			d.write(fmt.Sprintf("workers 2\nauth none\nnsrecord origin.test 127.0.0.1\ntimeouts 1 1 1 1\nlog %s\nlogformat \"L%%N %%p %%E %%O %%I %%R:%%r %%T\"\nudppm -i%s %d %s %d\n",
				log, c.listen, ppm, c.target, origin.port()))
			d.launch()
			d.await()
			k := dialUDP(t, fmt.Sprintf("%s:%d", c.ask, ppm))
			sizes := []int{0, 1, 1400, 9000, 65000}
			for _, n := range sizes {
				if err := echoed(k, bytes.Repeat([]byte{'x'}, n)); err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
			list := d.conns()
			if len(list) != 1 || list[0].DatagramsIn != 5 || list[0].DatagramsOut != 5 || list[0].BytesIn != 75401 || list[0].State != "relay" {
				t.Fatalf("sessions %+v", list)
			}
			if list[0].Client != k.LocalAddr().String() {
				t.Errorf("client %s instead of %s", list[0].Client, k.LocalAddr())
			}
			// The session ends by itself.
			eventually(t, patience, func() string {
				text, _ := os.ReadFile(log)
				want := fmt.Sprintf("UDPPM %d 00000 75401 75401 ", ppm)
				if !strings.Contains(string(text), want) || !strings.Contains(string(text), "UDPMAP ") || !strings.HasSuffix(string(text), " 5/5\n") {
					return fmt.Sprintf("the log has %q", text)
				}
				return ""
			})
			n := d.service("udppm")
			if n["accepted"] != 1 || n["requests"] != 1 || n["bytes_in"] != 75401 || n["bytes_out"] != 75401 || n["datagrams_in"] != 5 || n["datagrams_out"] != 5 || n["open"] != 0 {
				t.Errorf("counters %v", n)
			}
			if origin.peerCount() != 1 {
				t.Errorf("the server saw %d clients", origin.peerCount())
			}
		})
	}
}

// TestUDPPMSingle has one answer for each datagram, of sessions of their own.
func TestUDPPMSingle(t *testing.T) {
	t.Parallel()
	origin, ppm, dead := newUDPOrigin(t, "127.0.0.1:0"), port(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nudppm -s %d 127.0.0.1 %d\nudppm -s %d 127.0.0.1 1\n", ppm, origin.port(), dead))
	k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
	for range 5 {
		_, _ = k.Write([]byte("question"))
	}
	for range 5 {
		if err := awaitEcho(k, []byte("question"), patience); err != nil {
			t.Fatal(err)
		}
	}
	d.awaitOpen(0)
	if origin.peerCount() != 5 {
		t.Errorf("the server saw %d sessions", origin.peerCount())
	}
	// A refusal ends the session as well.
	r := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", dead))
	_, _ = r.Write([]byte("question"))
	eventually(t, patience, func() string {
		if n := d.stats().Total; n["connect_failed"] != 1 || n["open"] != 0 {
			return fmt.Sprintf("counters %v", n)
		}
		return ""
	})
}

// TestUDPPMRules refuses clients by the access list, and ends sessions that a
// reload with force does not allow any more.
func TestUDPPMRules(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	config := func(rule string) string {
		return fmt.Sprintf("workers 1\ninternal 127.0.0.1\nauth iponly\nforce\n%s\nudppm %d 127.0.0.1 %d\n", rule, ppm, origin.port())
	}
	d := start(t, config("deny * * * * CONNECT\nallow * * 127.0.0.1 * UDPASSOC"))
	k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
	if err := echoed(k, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	d.write(config("deny * * * * UDPASSOC\nallow *"))
	if out, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s%s", out, stderr)
	}
	d.awaitOpen(0)
	_, _ = k.Write([]byte("hello"))
	eventually(t, patience, func() string {
		if n := d.service("udppm"); n["denied"] != 2 || n["ended_by_rules"] != 1 {
			return fmt.Sprintf("counters %v", n)
		}
		return ""
	})
	if n := origin.count.Load(); n != 1 {
		t.Errorf("the server got %d datagrams", n)
	}
}

// TestUDPPMMaxConn has exactly as many sessions as maxconn allows, over all
// workers.
func TestUDPPMMaxConn(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	const limit = 10
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nmaxconn %d\ntimeouts 1 1 1 5\nudppm %d 127.0.0.1 %d\n", limit, ppm, origin.port()))
	var clients []*net.UDPConn
	for range 3 * limit {
		k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
		clients = append(clients, k)
		_, _ = k.Write([]byte("hello"))
	}
	eventually(t, patience, func() string {
		if n := d.service("udppm"); n["datagrams_dropped"] != 2*limit || n["open"] != limit {
			return fmt.Sprintf("counters %v", n)
		}
		return ""
	})
	d.awaitOpen(0)
	// Now there is room again.
	if err := echoed(clients[3*limit-1], []byte("hello")); err == nil {
		return
	}
	// The first answer may have been that of the first datagram.
	if err := awaitEcho(clients[3*limit-1], []byte("hello"), patience); err != nil {
		t.Error(err)
	}
}

// TestUDPPMClients serves 2,000 clients at once.
func TestUDPPMClients(t *testing.T) {
	t.Parallel()
	const clients = 2000
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
	}
	data := make([]byte, 100)
	for round := range 3 {
		for first := 0; first < clients; first += 200 {
			for i := first; i < first+200; i++ {
				binary.BigEndian.PutUint64(data, uint64(round*clients+i))
				if _, err := conns[i].Write(data); err != nil {
					t.Fatal(err)
				}
			}
			for i := first; i < first+200; i++ {
				binary.BigEndian.PutUint64(data, uint64(round*clients+i))
				if err := awaitEcho(conns[i], data, patience); err != nil {
					t.Fatalf("client %d: %v", i, err)
				}
			}
		}
	}
	if n := d.service("udppm"); n["open"] != clients || n["datagrams_in"] != 3*clients || origin.peerCount() != clients {
		t.Errorf("counters %v, the server saw %d clients", n, origin.peerCount())
	}
	// With rules that allow nobody all end.
	d.write(fmt.Sprintf("workers 2\nauth iponly\ndeny *\nforce\ninternal 127.0.0.1\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	if out, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s%s", out, stderr)
	}
	d.awaitOpen(0)
}

// udpLoad is clients that send a datagram every few milliseconds and wait for
// its echo.
type udpLoad struct {
	t          *testing.T
	stop       chan struct{}
	wg         sync.WaitGroup
	sent, lost atomic.Int64
}

func startUDPLoad(t *testing.T, port, clients int, every time.Duration) *udpLoad {
	l := &udpLoad{t: t, stop: make(chan struct{})}
	for i := range clients {
		k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", port))
		l.wg.Go(func() { l.client(k, i, every) })
	}
	return l
}

func (l *udpLoad) client(k *net.UDPConn, number int, every time.Duration) {
	data := make([]byte, 64)
	buf := make([]byte, 128)
	for seq := uint64(1); ; seq++ {
		select {
		case <-l.stop:
			return
		case <-time.After(every):
		}
		binary.BigEndian.PutUint64(data, seq)
		binary.BigEndian.PutUint64(data[8:], uint64(number))
		l.sent.Add(1)
		if _, err := k.Write(data); err != nil {
			l.t.Errorf("client %d: %v", number, err)
			return
		}
		_ = k.SetReadDeadline(time.Now().Add(3 * time.Second))
		n, err := k.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.lost.Add(1)
			continue
		}
		if err != nil || !bytes.Equal(buf[:n], data) {
			l.t.Errorf("client %d: datagram %d: %v, %x", number, seq, err, buf[:n])
			return
		}
	}
}

func (l *udpLoad) end() {
	l.t.Helper()
	close(l.stop)
	l.wg.Wait()
	l.t.Logf("%d datagrams, %d lost", l.sent.Load(), l.lost.Load())
}

// TestUDPPMReload reloads under load: nothing is lost, sessions go on, and the
// sockets are kept.
func TestUDPPMReload(t *testing.T) {
	t.Parallel()
	origin, ppm, other := newUDPOrigin(t, "127.0.0.1:0"), port(t), port(t)
	config := func(more string) string {
		return fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nudppm %d 127.0.0.1 %d\n%s", ppm, origin.port(), more)
	}
	d := start(t, config(""))
	l := startUDPLoad(t, ppm, 20, 5*time.Millisecond)
	for i := range 10 {
		more := ""
		if i%2 == 0 {
			// The same port of TCP and UDP are different addresses.
			more = fmt.Sprintf("udppm %d 127.0.0.1 %d\ntcppm %d 127.0.0.1 1\n", other, origin.port(), ppm)
		}
		d.write(config(more))
		if out, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload: %s%s", out, stderr)
		}
		if i%2 == 0 {
			if err := echoed(dialUDP(t, fmt.Sprintf("127.0.0.1:%d", other)), []byte("new")); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.end()
	if l.lost.Load() > 0 || origin.peerCount() != 20+5 {
		t.Errorf("%d lost, the server saw %d clients", l.lost.Load(), origin.peerCount())
	}
	d.write(fmt.Sprintf("workers 2\nauth none\nforce\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 1\n", ppm))
	if out, stderr, code := d.ctl("reload", "--force"); code != 0 {
		t.Fatalf("reload: %s%s", out, stderr)
	}
	d.awaitOpen(0)
}

// TestUDPPMWorkers changes the number of workers under load. A client whose
// datagrams come to another worker gets a new session there.
func TestUDPPMWorkers(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	config := func(workers int) string {
		return fmt.Sprintf("workers %d\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 3\nudppm %d 127.0.0.1 %d\n", workers, ppm, origin.port())
	}
	d := start(t, config(1))
	d.fds = nil // the supervisor gets more sockets
	l := startUDPLoad(t, ppm, 20, 5*time.Millisecond)
	for _, n := range []int{3, 1, 2} {
		d.write(config(n))
		if out, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload: %s%s", out, stderr)
		}
		time.Sleep(300 * time.Millisecond)
	}
	l.end()
	if l.lost.Load() > 0 {
		t.Errorf("%d lost", l.lost.Load())
	}
}

// TestUDPPMKill kills a worker: what waits in the queue of its socket is served
// by its successor.
func TestUDPPMKill(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 2\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	k := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
	if err := echoed(k, []byte("before")); err != nil {
		t.Fatal(err)
	}
	pid := d.worker(0).PID
	freeze(t, pid)
	for i := range 20 {
		_, _ = k.Write([]byte{byte(i)})
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for i := range 20 {
		if err := awaitEcho(k, []byte{byte(i)}, patience); err != nil {
			t.Fatalf("datagram %d: %v", i, err)
		}
	}
	if origin.peerCount() != 2 {
		t.Errorf("the server saw %d sessions", origin.peerCount())
	}
}

// TestUDPPMUpgrade upgrades again and again under load: no datagram is lost.
func TestUDPPMUpgrade(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	d := startUpgradable(t, fmt.Sprintf("workers 2\nupgrade_trial 0\nupgrade_old 16\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 5\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	const clients = 20
	l := startUDPLoad(t, ppm, clients, 10*time.Millisecond)
	upgrades := 4
	if testing.Short() {
		upgrades = 2
	}
	for range upgrades {
		d.upgrade()
	}
	l.end()
	if n := l.lost.Load(); n > 0 {
		t.Errorf("%d datagrams are lost", n)
	}
	d.awaitOldGone()
	var s ipc.CounterValues
	eventually(t, patience, func() string {
		if s = d.service("udppm"); s["open"] > 0 {
			return fmt.Sprintf("counters %v", s)
		}
		return ""
	})
	if want := uint64(l.sent.Load()); s["datagrams_out"] != want || s["datagrams_in"] != want {
		t.Errorf("%d datagrams were sent, counters %v", want, s)
	}
	t.Logf("%d clients had %d sessions with the server", clients, origin.peerCount())
}

// TestUDPPMDrain replaces a worker under load.
func TestUDPPMDrain(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 3\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	l := startUDPLoad(t, ppm, 10, 5*time.Millisecond)
	for range 2 {
		pid := d.worker(0).PID
		if out, stderr, code := d.ctl("drain", "--worker", "0"); code != 0 {
			t.Fatalf("drain: %s%s", out, stderr)
		}
		d.awaitWorker(0, pid)
	}
	l.end()
	if n := l.lost.Load(); n > 0 {
		t.Errorf("%d datagrams are lost", n)
	}
}

// TestUDPPMOrphans kills the supervisor: its workers go on serving, and another
// one takes their sockets over, with fewer workers and with more.
func TestUDPPMOrphans(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	text := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 3\nudppm %d 127.0.0.1 %d\n", ppm, origin.port())
	d := start(t, text)
	l := startUDPLoad(t, ppm, 20, 10*time.Millisecond)
	last := d
	for round := range 2 {
		workers := children(last.pid())
		last.kill()
		served := origin.count.Load()
		eventually(t, patience, func() string {
			if origin.count.Load() < served+50 {
				return "no datagram is served without a supervisor"
			}
			return ""
		})
		next := d.restart(strings.Replace(text, "workers 2", fmt.Sprintf("workers %d", 1+2*(round%2)), 1))
		awaitGone(t, workers)
		last = next
	}
	// Every socket of the group is served.
	for range 20 {
		if err := echoed(dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm)), []byte("new")); err != nil {
			t.Fatal(err)
		}
	}
	l.end()
	if n := l.lost.Load(); n > 0 {
		t.Errorf("%d datagrams are lost", n)
	}
	last.fds = nil // clients of the earlier daemons have sessions there
}

// TestUDPPMWiden widens and narrows the address of a port mapping by reloads: what
// clients send meanwhile reaches the server.
func TestUDPPMWiden(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	config := func(address string) string {
		return fmt.Sprintf("workers 2\nauth none\ntimeouts 1 1 30 3\nudppm -i%s %d 127.0.0.1 %d\n", address, ppm, origin.port())
	}
	d := start(t, config("127.0.0.1"))
	quit, sent := make(chan struct{}), atomic.Int64{}
	var clients sync.WaitGroup
	for range 20 {
		c := dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
		clients.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-quit:
					return
				case <-tick.C:
				}
				if _, err := c.Write([]byte("x")); err != nil {
					t.Error(err)
					return
				}
				sent.Add(1)
			}
		})
	}
	for range 4 {
		for _, address := range []string{"0.0.0.0", "127.0.0.1"} {
			time.Sleep(50 * time.Millisecond)
			d.write(config(address))
			if _, stderr, code := d.ctl("reload"); code != 0 {
				t.Fatal(stderr)
			}
		}
	}
	close(quit)
	clients.Wait()
	eventually(t, patience, func() string {
		if n := origin.count.Load(); n != sent.Load() {
			return fmt.Sprintf("%d of %d datagrams have reached the server", n, sent.Load())
		}
		return ""
	})
	d.awaitOpen(0)
}
