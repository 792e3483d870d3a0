package worker

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/ipc"
)

// maxConfigSize bounds the configuration a worker takes, in bytes.
const maxConfigSize = 256 << 20

// generation is one configuration, compiled. It is prepared beside the one in
// force and put in its place by a commit.
type generation struct {
	id        uint64
	slots     []ipc.ServiceSlot
	pipes     *ipc.PipeShare
	cfg       *config.Config
	services  map[string]*service
	logs      map[string]*logFile
	names     *names
	listeners []receivedFD
	logFDs    []receivedFD
}

// receivedFD is a descriptor that came with a generation and what it is for.
type receivedFD struct {
	ipc.FileEntry
	fd int
}

// beginGeneration reads the configuration. The descriptor of the message is
// closed.
func beginGeneration(m *ipc.Message) (*generation, error) {
	defer m.CloseFDs()
	var body ipc.Prepare
	if err := m.Decode(&body); err != nil {
		return nil, err
	}
	if len(m.FDs) != 1 {
		return nil, fmt.Errorf("prepare: %d descriptors instead of 1", len(m.FDs))
	}
	data, err := ipc.ReadMemfd(m.FDs[0], maxConfigSize)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	cfg := new(config.Config)
	if err := json.Unmarshal(data, cfg); err != nil {
		return nil, fmt.Errorf("prepare: configuration: %w", err)
	}
	if len(body.Services) != len(cfg.Services) {
		return nil, fmt.Errorf("prepare: places for %d services, %d configured", len(body.Services), len(cfg.Services))
	}
	return &generation{id: body.Gen, cfg: cfg, slots: body.Services, pipes: body.Pipes}, nil
}

// addFiles takes the descriptors of a message.
func (g *generation) addFiles(m *ipc.Message) error {
	var body ipc.Files
	if err := m.Decode(&body); err != nil {
		return err
	}
	if len(body.Entries) != len(m.FDs) {
		return fmt.Errorf("files: %d entries for %d descriptors", len(body.Entries), len(m.FDs))
	}
	for i, e := range body.Entries {
		r := receivedFD{e, m.FDs[i]}
		if e.Kind == ipc.FileLog {
			g.logFDs = append(g.logFDs, r)
		} else {
			g.listeners = append(g.listeners, r)
		}
	}
	m.FDs = nil
	return nil
}

// compile makes the services. It runs on the goroutine of the messages; the
// loop goes on meanwhile.
func (g *generation) compile(w *Worker) error {
	lists := make([]*acl.List, len(g.cfg.ACLs))
	for i, rules := range g.cfg.ACLs {
		lists[i] = acl.Compile(rules)
	}
	users := acl.NewUsers(g.cfg.Users)
	g.services = make(map[string]*service, len(g.cfg.Services))
	g.logs = make(map[string]*logFile)
	dnsTimeout := 0
	for i := range g.cfg.Services {
		sc := &g.cfg.Services[i]
		v, err := newService(w, g, g.cfg, sc, g.slots[i], lists, users)
		if err != nil {
			return fmt.Errorf("%s: %w", sc.ID, err)
		}
		g.services[sc.ID] = v
		dnsTimeout = max(dnsTimeout, sc.Timeouts.DNS)
	}
	w.local.start()
	var err error
	g.names, err = newNames(w, g.cfg.Resolver, dnsTimeout)
	return err
}

// abort closes what came with a generation that is not put in force.
func (g *generation) abort() {
	for _, r := range g.listeners {
		unix.Close(r.fd)
	}
	for _, r := range g.logFDs {
		unix.Close(r.fd)
	}
}

// commit puts the generation in force, on the loop.
func (w *Worker) commit(g *generation, force bool) {
	w.commitLogs(g)
	before := w.services
	w.services = g.services
	known := w.names
	if !w.names.same(g.names) {
		w.names = g.names
	}
	w.names.nameTargets(g.services, known)
	w.gen = g.id
	if force {
		w.forcedGen = g.id
	}
	w.drainMS = int64(g.cfg.DrainTimeout) * 1000
	// Connections opened under other settings serve nobody any more.
	w.pool.evict(poolMax)
	w.readLimit()
	if g.pipes != nil {
		w.loop.SetPipes(g.pipes.Max, g.pipes.Size)
	}
	w.followKinds()
	for _, r := range g.listeners {
		w.addListener(r)
	}
	g.listeners = nil
	w.matchListeners()
	w.own = w.findOwnAddrs()
	w.recheckSessions(before, force)
}

// readLimit takes over a limit of descriptors that the supervisor has raised
// for the new configuration.
func (w *Worker) readLimit() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur < 1<<30 {
		w.maxFDs = max(w.maxFDs, int(limit.Cur))
	}
}

// commitLogs merges the logs of the generation into those that are open: a
// service finds the writer its predecessor used, or a new one.
func (w *Worker) commitLogs(g *generation) {
	for _, f := range w.logs {
		f.inForce = false
	}
	for key, f := range g.logs {
		if old := w.logs[key]; old != nil {
			old.inForce = true
			for _, v := range g.services {
				if v.log == f {
					v.log = old
				}
			}
			continue
		}
		f.inForce = true
		w.logs[key] = f
		if key == stdoutLog {
			f.replaceWriter(dupStdout())
		}
	}
	for _, r := range g.logFDs {
		if f := w.logs[r.Log]; f != nil && r.Log != stdoutLog {
			f.replaceWriter(os.NewFile(uintptr(r.fd), r.Log))
		} else {
			unix.Close(r.fd)
		}
	}
	g.logFDs = nil
	w.dropUnusedLogs()
}

// dropUnusedLogs closes logs that no service of the generation uses; sessions
// of earlier generations no longer log then.
func (w *Worker) dropUnusedLogs() {
	for key, f := range w.logs {
		if !f.inForce && f.out != nil {
			w.loop.StopTimer(&f.timer)
			go closeWriter(f.out)
			f.out = nil
			delete(w.logs, key)
		}
	}
}

// dupStdout gives the log a descriptor of its own, so that closing the log
// leaves standard output open.
func dupStdout() *os.File {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewFile(1, "standard output")
	}
	return os.NewFile(uintptr(fd), "standard output")
}
