package relay

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

const (
	// ringEntries is the number of submissions that one call can take; more in
	// a turn cost a call more. ringCompletions is what a turn can bring without
	// the kernel having to allocate.
	ringEntries     = 256
	ringCompletions = 4096
	// ringBuffers buffers of ringBufferSize bytes are shared by all receives: a
	// buffer is in use from the arrival of its bytes to the end of the handler's
	// call, or until a flow's write of them is done. They are few, so that they
	// stay in the caches of the CPU; a connection that fills one is read into the
	// loop's own buffer, which is the warmest.
	ringBuffers    = 32
	ringBufferSize = 16 << 10
	// A connection that has filled a buffer gets them again after smallStreak
	// reads in a row under smallRead bytes.
	smallStreak = 3
	smallRead   = 4 << 10
)

// ringOp is the kind of a request, part of the name of its completion.
type ringOp uint8

const (
	opIgnored ringOp = iota
	opRecv
	opPoll
	opWatch
	opRoom
	opConnect
	opSend
	opAccept
	opWake
	opPacket
	opPacketRoom
	opFirstSend
)

// A completion is named by slot and generation of the loop's table and the kind
// of the request; that of opSend by an index instead of the slot, that of
// opFirstSend by an index and the slot.
const (
	nameSlotBits = 28
	nameSlotMask = 1<<nameSlotBits - 1
)

func ringName(op ringOp, slot, gen uint32) uint64 {
	return uint64(slot) | uint64(op)<<nameSlotBits | uint64(gen)<<32
}

// ring is the io_uring engine of a Loop. What the connections want is collected
// during a turn and submitted with the wait for the next.
type ring struct {
	*sys.Uring
	l       *Loop
	enabled bool

	buffers *sys.Buffers

	// touched are connections whose wishes may have changed in this turn.
	touched []*Conn
	// sent are the writes that were submitted with the turn's last call, lent the
	// buffers that they may be from.
	sent []sentWrite
	lent []uint16
	// unwatched are connections from which nothing is being received, to be
	// watched for a hang-up after a while.
	unwatched  []connRef
	watchTimer Timer

	cqes []sys.CQE
	// received is what the completion being handled has brought for receiver.
	received []byte
	followed bool
	receiver *Conn
	// inHand is the part of it that has been taken last, lend says that a write
	// that was put off refers to it.
	inHand []byte
	lend   bool
}

type connRef struct {
	c   *Conn
	gen uint32
}

func (l *Loop) openRing() error {
	u, err := sys.NewUring(ringEntries, ringCompletions)
	if err != nil {
		return err
	}
	r := &ring{Uring: u, l: l, cqes: make([]sys.CQE, 0, 256)}
	if r.buffers, err = u.ProvideBuffers(0, ringBuffers, ringBufferSize); err != nil {
		u.Close()
		return err
	}
	l.ring = r
	r.pollWaker()
	return nil
}

// pollWaker has each Post reported.
func (r *ring) pollWaker() {
	r.room(1)
	r.PollMulti(r.l.wakefd, unix.EPOLLIN, ringName(opWake, 0, 0))
}

// room submits what has been prepared if the queue cannot take n more.
func (r *ring) room(n int) {
	if r.Room() < n {
		r.submit()
	}
}

// submit hands everything that has been prepared to the kernel. It refuses for
// want of memory only.
func (r *ring) submit() {
	for r.Enter(0, false); r.Unsubmitted() > 0; r.Enter(0, false) {
		runtime.Gosched()
	}
}

// enable binds the ring to the thread of the loop.
func (r *ring) enable() {
	if errno := r.Enable(); errno != 0 {
		// Nothing that the probe of openRing could have missed: only another
		// thread than the loop's can be refused here.
		panic(fmt.Sprintf("io_uring cannot be enabled: %v", errno))
	}
	r.enabled = true
}

// prepare prepares what the turn has left to do.
func (r *ring) prepare() {
	if !r.enabled {
		r.enable()
	}
	r.prepareTouched()
	r.prepareSends()
	r.buffers.Commit()
}

// poll submits what the turn has left to do, waits, and handles what has come.
func (r *ring) poll(timeout int, block bool) int {
	r.prepare()
	pinned := !block && r.l.pin(timeout)
	errno := r.Enter(timeout, block)
	if pinned {
		sys.Unpin()
	}
	switch errno {
	case 0, unix.ETIME, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOMEM:
	default:
		// Another thread than the loop's has called, or the ring is closed.
		panic(fmt.Sprintf("io_uring_enter: %v", errno))
	}
	if r.Unsubmitted() > 0 {
		r.submit()
	}
	r.cqes = r.Reap(r.cqes[:0])
	if len(r.cqes) == 0 && timeout != 0 && !block {
		// Perhaps a signal has ended the wait; see pollEpoll.
		runtime.Gosched()
	}
	r.l.tick()
	r.finishSends()
	for i := range r.cqes {
		r.complete(&r.cqes[i])
	}
	return len(r.cqes)
}

// complete handles one completion. One that belongs to a closed connection
// finds another generation; its buffer goes back all the same.
func (r *ring) complete(e *sys.CQE) {
	op := ringOp(e.UserData >> nameSlotBits & 15)
	slot, gen := uint32(e.UserData)&nameSlotMask, uint32(e.UserData>>32)
	switch op {
	case opIgnored, opSend:
		return
	case opFirstSend:
		r.firstSent(gen)
		return
	case opWake:
		if e.Flags&sys.CQEMore == 0 {
			r.pollWaker()
		}
		r.l.runPosted()
		return
	}
	s := r.l.table.at(slot)
	more := e.Flags&sys.CQEMore != 0
	buf, provided := e.Buffer()
	var p []byte
	if provided && e.Res > 0 {
		p = r.buffers.Get(buf)[:e.Res]
	}
	switch {
	case s.gen != gen:
	case s.kind == sourceDetaching:
		r.l.table.detaching[slot].completed(r.l, slot, op, e.Res, p, more)
	case s.kind == sourcePacket:
		r.l.table.packet(slot).polled(op, e.Res)
	case op == opAccept:
		lis := r.l.table.listeners[slot]
		lis.accept()
		// accept may have paused the listener, or a handler started another.
		if s.gen == gen {
			r.pollListener(lis)
		}
	case p != nil:
		r.receive(s.conn, p, e.Flags&sys.CQENonEmpty != 0)
	default:
		s.conn.completed(op, e.Res, more)
	}
	switch {
	case r.lend:
		r.lend = false
		r.lent = append(r.lent, buf)
	case provided:
		r.buffers.Recycle(buf)
	}
}

func (r *ring) pollListener(s *Listener) {
	r.room(1)
	r.Poll(s.fd, s.events(), ringName(opAccept, s.slot, s.gen))
}

func (r *ring) cancelListener(s *Listener) {
	r.cancel(opAccept, s.slot, s.gen)
}

func (r *ring) cancel(op ringOp, slot, gen uint32) {
	r.room(1)
	r.Cancel(ringName(op, slot, gen), uint64(opIgnored))
}

func (r *ring) close() {
	r.l.writePutOff()
	if !r.enabled && r.Unsubmitted() > 0 {
		r.enable()
	}
	if r.enabled {
		r.submit()
	}
	r.Close()
}
