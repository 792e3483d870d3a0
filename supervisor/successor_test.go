package supervisor

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// predecessor plays the running daemon of a handoff.
type predecessor struct {
	t        *testing.T
	conn     *ipc.Conn
	manifest ipc.Manifest
	fds      []int
	memory   int
	version  int
}

// newPredecessor has one listening socket, a control socket and a worker.
func newPredecessor(t *testing.T) *predecessor {
	t.Helper()
	p := &predecessor{t: t, version: ipc.HandoffMax}
	p.manifest = ipc.Manifest{Version: "old", PID: os.Getpid(), Slots: []ipc.HandoffSlot{{Busy: []int{0}}}}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addSocket(ipc.HandoffListener, "tcp:"+l.Addr().String(), 0, l.(*net.TCPListener))
	u, err := net.Listen("unix", filepath.Join(t.TempDir(), "c"))
	if err != nil {
		t.Fatal(err)
	}
	p.addSocket(ipc.HandoffControl, controlStoreName, -1, u.(*net.UnixListener))
	for range 2 {
		pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		p.fds = append(p.fds, pidfd)
	}
	p.manifest.Workers = []ipc.HandoffWorker{{PID: os.Getpid()}}
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	p.memory = shm.FD()
	t.Cleanup(func() {
		for _, fd := range p.fds {
			_ = unix.Close(fd)
		}
		_ = shm.Close()
	})
	return p
}

// addSocket adds a duplicate of a socket, which is closed.
func (p *predecessor) addSocket(kind ipc.HandoffKind, key string, slot int, l interface {
	File() (*os.File, error)
	Close() error
}) {
	p.t.Helper()
	file, err := l.File()
	if err != nil {
		p.t.Fatal(err)
	}
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		p.t.Fatal(err)
	}
	_ = file.Close()
	_ = l.Close()
	s, err := describeHandoff(fd)
	if err != nil {
		p.t.Fatal(err)
	}
	s.Kind, s.Key, s.Slot = kind, key, slot
	p.manifest.Sockets = append(p.manifest.Sockets, s)
	p.fds = append(p.fds, fd)
}

// serve sends everything; errors show at the other end.
func (p *predecessor) serve() {
	m, err := p.conn.Recv()
	if err != nil || m.Type != ipc.MsgHandoffHello {
		return
	}
	data, err := json.Marshal(p.manifest)
	if err != nil {
		return
	}
	table, err := ipc.WriteMemfd("manifest", data)
	if err != nil {
		return
	}
	defer table.Close()
	if p.conn.Send(ipc.MsgHandoffManifest, 0, ipc.HandoffManifest{Version: p.version}, int(table.Fd()), p.memory) != nil {
		return
	}
	for i, fd := range p.fds {
		if p.conn.Send(ipc.MsgHandoffFiles, 0, ipc.HandoffFiles{First: i, Count: 1}, fd) != nil {
			return
		}
		if _, err := p.conn.Recv(); err != nil {
			return
		}
	}
}

// handTo makes the handoff and returns what the successor got, and what it
// says of a failure.
func (p *predecessor) handTo(t *testing.T) (*Successor, error) {
	t.Helper()
	near, far, err := ipc.HandoffPair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(far.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	other, err := ipc.NewHandoffConn(fd)
	if err != nil {
		t.Fatal(err)
	}
	p.conn = near
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.serve()
	}()
	s, err := receiveSuccessor(other, "new")
	if err != nil {
		_ = other.Close()
	}
	<-done
	_ = near.Close()
	return s, err
}

func (s *Successor) closeAll() {
	for _, socket := range s.sockets {
		_ = unix.Close(socket.FD)
	}
	for _, fd := range append(s.workers, s.supervisor) {
		_ = unix.Close(fd)
	}
	_ = s.shm.Close()
	_ = s.conn.Close()
}

func TestSuccessorReceives(t *testing.T) {
	p := newPredecessor(t)
	s, err := p.handTo(t)
	if err != nil {
		t.Fatal(err)
	}
	defer s.closeAll()
	made := s.listeners()
	l := made[p.manifest.Sockets[0].Key]
	if len(made) != 1 || l == nil || len(l.fds) != 1 || l.shared || !l.borrowed {
		t.Errorf("listeners: %+v", made)
	}
	if c := s.control(); len(c) != 1 || c[0].Name != controlStoreName || !c[0].Listening {
		t.Errorf("control socket: %+v", c)
	}
	if len(s.workers) != 1 || s.supervisor <= 0 {
		t.Errorf("processes: %v, %d", s.workers, s.supervisor)
	}
}

// TestSuccessorRefuses expects everything that is not as announced to be
// refused with the reason, before anything is changed.
func TestSuccessorRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *predecessor)
		want   string
	}{
		"version":        {func(p *predecessor) { p.version = ipc.HandoffMax + 1 }, "manifest of version"},
		"memory":         {func(p *predecessor) { p.memory = sealedMemfd(p.t, 4096) }, "shared memory has"},
		"no memory":      {func(p *predecessor) { p.memory = p.fds[0] }, "shared memory"},
		"address":        {func(p *predecessor) { p.manifest.Sockets[0].Address = "127.0.0.1:1" }, "not tcp 127.0.0.1:1"},
		"network":        {func(p *predecessor) { p.manifest.Sockets[0].Network = "udp" }, "not udp"},
		"reuse port":     {func(p *predecessor) { p.manifest.Sockets[0].ReusePort = true }, "SO_REUSEPORT"},
		"v6only":         {func(p *predecessor) { p.manifest.Sockets[0].V6Only = true }, "IPV6_V6ONLY"},
		"not listening":  {func(p *predecessor) { p.manifest.Sockets[0].Listening = false }, "listening"},
		"another file":   {func(p *predecessor) { p.fds[0], p.fds[2] = p.fds[2], p.fds[0] }, "socket 0 of the manifest"},
		"no slots":       {func(p *predecessor) { p.manifest.Slots = nil }, "0 slots"},
		"row twice":      {func(p *predecessor) { p.manifest.Slots[0].Idle = []int{0} }, "row 0"},
		"row":            {func(p *predecessor) { p.manifest.Slots[0].Idle = []int{ipc.MaxRows} }, "row 256"},
		"row of worker":  {func(p *predecessor) { p.manifest.Workers[0].Row = -2 }, "has row -2"},
		"slot":           {func(p *predecessor) { p.manifest.Sockets[0].Slot = maxWorkers }, "slot 128"},
		"order of slots": {func(p *predecessor) { p.manifest.Sockets[0].Slot = 1 }, "slot 1 instead of 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPredecessor(t)
			c.change(p)
			s, err := p.handTo(t)
			if err == nil {
				s.closeAll()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected %q", err, c.want)
			}
		})
	}
}

func sealedMemfd(t *testing.T, size int) int {
	t.Helper()
	file, err := ipc.WriteMemfd("other", make([]byte, size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return int(file.Fd())
}

func FuzzDecodeManifest(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("..", "ipc", "testdata", "handoff1", "manifest.json"))
	if err != nil {
		f.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, golden); err != nil {
		f.Fatal(err)
	}
	f.Add(compact.Bytes())
	f.Add([]byte(`{"slots":[{"idle":[0]}],"sockets":[{"slot":-1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			return
		}
		if len(m.Slots) == 0 || len(m.Slots) > maxWorkers {
			t.Fatalf("%d slots were accepted", len(m.Slots))
		}
		shm := new(Successor)
		shm.manifest = m
		if n := shm.manifestFiles(); n < len(m.Sockets)+1 {
			t.Fatalf("%d descriptors", n)
		}
	})
}
