package worker

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/accesslog"
	"3proxyd/acl"
	"3proxyd/ipc"
	"3proxyd/proto/http1"
	"3proxyd/proto/tlshello"
	"3proxyd/relay"
)

// Worker is the state of the process. All of it belongs to the loop, but for
// prepared, which belongs to the goroutine that reads messages.
type Worker struct {
	// conn is replaced when a successor of the supervisor takes over.
	conn     atomic.Pointer[ipc.Conn]
	shm      *ipc.Shm
	loop     *relay.Loop
	loopCell *ipc.LoopCell
	slot     int
	row      int
	maxFDs   int

	gen uint64
	// forcedGen is the last generation whose rules were applied to all sessions.
	forcedGen uint64
	services  map[string]*service
	own       ownAddrs
	local     localAddrs
	names     *names
	logs      map[string]*logFile
	listeners []*listener
	sessions  sessionList
	// dnsClients are the clients of dnspr services over TCP by session,
	// dnsRunning is the number of their questions, and of those over UDP, that
	// name servers are asked.
	dnsClients map[uint64]*dnsState
	dnsRunning int
	// amplified bounds what their clients over UDP are sent.
	amplified amplification
	pool      originPool
	clock     wallClock
	beat      relay.Timer
	// published are the loop's counters as the shared memory has them; the row
	// may have had those of another process before.
	published relay.Stats
	deadline  relay.Timer
	draining  bool
	// ended says that a drain has ended the sessions.
	ended bool
	moves moves
	// accepting is zero but during an upgrade.
	accepting ipc.Accept
	// drainMS is the drain_timeout in force, in milliseconds.
	drainMS int64

	// family and stored are those of ipc.Welcome; orphanTimer bounds the time
	// without a supervisor, heldTimer that of an orphan that does not accept.
	family      string
	stored      bool
	masterUID   int
	thread      int
	orphanTimer relay.Timer
	heldTimer   relay.Timer
	adopted     atomic.Bool
	// signals are SIGTERM and SIGINT, alone says that they are obeyed.
	signals chan os.Signal
	alone   atomic.Bool

	nextFDWarning, nextMaxConnWarning, nextResourceWarning, nextNameWarning int64

	prepared *generation

	freeSessions     *session
	freeUpstreams    *upstream
	freeDials        *dialState
	freeFronts       *frontState
	freeSocks        *socksState
	freePeerWaits    *peerWait
	freeAssociations *association
	freeDestinations *destination
	// heldDatagrams is how many bytes of datagrams wait for names.
	heldDatagrams int
	freeHTTP      *httpState
	freeUDPMaps   *udpMap

	// udpMaps are the sessions of udppm services but for those with -s.
	udpMaps map[udpMapKey]*udpMap

	// Scratch memory, valid until the next callback.
	scratch      []byte
	headScratch  []byte
	basicScratch [http1.MaxCredentials]byte
	hello        tlshello.Hello
	request      http1.Request
	response     http1.Response
	creds        acl.Creds
	record       accesslog.Record
}

// handshakeTimeout bounds the wait for the supervisor's first message.
const handshakeTimeout = 30 * time.Second

// scratchSize holds any reply, page or log text that is built at once.
const scratchSize = 80 << 10

// Run serves until the supervisor has the worker drain or goes away, and
// returns the exit code of the process. fd is the worker's end of the socket
// pair, see ipc.WorkerFD.
func Run(fd int) int {
	slog.SetDefault(slog.New(newOperatorLog(os.Stderr, os.Getpid())))
	runtime.LockOSThread()
	w, err := newWorker(fd)
	if err != nil {
		slog.Error("worker cannot start", "error", err)
		return 1
	}
	go w.receive()
	w.loop.Run()
	w.local.stop()
	w.closeLogs()
	return 0
}

func newWorker(fd int) (*Worker, error) {
	// The supervisor decides what a signal means; one sent to the whole
	// process group or cgroup must not end a drain. SIGABRT has the runtime
	// print the goroutines. SIGTERM and SIGINT count once there is no supervisor.
	signal.Ignore(syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	// The loop allocates next to nothing; what there is to collect comes from
	// lookups, reloads and lists of sessions.
	debug.SetGCPercent(100)
	conn, err := ipc.NewConn(fd)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		logs:    make(map[string]*logFile),
		moves:   newMoves(),
		udpMaps: make(map[udpMapKey]*udpMap),
		scratch: make([]byte, 0, scratchSize),

		dnsClients: make(map[uint64]*dnsState),

		thread:  unix.Gettid(),
		signals: signals,
	}
	w.conn.Store(conn)
	if err := w.greet(); err != nil {
		conn.Close()
		return nil, err
	}
	return w, nil
}

// greet exchanges the first messages and sets up what they describe.
func (w *Worker) greet() error {
	if err := w.conn.Load().Send(ipc.MsgHello, 0, ipc.Hello{Version: ipc.Version, PID: os.Getpid(), Thread: w.thread}); err != nil {
		return err
	}
	if err := w.conn.Load().SetRecvDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	m, err := w.conn.Load().Recv()
	if err != nil {
		return fmt.Errorf("first message: %w", err)
	}
	defer m.CloseFDs()
	var hi ipc.Welcome
	if err := m.Decode(&hi); err != nil {
		return err
	}
	if m.Type != ipc.MsgWelcome || hi.Version != ipc.Version || len(m.FDs) != 1 {
		return fmt.Errorf("first message: type %d, version %d, %d descriptors", m.Type, hi.Version, len(m.FDs))
	}
	if w.shm, err = ipc.AdoptShm(m.FDs[0]); err != nil {
		return err
	}
	m.FDs = nil
	w.slot, w.row, w.maxFDs, w.accepting = hi.Slot, hi.Row, hi.MaxFDs, hi.Accept
	w.family, w.stored = hi.Family, hi.Stored
	master, err := w.conn.Load().Peer()
	if err != nil {
		return err
	}
	w.masterUID = master.UID
	w.loopCell = w.shm.Loop(w.row)
	engine, err := relay.EngineByName(hi.Engine)
	if err != nil {
		return err
	}
	w.loop, err = relay.NewLoop(relay.Options{Engine: engine, MaxPipes: hi.MaxPipes, PipeSize: hi.PipeSize})
	if err != nil {
		return err
	}
	w.pool.init(w)
	w.publish()
	return w.conn.Load().SetRecvDeadline(time.Time{})
}

// viaName is the pseudonym of a service in Via fields: the same in every
// worker, so that a loop through another one is seen, and different on every
// host and port, so that a chain of proxies is not one.
func viaName(id string) string {
	h := fnv.New32a()
	host, _ := os.Hostname()
	io.WriteString(h, host+"/"+id)
	return "3proxyd-" + strconv.FormatUint(uint64(h.Sum32()), 16)
}

// receive carries out the messages of the supervisor, and of its successors.
func (w *Worker) receive() {
	for {
		w.receiveFrom(w.conn.Load())
		w.abortPrepared()
		if w.moves.isOver() {
			return
		}
		w.loop.Post(w.orphaned)
		successor, err := w.awaitSuccessor()
		if w.moves.isOver() {
			if err == nil {
				_ = successor.Close()
			}
			return
		}
		if err != nil {
			slog.Error("no successor of the supervisor can take over", "error", err)
			return
		}
		w.conn.Store(successor)
	}
}

// receiveFrom returns when the supervisor has gone.
func (w *Worker) receiveFrom(conn *ipc.Conn) {
	defer conn.Close()
	for {
		m, err := conn.Recv()
		if errors.Is(err, ipc.ErrFrame) {
			slog.Error("message from the supervisor", "error", err)
			continue
		}
		if err != nil {
			return
		}
		w.handle(m)
		m.CloseFDs()
	}
}

// handle carries a message out, or hands it to the loop.
func (w *Worker) handle(m *ipc.Message) {
	switch m.Type {
	case ipc.MsgPrepare:
		w.prepare(m)
	case ipc.MsgFiles:
		w.files(m)
	case ipc.MsgPrepareEnd:
		w.prepareEnd(m)
	case ipc.MsgCommit:
		w.commitPrepared(m)
	case ipc.MsgAbort:
		w.abortPrepared()
	case ipc.MsgAdopt:
		w.adopt(m)
	case ipc.MsgDisown:
		w.disown(m)
	case ipc.MsgDrain:
		w.startDrain(m)
	case ipc.MsgAccept:
		w.accept(m)
	case ipc.MsgConns:
		w.conns(m)
	case ipc.MsgMoveOut:
		w.startMoveOut(m)
	case ipc.MsgMoveIn:
		w.startMoveIn(m)
	default:
		w.reply(ipc.MsgUnrecognized, m.ID, ipc.Unrecognized{Type: m.Type})
	}
}

func (w *Worker) reply(t ipc.Type, id uint32, body any) {
	if err := w.conn.Load().Send(t, id, body); err != nil {
		slog.Error("message to the supervisor", "error", err)
	}
}

func (w *Worker) prepare(m *ipc.Message) {
	w.abortPrepared()
	g, err := beginGeneration(m)
	if err != nil {
		slog.Error("configuration from the supervisor", "error", err)
		return
	}
	w.prepared = g
}

func (w *Worker) files(m *ipc.Message) {
	if w.prepared == nil {
		return
	}
	if err := w.prepared.addFiles(m); err != nil {
		slog.Error("descriptors from the supervisor", "error", err)
		w.abortPrepared()
	}
}

func (w *Worker) prepareEnd(m *ipc.Message) {
	var body ipc.Generation
	err := m.Decode(&body)
	switch {
	case err != nil:
	case w.prepared == nil || w.prepared.id != body.Gen:
		err = errors.New("no such generation was prepared")
	default:
		err = w.prepared.compile(w)
	}
	answer := ipc.Prepared{Gen: body.Gen, Engine: w.loop.Engine().String()}
	if err != nil {
		answer.Error = err.Error()
		w.abortPrepared()
	}
	w.reply(ipc.MsgPrepared, m.ID, answer)
}

func (w *Worker) commitPrepared(m *ipc.Message) {
	g, id := w.prepared, m.ID
	var body ipc.Generation
	if err := m.Decode(&body); err != nil || g == nil {
		return
	}
	w.prepared = nil
	w.loop.Post(func() {
		w.commit(g, body.Force)
		w.loop.WaitOpenly()
		go w.committed(id, g.id)
	})
}

// committed answers the order, and gives back the memory that reading and
// compiling the configuration took: sessions allocate so little that it would
// wait long for the next collection. The loop waits openly until then.
func (w *Worker) committed(order uint32, gen uint64) {
	w.reply(ipc.MsgCommitted, order, ipc.Generation{Gen: gen})
	debug.FreeOSMemory()
	w.loop.Post(w.loop.WaitAsBefore)
}

func (w *Worker) abortPrepared() {
	if w.prepared != nil {
		w.prepared.abort()
		w.prepared = nil
	}
}

// adopt serves the listening sockets of another slot as well.
func (w *Worker) adopt(m *ipc.Message) {
	g := &generation{}
	if err := g.addFiles(m); err != nil {
		slog.Error("descriptors from the supervisor", "error", err)
		return
	}
	w.loop.Post(func() {
		for _, r := range g.listeners {
			w.addListener(r)
		}
	})
}

// disown gives the sockets of a slot up; another process serves their queues.
func (w *Worker) disown(m *ipc.Message) {
	var body ipc.Disown
	if err := m.Decode(&body); err != nil {
		slog.Error("message from the supervisor", "error", err)
		return
	}
	id := m.ID
	w.loop.Post(func() {
		w.dropListeners(func(s *listener) bool { return s.slot == body.Slot && s.slot != w.slot }, toOthers)
		go w.reply(ipc.MsgDisowned, id, body)
	})
}

func (w *Worker) conns(m *ipc.Message) {
	if len(m.FDs) != 1 {
		slog.Error("message from the supervisor: a list of sessions needs one descriptor")
		return
	}
	fd := m.FDs[0]
	m.FDs = nil
	w.loop.Post(func() { w.listSessions(fd) })
}

// beatMS is how often a worker shows that its loop turns, in milliseconds.
const beatMS = 5000

// publish writes the loop's counters to the shared memory and closes pipes
// that nobody has needed for a while.
func (w *Worker) publish() {
	st := w.loop.Stats()
	c := w.loopCell
	c.Add(ipc.LoopTurns, st.Turns-w.published.Turns)
	c.Add(ipc.LoopEvents, st.Events-w.published.Events)
	c.Set(ipc.PipesOpen, uint64(st.PipesOpen))
	c.Add(ipc.PipeMisses, st.PipeMisses-w.published.PipeMisses)
	c.Add(ipc.PacketsDropped, st.PacketsDropped-w.published.PacketsDropped)
	w.published = st
	c.Set(ipc.Heartbeat, monotonicMS())
	w.loop.SetTimer(&w.beat, beatMS, beatHandler{w})
}

// monotonicMS is CLOCK_MONOTONIC in milliseconds, which all processes share.
func monotonicMS() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano() / int64(time.Millisecond))
}

// beatHandler calls publish.
type beatHandler struct{ w *Worker }

// OnTimer publishes the counters.
func (b beatHandler) OnTimer(*relay.Timer) {
	b.w.loop.TrimPipes(idlePipes)
	b.w.forgetSignals()
	b.w.publish()
}

// idlePipes is how many pipes are kept ready without use.
const idlePipes = 8

func (w *Worker) closeLogs() {
	for _, f := range w.logs {
		if f.out != nil {
			closeWriter(f.out)
		}
	}
}
