package relay

import (
	"sync/atomic"
)

// Unlimited is the length of a Flow that runs to the end of the stream.
const Unlimited = -1

// Meter is where the bytes of flows are counted: the sum, and the part of it
// that was spliced. Several flows may share one.
type Meter struct {
	Bytes, Spliced *atomic.Uint64
}

// Policy says when a flow splices. It is shared and not changed while in use.
type Policy struct {
	// Splice allows splicing at all, Always from the first byte.
	Splice, Always bool
	// Min is the size in bytes of a read that counts as bulk; Streak of them
	// in a row switch to splicing, and more than Streak splices in a row under
	// Small bytes switch back.
	Min, Small int32
	Streak     uint8
	Grace      Grace
}

// Flow moves bytes in one direction, from one Conn to another. It is made part
// of what owns it and reused; the zero value is idle.
//
// Invariants: bytes are read only when the destination has nothing waiting and
// the pipe is empty, so that a slow reader holds at most one read; the pipe is
// attached only while it holds bytes.
type Flow struct {
	src, dst *Conn
	policy   *Policy
	meter    *Meter
	pipe     *pipe
	rest     *rest // with a Grace
	left     int64
	moved    uint64
	last     int64
	inPipe   int32
	streak   uint8
	splicing bool
	eof      bool
}

// Active reports whether the flow is running.
func (f *Flow) Active() bool { return f.src != nil }

// Moved returns the number of bytes taken from the source since Start.
func (f *Flow) Moved() uint64 { return f.moved }

// Last returns the loop's time, in milliseconds, of the last movement.
func (f *Flow) Last() int64 { return f.last }

// EOF reports whether the flow ended because its source's stream did.
func (f *Flow) EOF() bool { return f.eof }

// Left returns how many bytes of a known length have not come.
func (f *Flow) Left() int64 { return f.left }

// StartFlow moves bytes from src to dst until length bytes have passed, or
// with Unlimited until the stream ends; then OnFlow of src's handler is
// called. src must not be reading for its handler, and neither may have
// another flow in this direction. length must not be 0.
func (l *Loop) StartFlow(f *Flow, src, dst *Conn, length int64, policy *Policy, meter *Meter) {
	*f = Flow{src: src, dst: dst, policy: policy, meter: meter, left: length, last: l.nowMS}
	f.splicing = policy.Splice && (policy.Always || length >= int64(policy.Min))
	if policy.Grace.DelayMS > 0 {
		f.rest = l.takeRest(f)
	}
	src.in, dst.out = f, f
	src.flags &^= flagReading
	if src.flags&(flagReadable|flagDrained|flagHangup) != 0 {
		src.enqueue()
	}
	l.touch(src)
}

// Stop ends the flow without OnFlow. Bytes in its pipe are lost.
func (f *Flow) Stop() {
	if f.src != nil {
		f.detach()
	}
}

// detach takes the flow off its connections and gives its pipe back.
func (f *Flow) detach() {
	l := f.src.loop
	if f.rest != nil {
		l.freeRest(f.rest)
		f.rest = nil
	}
	f.src.in, f.dst.out = nil, nil
	f.src, f.dst = nil, nil
	if f.pipe != nil {
		l.pipes.drop(f.pipe)
		f.pipe, f.inPipe = nil, 0
	}
}

// finish ends the flow in order: everything has been handed to the
// destination, which may still hold some of it as pending output. rest is what
// the last read brought beyond the flow's length.
func (f *Flow) finish(rest []byte) {
	src := f.src
	gen := src.gen
	f.detach()
	src.h.OnFlow(f)
	if len(rest) > 0 && src.gen == gen {
		src.h.OnData(src, rest)
	}
	if src.gen == gen && src.flags&(flagReadable|flagDrained) != 0 && src.flags&flagReading != 0 {
		src.enqueue()
	}
}

// blocked reports whether the destination has to take something first.
func (f *Flow) blocked() bool { return f.dst.blocked() }

// resume goes on after the destination has become free.
func (f *Flow) resume() {
	if f.left == 0 {
		f.finish(nil)
		return
	}
	if f.src.flags&(flagReadable|flagDrained|flagHangup) != 0 {
		f.src.enqueue()
	}
	f.src.loop.touch(f.src)
}

// pump moves what it can in one turn.
func (f *Flow) pump() {
	src := f.src
	gen := src.gen
	for range readsPerTurn {
		if src.flags&(flagReadable|flagDrained) == 0 || f.resting() || f.blocked() || f.dst.flags&flagFailed != 0 {
			return
		}
		if src.flags&flagDrained != 0 {
			f.end()
			return
		}
		// splice stops in front of urgent data, recv passes it (tcp(7)).
		if f.splicing && src.flags&flagUrgent == 0 && !src.hasReceived() {
			// What has been put off comes before what goes through the pipe.
			if !f.dst.Blocked() && f.dst.flags&flagFailed == 0 {
				f.spliceOnce()
			}
			return
		}
		if !f.copyOnce() || src.gen != gen || src.in != f {
			return
		}
	}
	src.enqueue()
}

// end handles the end of the source's stream.
func (f *Flow) end() {
	f.eof = true
	f.src.flags &^= flagReadable | flagDrained
	f.src.flags |= flagEnded
	f.finish(nil)
}

// copyOnce reads once and writes what came; false means that there is nothing
// more to do now.
func (f *Flow) copyOnce() bool {
	src := f.src
	p, errno := src.recv()
	if errno != 0 {
		src.recvFailed(errno)
		return false
	}
	if len(p) == 0 {
		f.end()
		return false
	}
	take := len(p)
	if f.left >= 0 {
		take = int(min(int64(take), f.left))
		f.left -= int64(take)
	}
	f.count(take)
	if !f.dst.lend(p[:take]) {
		f.dst.Write(p[:take])
	}
	if f.left == 0 {
		f.finish(p[take:])
		return false
	}
	f.observe(len(p))
	if f.rest != nil {
		f.rest.note(len(p))
	}
	return true
}

func (f *Flow) count(n int) {
	f.moved += uint64(n)
	f.last = f.src.loop.nowMS
	f.meter.Bytes.Add(uint64(n))
}

// observe watches the sizes of reads for the switch to splicing.
func (f *Flow) observe(n int) {
	if !f.policy.Splice {
		return
	}
	if n < int(f.policy.Min) {
		f.streak = 0
		return
	}
	f.streak++
	if f.streak >= f.policy.Streak {
		f.splicing = true
		f.streak = 0
	}
}
