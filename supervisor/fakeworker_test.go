package supervisor

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// fakeCrashEnv names a file: while it exists, the workers whose name it
// contains exit at once.
const fakeCrashEnv = "FAKE_WORKER_CRASH"

func TestMain(m *testing.M) {
	if os.Getenv(RoleEnv) == RoleWorker {
		os.Exit(fakeWorker())
	}
	os.Exit(m.Run())
}

// The log formats that make a fake worker misbehave when it prepares.
const (
	fakeRefuses = "refuse"
	fakeHangs   = "hang"
	fakeDies    = "die"
	// fakeStalls does not answer the commit.
	fakeStalls = "stall"
)

// fake is a worker that greets every connection with "slot pid generation
// log", and then waits for the client to close it.
type fake struct {
	conn    *ipc.Conn
	welcome ipc.Welcome
	shm     *ipc.Shm

	mu        sync.Mutex
	sessions  sync.WaitGroup
	listeners map[string]*fakeListener
	prepared  *fakeGeneration
	current   *fakeGeneration
	draining  bool
}

type fakeGeneration struct {
	gen   uint64
	cfg   *config.Config
	slots []ipc.ServiceSlot
	new   map[string]*fakeListener
	logs  int
}

type fakeListener struct {
	service string
	slot    int
	l       net.Listener
}

func fakeWorker() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	if path := os.Getenv(fakeCrashEnv); path != "" {
		if names, err := os.ReadFile(path); err == nil && strings.Contains(string(names), os.Args[0]) {
			return 7
		}
	}
	conn, err := ipc.NewConn(ipc.WorkerFD)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f := &fake{conn: conn, listeners: map[string]*fakeListener{}}
	if err := conn.Send(ipc.MsgHello, 0, ipc.Hello{Version: ipc.Version, PID: os.Getpid()}); err != nil {
		return 1
	}
	for {
		m, err := conn.Recv()
		if err == io.EOF {
			return 0
		}
		if err == nil {
			err = f.handle(m)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake worker:", err)
			return 1
		}
	}
}

func (f *fake) handle(m *ipc.Message) error {
	defer m.CloseFDs()
	switch m.Type {
	case ipc.MsgWelcome:
		return f.onWelcome(m)
	case ipc.MsgPrepare:
		return f.onPrepare(m)
	case ipc.MsgFiles, ipc.MsgAdopt:
		return f.onFiles(m)
	case ipc.MsgPrepareEnd:
		return f.onPrepareEnd(m)
	case ipc.MsgCommit:
		return f.onCommit(m)
	case ipc.MsgAbort:
		f.forget()
	case ipc.MsgDisown:
		return f.onDisown(m)
	case ipc.MsgDrain:
		return f.onDrain(m)
	case ipc.MsgConns:
		pipe := os.NewFile(uintptr(m.FDs[0]), "pipe")
		m.FDs = nil
		fmt.Fprintf(pipe, `{"id":1,"worker":%d}`+"\n{\"id\":2,", f.welcome.Slot)
		return pipe.Close()
	default:
		return f.conn.Send(ipc.MsgUnrecognized, m.ID, ipc.Unrecognized{Type: m.Type})
	}
	return nil
}

func (f *fake) onWelcome(m *ipc.Message) (err error) {
	if err := m.Decode(&f.welcome); err != nil {
		return err
	}
	f.shm, err = ipc.MapShm(m.FDs[0])
	return err
}

func (f *fake) onPrepare(m *ipc.Message) error {
	var p ipc.Prepare
	if err := m.Decode(&p); err != nil {
		return err
	}
	data, err := ipc.ReadMemfd(m.FDs[0], 16<<20)
	if err != nil {
		return err
	}
	g := &fakeGeneration{gen: p.Gen, slots: p.Services, new: map[string]*fakeListener{}}
	f.prepared = g
	return json.Unmarshal(data, &g.cfg)
}

func (f *fake) onFiles(m *ipc.Message) error {
	var files ipc.Files
	if err := m.Decode(&files); err != nil {
		return err
	}
	for i, e := range files.Entries {
		if e.Kind == ipc.FileLog {
			f.prepared.logs++
			continue
		}
		file := os.NewFile(uintptr(m.FDs[i]), e.Service)
		l, err := net.FileListener(file)
		if err != nil {
			return err
		}
		_ = file.Close()
		m.FDs[i] = -1
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		fl := &fakeListener{e.Service, e.Slot, l}
		if m.Type == ipc.MsgAdopt {
			f.listeners[fmt.Sprint(e.Service, "#", e.Slot)] = fl
			go f.accept(fl)
		} else {
			f.prepared.new[e.Service] = fl
		}
	}
	return nil
}

func (f *fake) onPrepareEnd(m *ipc.Message) error {
	reply := ipc.Prepared{Gen: f.prepared.gen}
	switch f.prepared.cfg.Services[0].LogFormat {
	case fakeRefuses:
		if f.welcome.Slot == 1 {
			reply.Error = "refused by the test"
		}
	case fakeHangs:
		if f.welcome.Slot == 1 {
			return nil
		}
	case fakeDies:
		if f.welcome.Slot == 1 {
			os.Exit(9)
		}
	}
	return f.conn.Send(ipc.MsgPrepared, m.ID, reply)
}

func (f *fake) onCommit(m *ipc.Message) error {
	g := f.prepared
	stall := g.cfg.Services[0].LogFormat == fakeStalls && f.current != nil && f.welcome.Slot == 1
	for id, l := range f.listeners {
		if !hasService(g.cfg, l.service) {
			_ = l.l.Close()
			delete(f.listeners, id)
		}
	}
	f.mu.Lock()
	f.current, f.prepared = g, nil
	f.mu.Unlock()
	for id, l := range g.new {
		f.listeners[id] = l
		go f.accept(l)
	}
	for _, s := range g.cfg.Services {
		if f.listeners[s.ID] == nil {
			return fmt.Errorf("no listener for %s", s.ID)
		}
	}
	if stall {
		return nil
	}
	return f.conn.Send(ipc.MsgCommitted, m.ID, ipc.Generation{Gen: g.gen})
}

func hasService(cfg *config.Config, id string) bool {
	for _, s := range cfg.Services {
		if s.ID == id {
			return true
		}
	}
	return false
}

func (f *fake) forget() {
	if f.prepared == nil {
		return
	}
	for _, l := range f.prepared.new {
		_ = l.l.Close()
	}
	f.prepared = nil
}

func (f *fake) onDisown(m *ipc.Message) error {
	var d ipc.Disown
	if err := m.Decode(&d); err != nil {
		return err
	}
	for id, l := range f.listeners {
		if l.slot == d.Slot && l.slot != f.welcome.Slot {
			_ = l.l.Close()
			delete(f.listeners, id)
		}
	}
	return f.conn.Send(ipc.MsgDisowned, m.ID, d)
}

func (f *fake) onDrain(m *ipc.Message) error {
	var d ipc.Drain
	if err := m.Decode(&d); err != nil {
		return err
	}
	for _, l := range f.listeners {
		_ = l.l.Close()
	}
	time.AfterFunc(time.Duration(d.TimeoutMS)*time.Millisecond, func() { os.Exit(0) })
	if !f.draining {
		f.draining = true
		go func() {
			f.sessions.Wait()
			os.Exit(0)
		}()
	}
	return f.conn.Send(ipc.MsgDraining, m.ID, nil)
}

func (f *fake) accept(l *fakeListener) {
	for {
		c, err := l.l.Accept()
		if err != nil {
			return
		}
		f.sessions.Go(func() { f.session(c, l) })
	}
}

func (f *fake) session(c net.Conn, l *fakeListener) {
	defer c.Close()
	f.mu.Lock()
	g := f.current
	f.mu.Unlock()
	col := 0
	for i, s := range g.cfg.Services {
		if s.ID == l.service {
			col = g.slots[i].Column
		}
	}
	f.shm.Acquire(f.welcome.Row, col, f.shm.Rows(), 1<<40)
	defer f.shm.Release(f.welcome.Row, col)
	f.shm.Cell(f.welcome.Row, col).Add(ipc.Accepted, 1)
	fmt.Fprintln(c, f.welcome.Slot, os.Getpid(), g.gen, g.logs)
	_, _ = io.Copy(io.Discard, c)
}
