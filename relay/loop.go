package relay

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

const (
	// rawWaitMS is how long one wait for events may keep the scheduler in
	// the dark, in milliseconds. Raw waiting halves the CPU time of a request
	// at partial load; it also keeps the runtime's monitor thread awake, which
	// costs more than it saves where fewer than briskWakes waits in paceMS end
	// with an event: there the loop waits as an ordinary blocking call.
	rawWaitMS  = 50
	paceMS     = 1000
	briskWakes = 35
	// yieldEveryMS is how often the scheduler may stop the loop for others, in
	// milliseconds, and so how long what stops the world waits at most.
	yieldEveryMS = 50
	// DefaultBufferSize is the size in bytes of one read, MaxBufferSize that
	// of the shared buffer and so the most a Conn can ask for.
	DefaultBufferSize = 64 << 10
	MaxBufferSize     = 1 << 20
)

// Options are the settings of a Loop.
type Options struct {
	Engine Engine
	// BufferSize is the size in bytes of one read by a Conn that has not set
	// its own; 0 means DefaultBufferSize, and MaxBufferSize is the most.
	BufferSize int
	// MaxPipes is the number of pipes the loop may have open, PipeSize the
	// size in bytes each is asked to have (F_SETPIPE_SZ of fcntl(2)).
	MaxPipes int
	PipeSize int
}

// Stats are the counters of a Loop; all but PipesOpen count up.
type Stats struct {
	Turns      uint64
	Events     uint64
	PipesOpen  int
	PipeMisses uint64
	// PacketsIn and PacketsOut are the datagrams received and sent,
	// PacketsDropped those that were to be sent and were not: refused by the
	// network, or without room.
	PacketsIn, PacketsOut, PacketsDropped uint64
}

// Loop is an event loop. See the package comment for its rules.
type Loop struct {
	ring   *ring // with EngineURing
	epfd   int32 // with EngineEpoll
	wakefd int32

	nowMS   int64
	base    time.Time
	pace    pace
	openly  int   // calls of WaitOpenly without WaitAsBefore
	yieldMS int64 // when the scheduler last had a chance to stop the loop
	stopped bool

	events []unix.EpollEvent
	table  sourceTable
	run    runList[Conn]
	wheel  wheel

	buf      []byte
	readSize int
	later    laterList
	chunks   chunkPool
	pipes    pipePool
	rests    *rest
	conns    int
	packets  packets

	inbox inbox
	stats Stats
	sa    sys.Sockaddr
}

// NewLoop opens a loop: the descriptor of its engine, and an eventfd.
func NewLoop(o Options) (*Loop, error) {
	if o.BufferSize == 0 {
		o.BufferSize = DefaultBufferSize
	}
	wakefd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &Loop{
		wakefd: int32(wakefd),
		base:   time.Now(),
		// Pages that no read reaches cost nothing.
		buf:      make([]byte, MaxBufferSize),
		readSize: min(o.BufferSize, MaxBufferSize),
		pipes:    pipePool{max: o.MaxPipes, size: o.PipeSize},
	}
	l.table.init()
	l.wheel.init()
	l.later.init()
	if err := l.openEngine(o.Engine); err != nil {
		unix.Close(wakefd)
		return nil, err
	}
	return l, nil
}

// Now returns the time of the present turn in milliseconds since the loop was
// opened.
func (l *Loop) Now() int64 { return l.nowMS }

// Stats returns the counters.
func (l *Loop) Stats() Stats {
	s := l.stats
	s.PipesOpen = l.pipes.open
	return s
}

// Descriptors returns how many descriptors connections and pipes use now.
func (l *Loop) Descriptors() int { return l.conns + 2*l.pipes.open }

// Run runs the loop until Stop, then closes its own descriptors. The caller
// must have locked its goroutine to the thread.
func (l *Loop) Run() {
	for !l.stopped {
		l.turn()
	}
	l.pipes.trim(0)
	l.packets.close()
	l.closeInbox()
	l.closeDescriptors()
}

// turn waits for events and does what they and the run list ask for.
func (l *Loop) turn() {
	l.stats.Events += uint64(l.wait())
	l.stats.Turns++
	if !l.run.empty() {
		l.runQueued()
	}
	if !l.packets.run.empty() {
		l.runPackets()
	}
	l.wheel.advance(l.nowMS)
	l.sendPackets()
	if l.ring == nil {
		l.writePutOff()
	}
}

// tick reads the clock, once a turn: between the wait and the events.
func (l *Loop) tick() { l.nowMS = time.Since(l.base).Milliseconds() }

// Stop makes Run return at the end of this turn.
func (l *Loop) Stop() { l.stopped = true }

// wait waits for events, has them dispatched and returns their number.
func (l *Loop) wait() int {
	timeout := l.waitTime()
	if timeout == 0 {
		return l.poll(0, false)
	}
	raw := l.openly == 0 && l.pace.brisk(l.nowMS)
	if raw && (timeout < 0 || timeout > rawWaitMS) {
		timeout = rawWaitMS
	}
	n := l.poll(timeout, !raw)
	if n > 0 {
		l.pace.wakes++
	}
	return n
}

// pace tells whether events come often.
type pace struct {
	sinceMS int64 // when the present count began
	wakes   int   // waits since then that ended with an event
	was     bool  // whether the count before was high
}

// brisk reports whether at least briskWakes waits ended with an event in the
// last whole paceMS, or have since.
func (p *pace) brisk(nowMS int64) bool {
	if passed := nowMS - p.sinceMS; passed >= paceMS {
		p.was = p.wakes >= briskWakes && passed < 2*paceMS
		p.sinceMS, p.wakes = nowMS, 0
	}
	return p.was || p.wakes >= briskWakes
}

// WaitOpenly has the loop wait by calls that the scheduler knows to block, until
// WaitAsBefore has been called as often. It is for who wants the world to be
// stopped, for a collection: each stop, and with it every other goroutine, would
// last as long as a raw wait. Both are called on the loop's thread.
func (l *Loop) WaitOpenly() { l.openly++ }

// WaitAsBefore ends WaitOpenly.
func (l *Loop) WaitAsBefore() { l.openly-- }

// pin keeps the scheduler from preempting the loop during a raw wait, and
// reports whether it does; once in a while it does not. The scheduler asks a
// goroutine that has run for ten milliseconds to give way, and takes waiting for
// running. A goroutine that is locked to its thread gives way by handing its
// processor to another thread and getting it back, which costs more than most
// requests. What stops the world has to wait for the next chance.
func (l *Loop) pin(timeout int) bool {
	if timeout == 0 {
		return false
	}
	if l.nowMS-l.yieldMS >= yieldEveryMS {
		l.yieldMS = l.nowMS
		return false
	}
	sys.Pin()
	return true
}

// waitTime returns how long the loop may wait, in milliseconds; -1 is without
// limit.
func (l *Loop) waitTime() int {
	if !l.run.empty() || !l.packets.run.empty() {
		return 0
	}
	at := l.wheel.next()
	if at < 0 {
		return -1
	}
	if at <= l.nowMS {
		return 0
	}
	return int(min(at-l.nowMS, 1<<30))
}
