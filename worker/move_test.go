package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
)

// startSibling runs a second worker with the configuration and the shared
// memory of p, but without listeners.
func (p *proxy) startSibling() *proxy {
	p.t.Helper()
	return p.startSiblingWith(p.cfg)
}

func (p *proxy) startSiblingWith(cfg *config.Config) *proxy {
	p.t.Helper()
	near, far, err := ipc.Pair()
	if err != nil {
		p.t.Fatal(err)
	}
	shm, err := ipc.MapShm(p.shm.FD())
	if err != nil {
		p.t.Fatal(err)
	}
	q := &proxy{t: p.t, conn: near, shm: shm, done: make(chan int, 1), cfg: cfg, addrs: p.addrs, row: shm.Rows()}
	shm.SetRows(q.row + 1)
	fd, err := unix.Dup(int(far.Fd()))
	if err != nil {
		p.t.Fatal(err)
	}
	far.Close()
	go func() { q.done <- Run(fd) }()
	q.expect(ipc.MsgHello)
	q.send(ipc.MsgWelcome, ipc.Welcome{Version: ipc.Version, Slot: q.row, Row: q.row, MaxFDs: 10000, MaxPipes: 16, PipeSize: 256 << 10}, p.shm.FD())
	q.load(cfg)
	p.t.Cleanup(q.stop)
	return q
}

// move moves sessions from p to q and waits until they have moved.
func (p *proxy) move(q *proxy, order ipc.MoveOut) ipc.Moved {
	p.t.Helper()
	p.orderMove(q, order)
	var moved ipc.Moved
	if err := p.expect(ipc.MsgMoved).Decode(&moved); err != nil {
		p.t.Fatal(err)
	}
	return moved
}

func (p *proxy) orderMove(q *proxy, order ipc.MoveOut) {
	p.t.Helper()
	out, in, err := ipc.MovePair()
	if err != nil {
		p.t.Fatal(err)
	}
	q.send(ipc.MsgMoveIn, nil, int(in.Fd()))
	p.send(ipc.MsgMoveOut, order, int(out.Fd()))
	out.Close()
	in.Close()
}

func (p *proxy) open(row int) uint64 { return p.shm.Cell(row, 0).Get(ipc.Open) }

func (p *proxy) waitRows(counts ...uint64) {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for row, n := range counts {
		for p.open(row) != n {
			if time.Now().After(deadline) {
				p.t.Fatalf("%d sessions in row %d, want %d", p.open(row), row, n)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

const moveConfig = "log %s\nlogformat \"G%%E %%U %%C %%n %%O %%I %%T\"\ninternal 127.0.0.1\nmaxconn 3\ntcppm PORT %s %s\nflush\nauth none\nsocks -pPORT\nproxy -pPORT\n"

func startMoveBed(t *testing.T) (p, q *proxy, logPath string) {
	t.Helper()
	host, port := serve(t, echo)
	logPath = filepath.Join(t.TempDir(), "log")
	p = startProxy(t, fmt.Sprintf(moveConfig, logPath, host, port))
	return p, p.startSibling(), logPath
}

// exchange sends a text through an echoing tunnel and reads it back.
func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	write(t, c, text)
	if got := readN(t, c, len(text)); got != text {
		t.Fatalf("read %q", got)
	}
}

func logLines(t *testing.T, path string, n int) []string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if len(data) > 0 && len(lines) >= n || time.Now().After(deadline) {
			return lines
		}
	}
}

// TestMoveTunnels moves idle tunnels to another worker and back, and looks at
// what is counted and logged.
func TestMoveTunnels(t *testing.T) {
	p, q, logPath := startMoveBed(t)
	a, b := p.dial(0), p.dial(0)
	exchange(t, a, "one")
	exchange(t, b, "two")
	p.waitRows(2, 0)
	if m := p.move(q, ipc.MoveOut{}); m.Sessions != 2 || m.Kept != 0 || m.Error != "" {
		t.Fatalf("moved %+v", m)
	}
	p.waitRows(0, 2)
	exchange(t, a, "three")
	if m := q.move(p, ipc.MoveOut{Sessions: 1}); m.Sessions != 1 || m.Error != "" {
		t.Fatalf("moved %+v", m)
	}
	p.waitRows(1, 1)
	exchange(t, a, "four")
	exchange(t, b, "five")
	c := p.dial(0)
	exchange(t, c, "six")
	d := p.dial(0)
	p.waitRows(2, 1)
	a.Close()
	b.Close()
	c.Close()
	exchange(t, d, "seven")
	d.Close()
	p.waitRows(0, 0)
	lines := logLines(t, logPath, 4)
	if len(lines) != 4 || !strings.Contains(lines[0]+lines[1]+lines[2]+lines[3], " 12 12 CONNECT ") {
		t.Errorf("log: %q", lines)
	}
	var in, out, accepted uint64
	for row := range 2 {
		cell := p.shm.Cell(row, 0)
		in, out = in+cell.Get(ipc.BytesIn), out+cell.Get(ipc.BytesOut)
		accepted += cell.Get(ipc.Accepted)
	}
	if in != 27 || out != 27 || accepted != 4 {
		t.Errorf("%d bytes in, %d out, %d accepted", in, out, accepted)
	}
}

// TestMoveHalfClosed moves a tunnel whose client has finished, with an answer
// that waits for it.
func TestMoveHalfClosed(t *testing.T) {
	size := 8 << 20
	host, port := serve(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write(streamBytes(0, size))
		_ = c.CloseWrite()
	})
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT %s %s\n", host, port))
	q := p.startSibling()
	c := p.dial(0)
	write(t, c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var off int64
	buf := make([]byte, 100_000)
	for i := 0; ; i++ {
		n, err := c.Read(buf)
		checkStreamBytes(t, buf[:n], off)
		off += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%8 == 0 {
			p.move(q, ipc.MoveOut{})
			p, q = q, p
		}
	}
	if off != int64(size) {
		t.Errorf("%d bytes of %d", off, size)
	}
}

// streamBytes are n bytes of a stream from offset off on, each of which tells
// where it belongs.
func streamBytes(off int64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		x := uint64(off+int64(i)) * 0x9e3779b97f4a7c15
		b[i] = byte(x >> 56)
	}
	return b
}

func checkStreamBytes(t *testing.T, b []byte, off int64) {
	t.Helper()
	if want := streamBytes(off, len(b)); string(want) != string(b) {
		for i := range b {
			if b[i] != want[i] {
				t.Fatalf("the stream differs from byte %d on", off+int64(i))
			}
		}
	}
}

// TestMoveFollows moves a session that was in its handshake when the move
// began.
func TestMoveFollows(t *testing.T) {
	host, port := serve(t, echo)
	p, q, _ := startMoveBed(t)
	c := p.dial(1)
	write(t, c, "\x05\x01\x00")
	if got := readN(t, c, 2); got != "\x05\x00" {
		t.Fatalf("method %q", got)
	}
	m := p.move(q, ipc.MoveOut{Follow: true})
	if m.Sessions != 0 || m.Error != "" {
		t.Fatalf("moved %+v", m)
	}
	addr := net.ParseIP(host).To4()
	var n int
	fmt.Sscan(port, &n)
	write(t, c, "\x05\x01\x00\x01"+string(addr)+string([]byte{byte(n >> 8), byte(n)}))
	if got := readN(t, c, 10); got[1] != 0 {
		t.Fatalf("reply %q", got)
	}
	exchange(t, c, "hello")
	deadline := time.Now().Add(20 * time.Second)
	for p.shm.Cell(1, 1).Get(ipc.Open) != 1 || p.shm.Cell(0, 1).Get(ipc.Open) != 0 {
		if time.Now().After(deadline) {
			t.Fatal("the session was not followed up")
		}
		time.Sleep(time.Millisecond)
	}
	exchange(t, c, "again")
	// A later move ends the following.
	if m := p.move(q, ipc.MoveOut{}); m.Error != "" {
		t.Fatalf("moved %+v", m)
	}
}

// TestDrainMovesAway drains a worker whose sessions follow to another.
func TestDrainMovesAway(t *testing.T) {
	p, q, _ := startMoveBed(t)
	c := p.dial(0)
	exchange(t, c, "hello")
	p.drain(60_000)
	if m := p.move(q, ipc.MoveOut{Follow: true}); m.Sessions != 1 {
		t.Fatalf("moved %+v", m)
	}
	select {
	case <-p.done:
		p.done <- 0
	case <-time.After(20 * time.Second):
		t.Fatal("the drained worker does not end")
	}
	exchange(t, c, "again")
	p.waitRows(0, 1)
}

// target plays the other worker.
type target struct {
	t    *testing.T
	conn *ipc.Conn
}

func (p *proxy) moveTo(t *testing.T, order ipc.MoveOut) *target {
	t.Helper()
	out, in, err := ipc.MovePair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(in.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	conn, err := ipc.NewMoveConn(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.send(ipc.MsgMoveOut, order, int(out.Fd()))
	out.Close()
	return &target{t, conn}
}

func (x *target) recv(want ipc.Type) *ipc.Message {
	x.t.Helper()
	m, err := receive(x.conn)
	if err != nil || m.Type != want {
		x.t.Fatalf("message %+v, %v; want type %d", m, err, want)
	}
	x.t.Cleanup(m.CloseFDs)
	return m
}

func (x *target) send(t ipc.Type, id uint32, body any) {
	x.t.Helper()
	if err := x.conn.Send(t, id, body); err != nil {
		x.t.Fatal(err)
	}
}

// TestMoveFails has the target refuse, be silent, break off and talk nonsense
// at each step: the session goes on where it was.
func TestMoveFails(t *testing.T) {
	welcome := ipc.MoveWelcome{Version: ipc.MoveVersion}
	for name, step := range map[string]func(x *target){
		"gone at once":    func(x *target) {},
		"silent greeting": func(x *target) { x.recv(ipc.MsgMoveHello) },
		"refusal": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, ipc.MoveWelcome{Error: "not today"})
		},
		"other version": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, ipc.MoveWelcome{Version: ipc.MoveVersion + 1})
		},
		"gone with the session": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, welcome)
			x.recv(ipc.MsgMoveService)
			x.recv(ipc.MsgMoveSession)
		},
		"silent with the session": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, welcome)
			x.recv(ipc.MsgMoveService)
			x.recv(ipc.MsgMoveSession)
		},
		"session refused": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, welcome)
			x.recv(ipc.MsgMoveService)
			m := x.recv(ipc.MsgMoveSession)
			x.send(ipc.MsgMoveAnswer, m.ID, ipc.MoveAnswer{Error: "full", Full: true})
		},
		"answer about another": func(x *target) {
			x.recv(ipc.MsgMoveHello)
			x.send(ipc.MsgMoveWelcome, 0, welcome)
			x.recv(ipc.MsgMoveService)
			m := x.recv(ipc.MsgMoveSession)
			x.send(ipc.MsgMoveAnswer, m.ID+1, ipc.MoveAnswer{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, port := serve(t, echo)
			p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT %s %s\n", host, port))
			c := p.dial(0)
			exchange(t, c, "hello")
			x := p.moveTo(t, ipc.MoveOut{})
			step(x)
			if !strings.HasPrefix(name, "silent") {
				x.conn.Close()
			}
			var moved ipc.Moved
			if err := p.expect(ipc.MsgMoved).Decode(&moved); err != nil || moved.Sessions != 0 || moved.Error == "" {
				t.Errorf("moved %+v, %v", moved, err)
			}
			exchange(t, c, "again")
			p.waitRows(1)
		})
	}
}

// TestMoveInBreaksOff has a source end in the middle, or send nonsense: what
// was not committed is not kept, and the target serves on.
func TestMoveInBreaksOff(t *testing.T) {
	p, q, _ := startMoveBed(t)
	hello := ipc.MoveHello{MinVersion: 1, Version: 1, Row: 0}
	svc := ipc.MoveService{Ref: 1, Config: mustJSON(t, p.cfg.Services[0])}
	session := ipc.MoveSession{Service: 1, Up: ipc.MoveFlow{Active: true}, ClientConn: ipc.MoveConn{Output: 3}}
	fds := func() []int {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return pair[:]
	}
	type step struct {
		t    ipc.Type
		id   uint32
		body any
		fds  bool
	}
	for name, steps := range map[string][]step{
		"nothing":           {},
		"no greeting":       {{ipc.MsgMoveEnd, 0, nil, false}},
		"too new":           {{ipc.MsgMoveHello, 0, ipc.MoveHello{MinVersion: 7, Version: 9}, false}},
		"own row":           {{ipc.MsgMoveHello, 0, ipc.MoveHello{MinVersion: 1, Version: 1, Row: 1}, false}},
		"row out of range":  {{ipc.MsgMoveHello, 0, ipc.MoveHello{MinVersion: 1, Version: 1, Row: 1 << 20}, false}},
		"not a service":     {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, ipc.MoveService{Config: []byte("[]")}, false}},
		"column":            {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, ipc.MoveService{Column: -1, Config: svc.Config}, false}},
		"unknown service":   {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveSession, 7, session, true}},
		"no descriptors":    {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, false}},
		"no output":         {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, true}},
		"commit too early":  {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, true}, {ipc.MsgMoveCommit, 7, nil, false}},
		"too much output":   {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, true}, {ipc.MsgMoveToClient, 7, ipc.Raw("abcd"), false}},
		"not committed":     {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, true}, {ipc.MsgMoveToClient, 7, ipc.Raw("abc"), false}},
		"aborted":           {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveService, 0, svc, false}, {ipc.MsgMoveSession, 7, session, true}, {ipc.MsgMoveToClient, 7, ipc.Raw("abc"), false}, {ipc.MsgMoveAbort, 7, nil, false}, {ipc.MsgMoveEnd, 0, nil, false}},
		"committed unknown": {{ipc.MsgMoveHello, 0, hello, false}, {ipc.MsgMoveCommit, 9, nil, false}},
		"unknown type":      {{ipc.MsgMoveHello, 0, hello, false}, {ipc.Type(4000), 9, nil, false}},
	} {
		t.Run(name, func(t *testing.T) {
			out, in, err := ipc.MovePair()
			if err != nil {
				t.Fatal(err)
			}
			q.send(ipc.MsgMoveIn, nil, int(in.Fd()))
			in.Close()
			fd, _ := unix.Dup(int(out.Fd()))
			out.Close()
			conn, err := ipc.NewMoveConn(fd)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				var files []int
				if s.fds {
					files = fds()
				}
				// The target may have closed its end by then.
				_ = conn.Send(s.t, s.id, s.body, files...)
				for _, fd := range files {
					unix.Close(fd)
				}
			}
			if name == "aborted" {
				for _, want := range []ipc.Type{ipc.MsgMoveWelcome, ipc.MsgMoveAnswer, ipc.MsgMoveEnd} {
					if m, err := receive(conn); err != nil || m.Type != want {
						t.Fatalf("%+v, %v", m, err)
					}
				}
			}
			conn.Close()
		})
	}
	c := p.dial(0)
	exchange(t, c, "hello")
	if m := p.move(q, ipc.MoveOut{}); m.Sessions != 1 {
		t.Fatalf("moved %+v", m)
	}
	exchange(t, c, "again")
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMoveKeepsSettings moves a session to a worker with another configuration:
// it keeps its service, and is logged where it would have been.
func TestMoveKeepsSettings(t *testing.T) {
	host, port := serve(t, echo)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	text := fmt.Sprintf("log %s\nlogformat \"G%%E %%O %%I\"\ninternal 127.0.0.1\ntcppm PORT %s %s\n", first, host, port)
	p := startProxy(t, text)
	other := strings.Replace(text, first, second, 1)
	other = strings.Replace(other, "PORT", fmt.Sprint(p.cfg.Services[0].Listen.Port), 1)
	cfg, diags := config.LoadBytes("test.cfg", []byte(other))
	if cfg == nil {
		t.Fatalf("configuration: %v", diags)
	}
	q := p.startSiblingWith(cfg)
	c := p.dial(0)
	exchange(t, c, "hello")
	if m := p.move(q, ipc.MoveOut{}); m.Sessions != 1 {
		t.Fatalf("moved %+v", m)
	}
	exchange(t, c, "again")
	c.Close()
	p.waitRows(0, 0)
	if lines := logLines(t, first, 1); len(lines) != 1 || lines[0] != "00000 10 10" {
		t.Errorf("first log: %q", lines)
	}
	if data, err := os.ReadFile(second); err != nil || len(data) > 0 {
		t.Errorf("second log: %q, %v", data, err)
	}
}

// TestMoveUnixTarget moves a tunnel whose server is a Unix socket.
func TestMoveUnixTarget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	p := startProxy(t, fmt.Sprintf("internal 127.0.0.1\ntcppm PORT unix:%s 0\n", path))
	q := p.startSibling()
	c := p.dial(0)
	exchange(t, c, "hello")
	for range 3 {
		if m := p.move(q, ipc.MoveOut{}); m.Sessions != 1 {
			t.Fatalf("moved %+v", m)
		}
		p, q = q, p
		exchange(t, c, "again")
	}
}
