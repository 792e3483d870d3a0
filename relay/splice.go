package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// spliceOnce moves one pipe's worth. It then leaves the rest to the next turn,
// so that the socket fills meanwhile and each call moves more.
func (f *Flow) spliceOnce() {
	src := f.src
	l := src.loop
	if f.pipe == nil {
		if f.pipe = l.pipes.get(l.nowMS); f.pipe == nil {
			l.stats.PipeMisses++
			f.splicing = false
			src.enqueue()
			return
		}
	}
	want := int64(f.pipe.size)
	if f.left >= 0 {
		want = min(want, f.left)
	}
	n, errno := sys.Splice(src.fd, f.pipe.w, int(want), 0)
	if errno != 0 || n == 0 {
		f.spliceStopped(errno)
		return
	}
	src.flags &^= flagPolled
	f.inPipe = int32(n)
	if f.left > 0 {
		f.left -= int64(n)
	}
	f.count(n)
	f.meter.Spliced.Add(uint64(n))
	f.observeSplice(n)
	if !f.emptyPipe() {
		return
	}
	if f.left == 0 {
		f.finish(nil)
		return
	}
	src.enqueue()
}

// spliceStopped handles a splice that brought nothing. The pipe was empty, so
// EAGAIN speaks of the socket.
func (f *Flow) spliceStopped(errno unix.Errno) {
	src := f.src
	f.freePipe()
	switch errno {
	case 0:
		f.end()
	case unix.EINVAL, unix.ENOSYS:
		// This socket cannot be spliced (a Unix socket of an older kernel).
		f.splicing = false
		f.policy = &copyOnly
		src.enqueue()
	case unix.EAGAIN:
		// A poll of the ring does not tell of urgent data, in front of which
		// splice stops.
		if src.flags&flagPolled != 0 && sys.AtMark(src.fd) {
			src.flags |= flagUrgent
			src.enqueue()
			return
		}
		src.recvFailed(errno)
	default:
		src.recvFailed(errno)
	}
}

var copyOnly = Policy{}

// emptyPipe writes the pipe's content; true means that it is empty and has
// gone back to the pool.
func (f *Flow) emptyPipe() bool {
	dst := f.dst
	for f.inPipe > 0 {
		if dst.flags&flagWritable == 0 {
			return false
		}
		// Without SPLICE_F_MORE: the source may pause within a known length,
		// and the kernel would hold the last segment back for 200 ms.
		dst.endNagle()
		n, errno := sys.Splice(f.pipe.r, dst.fd, int(f.inPipe), 0)
		if errno == 0 && n == 0 {
			errno = unix.EPIPE
		}
		if errno != 0 {
			dst.sendFailed(errno)
			return false
		}
		f.inPipe -= int32(n)
		dst.flushed = dst.loop.nowMS
	}
	f.freePipe()
	return true
}

// Salvage moves what lies in the pipe to the destination's pending output, so
// that the flow can be stopped without loss.
func (f *Flow) Salvage() {
	if f.inPipe == 0 {
		return
	}
	l := f.src.loop
	for f.inPipe > 0 {
		n, errno := sys.Read(f.pipe.r, l.buf)
		if errno != 0 || n == 0 {
			return
		}
		f.inPipe -= int32(n)
		f.dst.hold(l.buf[:n])
	}
	f.freePipe()
}

// freePipe gives the empty pipe back to the pool.
func (f *Flow) freePipe() {
	f.src.loop.pipes.put(f.pipe)
	f.pipe = nil
}

// observeSplice watches the sizes of splices for the switch back to copying.
func (f *Flow) observeSplice(n int) {
	if f.policy.Always || f.left >= 0 {
		return
	}
	if n >= int(f.policy.Small) {
		f.streak = 0
		return
	}
	if f.streak < f.policy.Streak {
		f.streak++
		return
	}
	f.splicing = false
	f.streak = 0
}
