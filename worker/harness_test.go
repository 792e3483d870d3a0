package worker

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/internal/freeport"
	"3proxyd/ipc"
)

// proxy is a worker running in the test process, with the test as its
// supervisor.
type proxy struct {
	t     testing.TB
	conn  *ipc.Conn
	shm   *ipc.Shm
	done  chan int
	addrs []string // of the services, in order
	cfg   *config.Config
	gen   uint64
	row   int
	// drained says that the worker has been told to end.
	drained bool
}

// startProxy runs a worker with a configuration in which each "PORT" stands
// for a free port.
func startProxy(t testing.TB, text string) *proxy {
	t.Helper()
	checkLeaks(t)
	for strings.Contains(text, "PORT") {
		text = strings.Replace(text, "PORT", fmt.Sprint(freePort(t)), 1)
	}
	cfg, diags := config.LoadBytes("test.cfg", []byte(text))
	if cfg == nil {
		t.Fatalf("configuration: %v", diags)
	}
	near, far, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	shm.SetRows(1)
	p := &proxy{t: t, conn: near, shm: shm, done: make(chan int, 1), cfg: cfg}
	fd, err := unix.Dup(int(far.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	far.Close()
	go func() { p.done <- Run(fd) }()
	p.expect(ipc.MsgHello)
	p.send(ipc.MsgWelcome, ipc.Welcome{Version: ipc.Version, MaxFDs: 10000, MaxPipes: 16, PipeSize: 256 << 10, Engine: *engine}, shm.FD())
	p.load(cfg)
	t.Cleanup(p.stop)
	return p
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (p *proxy) send(t ipc.Type, body any, fds ...int) {
	p.t.Helper()
	if err := p.conn.Send(t, 1, body, fds...); err != nil {
		p.t.Fatal(err)
	}
}

// receive returns the next message of the worker. One that does not answer is hung:
// the error says where all goroutines are.
func (p *proxy) receive() (*ipc.Message, error) { return receive(p.conn) }

func receive(c *ipc.Conn) (*ipc.Message, error) {
	_ = c.SetRecvDeadline(time.Now().Add(answerLimit))
	m, err := c.Recv()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the worker has not answered within %v\n%s", answerLimit, stacks())
	}
	return m, err
}

// The limits of waits that nothing but a fault makes long.
const (
	answerLimit = time.Minute
	connLimit   = 2 * time.Minute
	testLimit   = 4 * time.Minute
)

// stacks is what all goroutines do.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// await returns what comes over a channel; one over which nothing comes ends the
// test.
func await[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(answerLimit):
		t.Fatalf("nothing has come within %v\n%s", answerLimit, stacks())
	}
	return v
}

func (p *proxy) expect(want ipc.Type) *ipc.Message {
	p.t.Helper()
	m, err := p.receive()
	if err != nil {
		p.t.Fatal(err)
	}
	if m.Type != want {
		p.t.Fatalf("message type %d (%s), want %d", m.Type, m.Body, want)
	}
	return m
}

// load puts a configuration in force, opening the listeners it needs.
func (p *proxy) load(cfg *config.Config) {
	p.t.Helper()
	p.gen++
	data, err := json.Marshal(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	mem, err := ipc.WriteMemfd("config", data)
	if err != nil {
		p.t.Fatal(err)
	}
	defer mem.Close()
	body := ipc.Prepare{Gen: p.gen}
	for i, s := range cfg.Services {
		limit := s.MaxConn
		if limit == 0 {
			limit = 1000
		}
		body.Services = append(body.Services, ipc.ServiceSlot{Column: i, MaxConn: limit})
	}
	p.send(ipc.MsgPrepare, body, int(mem.Fd()))
	p.sendListeners(cfg)
	p.send(ipc.MsgPrepareEnd, ipc.Generation{Gen: p.gen})
	var prepared ipc.Prepared
	if err := p.expect(ipc.MsgPrepared).Decode(&prepared); err != nil || prepared.Error != "" {
		p.t.Fatalf("prepare: %v %s", err, prepared.Error)
	}
	p.send(ipc.MsgCommit, ipc.Generation{Gen: p.gen})
	p.expect(ipc.MsgCommitted)
}

func (p *proxy) sendListeners(cfg *config.Config) {
	p.t.Helper()
	files := ipc.Files{Gen: p.gen}
	var fds []int
	for _, s := range cfg.Services[len(p.addrs):] {
		addr := net.JoinHostPort(s.Listen.Addr.String(), fmt.Sprint(s.Listen.Port))
		f := p.listen(s.Listen.Network, addr)
		defer f.Close()
		p.addrs = append(p.addrs, addr)
		files.Entries = append(files.Entries, ipc.FileEntry{Kind: ipc.FileListener, Service: s.ID})
		fd := int(f.Fd())
		if err := unix.SetNonblock(fd, true); err != nil {
			p.t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	for _, path := range logPaths(cfg) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			p.t.Fatal(err)
		}
		defer f.Close()
		files.Entries = append(files.Entries, ipc.FileEntry{Kind: ipc.FileLog, Log: path})
		fds = append(fds, int(f.Fd()))
	}
	if len(fds) > 0 {
		p.send(ipc.MsgFiles, files, fds...)
	}
}

// listen opens the socket of a service.
func (p *proxy) listen(network config.Network, addr string) *os.File {
	p.t.Helper()
	var socket interface {
		io.Closer
		File() (*os.File, error)
	}
	var err error
	if network == config.UDP {
		var conn net.PacketConn
		conn, err = net.ListenPacket("udp", addr)
		socket, _ = conn.(*net.UDPConn)
	} else {
		var l net.Listener
		l, err = net.Listen("tcp", addr)
		socket, _ = l.(*net.TCPListener)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	defer socket.Close()
	f, err := socket.File()
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// logPaths lists the log files of a configuration, each once.
func logPaths(cfg *config.Config) []string {
	var paths []string
	for _, s := range cfg.Services {
		if s.Log.Kind == config.LogFile && !slices.Contains(paths, s.Log.Path) {
			paths = append(paths, s.Log.Path)
		}
	}
	return paths
}

// drain has the worker stop accepting and end within a time in milliseconds.
func (p *proxy) drain(timeoutMS int64) {
	p.t.Helper()
	p.drained = true
	if err := p.conn.Send(ipc.MsgDrain, 9, ipc.Drain{TimeoutMS: timeoutMS}); err != nil {
		p.t.Error(err)
	}
	if m, err := p.receive(); err != nil || m.Type != ipc.MsgDraining {
		p.t.Errorf("answer to a drain: %v %v", m, err)
	}
}

// stop drains the worker and checks that nothing is left behind.
func (p *proxy) stop() {
	if !p.drained {
		p.drain(0)
	}
	select {
	case code := <-p.done:
		if code != 0 {
			p.t.Errorf("worker ended with code %d", code)
		}
	case <-time.After(answerLimit):
		p.t.Fatalf("worker does not stop\n%s", stacks())
	}
	for col := range p.cfg.Services {
		if n := p.shm.Cell(p.row, col).Get(ipc.Open); n != 0 {
			p.t.Errorf("service %d still counts %d open sessions", col, n)
		}
	}
	p.conn.Close()
	p.shm.Close()
}

func (p *proxy) counter(col int, k ipc.Counter) uint64 { return p.shm.Cell(0, col).Get(k) }

// waitOpen waits until the service has n open sessions.
func (p *proxy) waitOpen(col int, n uint64) {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for p.shm.OpenSum(col, 1) != n {
		if time.Now().After(deadline) {
			p.t.Fatalf("%d sessions are open, want %d", p.shm.OpenSum(col, 1), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var leakChecked sync.Map

// checkLeaks has the end of the test wait until descriptors and goroutines are
// back at the level of now. The first call in a test counts.
func checkLeaks(t testing.TB) {
	if _, again := leakChecked.LoadOrStore(t, true); again {
		return
	}
	files, routines := len(openFiles()), runtime.NumGoroutine()
	// A test that hangs ends the run under its own name.
	hung := time.AfterFunc(testLimit, func() {
		panic(fmt.Sprintf("%s has not ended within %v\n%s", t.Name(), testLimit, stacks()))
	})
	t.Cleanup(func() {
		leakChecked.Delete(t)
		hung.Stop()
		deadline := time.Now().Add(10 * time.Second)
		for len(openFiles()) > files || runtime.NumGoroutine() > routines {
			if time.Now().After(deadline) {
				t.Errorf("%d descriptors before, now %q; %d goroutines before, %d after\n%s", files, openFiles(),
					routines, runtime.NumGoroutine(), stacks())
				return
			}
			// The worker's end of the socket pair is closed by the collector.
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// openFiles lists what the descriptors of the process are, but for the shared
// counters, which a worker keeps to the end of its process.
func openFiles() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var files []string
	for _, e := range entries {
		// The descriptor of the directory itself is gone already.
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(link, "memfd:3proxyd-counters") {
			files = append(files, link)
		}
	}
	return files
}

func (p *proxy) dial(i int) *net.TCPConn {
	p.t.Helper()
	c, err := net.DialTimeout("tcp", p.addrs[i], 10*time.Second)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.TCPConn)
}

// serve runs f for each connection to a listener and returns its address.
func serve(t testing.TB, f func(c *net.TCPConn)) (host, port string) {
	t.Helper()
	host = "127.0.0.1"
	return host, serveAt(t, "0", []string{host}, func(_ string, c *net.TCPConn) { f(c) })
}

// serveAt runs f for each connection to a port of each of the addresses. With "0"
// it is a free port of the first one, which it returns.
func serveAt(t testing.TB, port string, addrs []string, f func(addr string, c *net.TCPConn)) string {
	t.Helper()
	checkLeaks(t)
	for _, addr := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		_, port, _ = net.SplitHostPort(l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.SetDeadline(time.Now().Add(connLimit))
				go func() {
					defer c.Close()
					f(addr, c.(*net.TCPConn))
				}()
			}
		}()
	}
	return port
}

// answerTo sends bytes and a FIN to an address, and returns what comes back until
// the end of the connection, which must come.
func answerTo(t *testing.T, addr string, in []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := conn.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() {
		_, _ = c.Write(in)
		_ = c.CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q: %v", in, err)
	}
	return answer
}

// echo sends everything back and finishes when the client does.
func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

func readN(t testing.TB, r io.Reader, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatalf("read %d bytes: %v (%q)", n, err, b)
	}
	return string(b)
}

func write(t testing.TB, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// engine is the engine of the workers that the tests start.
var engine = flag.String("engine", "auto", "auto, epoll or io_uring")

func TestMain(m *testing.M) {
	// Its port is there before descriptors are counted.
	_, _ = freeport.Take()
	flag.Parse()
	moveTimeout = time.Second
	// Each loop holds a processor of the scheduler while it waits.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	// The first use of signals starts a goroutine that stays.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR2)
	signal.Stop(signals)
	os.Exit(m.Run())
}
