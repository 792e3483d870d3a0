package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/bench/scenario"
	"3proxyd/bench/sys"
)

const (
	readSize     = 64 << 10 // the shared read buffer
	turnBytes    = 4 << 20  // bytes a connection moves before others get a turn
	maxOpening   = 64       // connections being set up at once before Ready
	retryDelay   = int64(20 * time.Millisecond)
	ioTimeout    = int64(10 * time.Second)
	scanInterval = int64(200 * time.Millisecond)
	controlData  = ^uint64(0)
	tickData     = ^uint64(0) - 1
)

// maxTick is the longest gap between due requests that a periodic timer wakes
// the loop for; everything else that is due waits for its next expiry then.
const maxTick = int64(10 * time.Millisecond)

// client is the load generator. Times are nanoseconds since base.
type client struct {
	cfg     Config
	kind    scenario.Kind
	ep      int
	base    time.Time
	addr    *sys.Addr
	pattern *sys.Pattern
	buf     []byte
	line    []byte // an unfinished command
	wire    wire

	conns   []conn
	again   []*conn // connections whose turn ended with work left
	spare   []*conn
	idle    fifo // connections, or free places, waiting for a request
	retry   fifo // failed connections, by retryAt
	next    int  // connections before this one have been opened once
	opening int  // connections being set up

	opened  int // connections that are open
	busy    int // requests under way
	ready   bool
	running bool
	pausing bool
	due     int64 // when the next request is due
	gap     int64 // between two due requests; 0 in a closed loop
	ticking bool  // timer, a timerfd, expires whenever a request is due
	timer   int
	scan    int64 // when connections are next checked for timeouts
	total   int64
	rec     record
}

// Run generates load until it is told to stop.
func Run(cfg Config) error {
	sys.LockLoop()
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	if err := c.loop(); err != nil {
		_ = c.emit(Event{Event: Failed, Error: err.Error()})
		return err
	}
	return nil
}

func newClient(cfg Config) (*client, error) {
	pattern, err := sys.NewPattern()
	if err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	if e := sys.EpollAdd(ep, controlIn, unix.EPOLLIN, controlData); e != 0 {
		return nil, fmt.Errorf("watch the control pipe: %w", e)
	}
	n := cfg.Scenario.Open()
	c := &client{
		cfg: cfg, kind: cfg.Scenario.Kind, ep: ep, base: time.Now(),
		addr: sys.NewAddr(cfg.Proxy), pattern: pattern,
		buf: make([]byte, readSize), wire: newWire(cfg, pattern),
		conns: make([]conn, n), idle: newFifo(n), retry: newFifo(n),
		rec: newRecord(),
	}
	if r := cfg.Scenario.Rate; r > 0 {
		c.gap = int64(time.Second) / int64(r)
	}
	for i := range c.conns {
		c.conns[i] = conn{index: i, fd: -1}
	}
	return c, nil
}

// clock returns the time in nanoseconds since base.
func (c *client) clock() int64 { return int64(time.Since(c.base)) }

func (c *client) loop() error {
	evs := make([]unix.EpollEvent, 512)
	for {
		n, err := sys.Wait(c.ep, evs, c.timeout())
		if err != nil {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for i := range evs[:n] {
			if end, err := c.event(&evs[i]); end || err != nil {
				return err
			}
		}
		c.takeTurns()
		if err := c.housekeeping(); err != nil {
			return err
		}
	}
}

// timeout returns how long the loop may sleep.
func (c *client) timeout() time.Duration {
	if len(c.again) > 0 {
		return 0
	}
	if c.ticking {
		return -1
	}
	now := c.clock()
	at := c.scan
	if c.rec.active {
		at = min(at, c.rec.end)
	}
	if c.running && c.gap > 0 && c.idle.len() > 0 {
		at = min(at, c.due)
	}
	if k := c.retry.peek(); k != nil {
		at = min(at, k.retryAt)
	}
	return time.Duration(max(at-now, 0))
}

func (c *client) event(ev *unix.EpollEvent) (end bool, err error) {
	data := sys.EventData(ev)
	switch data {
	case controlData:
		return c.control()
	case tickData:
		// Reading sets the timer for its next expiry, timerfd_create(2).
		_, _ = sys.Read(c.timer, c.buf[:8])
		return false, nil
	}
	k := &c.conns[uint32(data)]
	if k.gen != uint32(data>>32) || k.fd < 0 {
		return false, nil
	}
	if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		k.hangup = true
	}
	k.drained = false
	c.serve(k)
	return false, nil
}

func (c *client) takeTurns() {
	run := c.again
	c.again = c.spare[:0]
	for _, k := range run {
		k.queued = false
		c.serve(k)
	}
	c.spare = run
}

// housekeeping does what is due by the clock.
func (c *client) housekeeping() error {
	now := c.clock()
	c.dispatchDue(now)
	for k := c.retry.peek(); k != nil && k.retryAt <= now; k = c.retry.peek() {
		c.retry.pop()
		c.reopen(k)
	}
	if !c.ready {
		if err := c.setUp(); err != nil {
			return err
		}
	}
	if now >= c.scan {
		c.scan = now + scanInterval
		c.timeOut(now)
	}
	if c.rec.active && now >= c.rec.end {
		return c.finish(now)
	}
	if c.pausing && c.busy == 0 {
		c.pausing = false
		return c.emit(Event{Event: Paused, Total: c.total})
	}
	return nil
}

// setUp opens the connections a few at a time and reports when all are open.
func (c *client) setUp() error {
	if c.kind == scenario.Close {
		for i := range c.conns {
			c.idle.push(&c.conns[i])
		}
		c.ready = true
		return c.emit(Event{Event: Ready})
	}
	for c.opening < maxOpening && c.next < len(c.conns) {
		k := &c.conns[c.next]
		c.next++
		c.reopen(k)
	}
	if c.opened < len(c.conns) {
		return c.tooManyFailures()
	}
	c.ready = true
	return c.emit(Event{Event: Ready})
}

// tooManyFailures gives up on a proxy that does not let the connections in.
func (c *client) tooManyFailures() error {
	var n int64
	for _, v := range c.rec.errors {
		n += v
	}
	if n > int64(len(c.conns))+10 {
		return fmt.Errorf("%d of %d connections are open after these errors: %v", c.opened, len(c.conns), c.rec.errors)
	}
	return nil
}

func (c *client) finish(now int64) error {
	res, err := c.rec.finish(now)
	if err != nil {
		return err
	}
	res.Open = c.opened
	if c.gap > 0 && c.due < now {
		res.Unserved = (now - c.due) / c.gap
	}
	return c.emit(Event{Event: End, Result: res})
}

// resume starts the load, or starts it again after a pause.
func (c *client) resume() error {
	if c.running {
		return nil
	}
	c.running = true
	c.due = c.clock()
	if c.gap > 0 {
		return c.tick()
	}
	if c.kind == scenario.Idle {
		return nil
	}
	n := c.idle.len()
	if active := c.cfg.Scenario.Active; active > 0 {
		n = min(n, active)
	}
	for ; n > 0; n-- {
		c.start(c.idle.pop(), c.due, c.due)
	}
	return nil
}

// tick starts a periodic timer for the due times. Waiting without a timeout for
// that saves setting and cancelling one in every wait, which costs as much CPU
// as the request itself on some virtual machines.
func (c *client) tick() error {
	if c.ticking || c.gap > maxTick {
		return nil
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timerfd_create: %w", err)
	}
	gap := unix.NsecToTimespec(c.gap)
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: gap, Value: gap}, nil); err != nil {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	if e := sys.EpollAdd(c.ep, fd, unix.EPOLLIN, tickData); e != 0 {
		return fmt.Errorf("watch the timer: %w", e)
	}
	c.timer, c.ticking = fd, true
	return nil
}

// dispatchDue starts the requests that are due, as far as connections are free.
// A request that finds none stays due, so that its wait counts as latency.
func (c *client) dispatchDue(now int64) {
	if !c.running || c.gap == 0 {
		return
	}
	for c.due <= now && c.idle.len() > 0 {
		c.start(c.idle.pop(), c.due, now)
		c.due += c.gap
	}
}

// available gives a connection without a request its next one.
func (c *client) available(k *conn, now int64) {
	switch {
	case c.rests(k):
		k.state = stIdle
	case !c.running || c.gap > 0 || c.kind == scenario.Idle:
		k.state = stIdle
		c.idle.push(k)
	case c.cfg.Scenario.Active > 0:
		// The one that has waited longest goes on, so that all take turns.
		k.state = stIdle
		c.idle.push(k)
		c.start(c.idle.pop(), now, now)
	default:
		c.start(k, now, now)
	}
}

// rests tells whether k is one of the connections that stay without traffic.
func (c *client) rests(k *conn) bool { return k.index >= c.cfg.Scenario.Conns }

// timeOut ends the connections on which nothing has happened for too long.
func (c *client) timeOut(now int64) {
	for i := range c.conns {
		k := &c.conns[i]
		if k.fd >= 0 && k.state != stIdle && now-k.active > ioTimeout {
			c.fail(k, errTimeout)
		}
	}
}
