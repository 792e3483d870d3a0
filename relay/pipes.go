package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// pipe is a kernel pipe used for splicing. size is what F_GETPIPE_SZ says.
type pipe struct {
	next *pipe
	r, w int32
	size int
}

// pipePool keeps empty pipes for reuse. The kernel's budget of pipe pages is
// per user over all processes: open never exceeds max, this loop's share.
type pipePool struct {
	free *pipe
	open int
	idle int
	max  int
	size int
	// retryAt is when the kernel may be asked again after it refused a pipe.
	retryAt int64
}

// pipeRetryMS is how long the pool asks for no new pipe after a refusal.
const pipeRetryMS = 5000

// get returns an empty pipe, or nil when the share is used up or the kernel
// refuses one.
func (p *pipePool) get(now int64) *pipe {
	if q := p.free; q != nil {
		p.free = q.next
		p.idle--
		q.next = nil
		return q
	}
	if p.open >= p.max || now < p.retryAt {
		return nil
	}
	r, w, errno := sys.Pipe()
	if errno != 0 {
		p.retryAt = now + pipeRetryMS
		return nil
	}
	q := &pipe{r: r, w: w}
	if p.size > 0 {
		// Over the budget F_SETPIPE_SZ fails and the pipe stays as it is.
		sys.Fcntl(w, unix.F_SETPIPE_SZ, p.size)
	}
	size, errno := sys.Fcntl(w, unix.F_GETPIPE_SZ, 0)
	if errno != 0 || size < minPipeSize {
		sys.Close(r)
		sys.Close(w)
		p.retryAt = now + pipeRetryMS
		return nil
	}
	q.size = size
	p.open++
	return q
}

// minPipeSize is the size in bytes under which splicing gains nothing over
// copying: the kernel gives such pipes to a user over its budget.
const minPipeSize = 64 << 10

// put takes an empty pipe back.
func (p *pipePool) put(q *pipe) {
	if p.open > p.max {
		p.drop(q)
		return
	}
	q.next = p.free
	p.free = q
	p.idle++
}

// drop closes a pipe that still holds bytes.
func (p *pipePool) drop(q *pipe) {
	sys.Close(q.r)
	sys.Close(q.w)
	p.open--
}

// trim closes idle pipes until at most keep are left.
func (p *pipePool) trim(keep int) {
	for p.idle > keep {
		q := p.free
		p.free = q.next
		p.idle--
		p.drop(q)
	}
}

// SetPipes changes how many pipes the loop may have open and the size in bytes of
// those to come. Pipes above the number are closed as they become idle.
func (l *Loop) SetPipes(max, size int) { l.pipes.max, l.pipes.size = max, size }

// TrimPipes closes idle pipes until at most keep are left.
func (l *Loop) TrimPipes(keep int) { l.pipes.trim(keep) }
