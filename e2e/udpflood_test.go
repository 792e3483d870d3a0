package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// udpSink takes datagrams in batches and counts them.
type udpSink struct {
	fd    int
	count atomic.Int64
	port  int
}

func newUDPSink(t *testing.T) *udpSink {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	s := &udpSink{fd: fd, port: at.(*unix.SockaddrInet4).Port}
	batch, err := sys.NewRecvBatch(64)
	if err != nil {
		t.Fatal(err)
	}
	done, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(over)
		<-done
		batch.Free()
		unix.Close(fd)
	})
	go func() {
		defer close(done)
		wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			select {
			case <-over:
				return
			default:
			}
			n, errno := batch.Recv(int32(fd))
			if errno == unix.EAGAIN {
				_, _ = unix.Poll(wait, 100)
			}
			s.count.Add(int64(n))
			for i := range n {
				batch.Take(i)
			}
		}
	}()
	return s
}

// udpErrors returns the counters of UDP of /proc/net/snmp by name.
func udpErrors(t *testing.T) map[string]int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	values := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		fields, ok := strings.CutPrefix(line, "Udp: ")
		if !ok {
			continue
		}
		if names == nil {
			names = strings.Fields(fields)
			continue
		}
		for i, f := range strings.Fields(fields) {
			var n int64
			_, _ = fmt.Sscan(f, &n)
			values[names[i]] = n
		}
	}
	return values
}

// floodUDP sends rate datagrams a second of size bytes from some sockets for a
// time, and returns how many it has sent.
func floodUDP(t *testing.T, port, sockets, rate, size int, lasting time.Duration) int {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	fds := make([]int32, sockets)
	for i := range fds {
		fd, errno := sys.DatagramSocket(unix.AF_INET)
		if errno != 0 {
			t.Fatal(errno)
		}
		defer sys.Close(fd)
		var sa sys.Sockaddr
		sa.Set(to)
		if errno := sys.Connect(fd, &sa); errno != 0 {
			t.Fatal(errno)
		}
		fds[i] = fd
	}
	const burst = 32
	data := make([]byte, size)
	batch := sys.NewSendBatch(burst)
	sent, start := 0, time.Now()
	for turn := 0; ; turn++ {
		elapsed := time.Since(start)
		if elapsed >= lasting {
			return sent
		}
		if sent >= int(elapsed.Seconds()*float64(rate)) {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		for range burst {
			batch.Add(data, netip.AddrPort{}, 0, netip.Addr{})
		}
		for batch.Left() > 0 {
			n, errno := batch.Send(fds[turn%sockets])
			if errno != 0 {
				t.Fatal(errno)
			}
			sent += n
		}
		batch.Reset()
	}
}

// TestUDPPMFlood sends datagrams through one worker as fast as it is told to
// (E2E_UDP_RATE, a second), and accounts for those that are lost.
func TestUDPPMFlood(t *testing.T) {
	sink, ppm := newUDPSink(t), port(t)
	rate, lasting := 30_000, time.Second
	if v := os.Getenv("E2E_UDP_RATE"); v != "" {
		_, _ = fmt.Sscan(v, &rate)
		lasting = 5 * time.Second
	}
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 2\nudppm %d 127.0.0.1 %d\n", ppm, sink.port))
	const sockets = 16
	// The first datagram of each client opens its session.
	floodUDP(t, ppm, sockets, 1000, 100, 100*time.Millisecond)
	d.awaitOpen(0)
	sink.count.Store(0)
	before, counters, cpu := udpErrors(t), d.service("udppm"), cpuTime(t, d.worker(0).PID)
	sent := floodUDP(t, ppm, sockets, rate, 100, lasting)
	eventually(t, patience, func() string {
		if n := d.service("udppm"); n["open"] > 0 {
			return fmt.Sprintf("counters %v", n)
		}
		return ""
	})
	used := cpuTime(t, d.worker(0).PID) - cpu
	now, after := d.service("udppm"), udpErrors(t)
	got := int(sink.count.Load())
	overflow := int(after["RcvbufErrors"] - before["RcvbufErrors"])
	dropped := int(now["datagrams_dropped"] - counters["datagrams_dropped"])
	refused := int(d.stats().Workers[0].Loop["packets_dropped"])
	t.Logf("%d datagrams in %v (%.0f a second), %d arrived; lost: full queues %d, without a session %d, not sent %d; worker's CPU time %.0f ns each",
		sent, lasting, float64(sent)/lasting.Seconds(), got, overflow, dropped, refused, float64(used.Nanoseconds())/float64(max(1, got)))
	if lost := sent - got; lost > overflow+dropped+refused {
		t.Errorf("%d of %d lost datagrams have no known cause", lost-overflow-dropped-refused, lost)
	}
	if now["datagrams_out"]-counters["datagrams_out"] < uint64(got) {
		t.Errorf("counters %v", now)
	}
}

// TestUDPPMShortage has fewer descriptors than clients: those without a session
// are counted, the others served, and all of it ends.
func TestUDPPMShortage(t *testing.T) {
	t.Parallel()
	origin, ppm := newUDPOrigin(t, "127.0.0.1:0"), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntimeouts 1 1 1 4\nudppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	pid := d.worker(0).PID
	// The worker finds out by the kernel's refusal.
	limit := uint64(openFDs(t, pid) + 10)
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	const clients = 40
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		conns[i] = dialUDP(t, fmt.Sprintf("127.0.0.1:%d", ppm))
		if _, err := conns[i].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, patience, func() string {
		n := d.service("udppm")
		if n["no_resources"]+n["requests"] != clients || n["no_resources"] < 20 || n["requests"] < 5 {
			return fmt.Sprintf("counters %v", n)
		}
		return ""
	})
	if n := strings.Count(d.out.String(), "requests fail for want of descriptors"); n != 1 {
		t.Errorf("the shortage was said %d times", n)
	}
	d.awaitOpen(0)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	if err := echoed(conns[clients-1], []byte("hello")); err != nil {
		t.Error(err)
	}
}
