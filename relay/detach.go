package relay

import (
	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// Detached is a connection that has been taken out of its loop and can be
// attached to another one, also in another process: the descriptor may travel
// (SCM_RIGHTS of unix(7)), the rest is plain data. It is a copy; nothing in it
// belongs to a loop.
type Detached struct {
	// FD is the socket. It belongs to the holder.
	FD int32
	// Output is what the socket has not taken.
	Output []byte
	// Input has been read and not been handed on: an engine with a read under
	// way may get bytes that nobody asks for any more.
	Input []byte
	// Broken says that the peer has reset the connection.
	Broken bool
	// Shutdown says that a FIN is due after Output.
	Shutdown bool
	// DistrustShortReads and ReadSize are what the methods of that name set.
	DistrustShortReads bool
	ReadSize           int
	// Unwritten and Nagle say how far the setting of TCP_NODELAY has come
	// (Target.NoDelay).
	Unwritten, Nagle bool
	// Flushed is as of Conn.Flushed, in the time of the loop.
	Flushed int64
}

// Detachable reports whether the connection can be detached: it is established
// and has not failed.
func (c *Conn) Detachable() bool {
	return c.opened && c.flags&(flagConnecting|flagFailed) == 0 && c.uring.late == 0
}

// Detach takes the connection out of the loop: it is closed as far as c and
// its handler are concerned, but its socket stays open and is neither shut
// down nor reset. done is called once no operation on the descriptor is under
// way any more, from the loop, perhaps before Detach returns. The connection
// must be Detachable and have no flow.
func (c *Conn) Detach(done func(*Detached)) {
	c.writePutOff()
	l := c.loop
	d := &Detached{
		FD:                 c.fd,
		Output:             c.pend.bytes(),
		Shutdown:           c.flags&flagShutdown != 0,
		DistrustShortReads: c.flags&flagDistrust != 0,
		ReadSize:           int(c.readSize),
		Unwritten:          c.flags&flagUnsent != 0,
		Nagle:              c.flags&flagNagle != 0,
		Flushed:            c.flushed,
	}
	if l.ring != nil {
		l.ring.detach(c, d, done)
		return
	}
	// The socket lives on in another descriptor, so that closing this one
	// would leave it in the epoll set (epoll(7)).
	sys.EpollCtl(l.epfd, unix.EPOLL_CTL_DEL, c.fd, 0, 0)
	l.table.release(c.slot)
	c.forget()
	done(d)
}

// Attach is the reverse of Detach. Output goes on before anything that is
// written later. On failure d.FD remains the caller's.
func (l *Loop) Attach(c *Conn, d *Detached, h Handler) unix.Errno {
	flags := flagWritable
	if d.DistrustShortReads {
		flags |= flagDistrust
	}
	if d.Unwritten {
		flags |= flagUnsent
	}
	if d.Nagle {
		flags |= flagNagle
	}
	if errno := l.adopt(c, d.FD, h, flags); errno != 0 {
		return errno
	}
	c.SetReadSize(d.ReadSize)
	c.flushed = d.Flushed
	c.hold(d.Output)
	if d.Shutdown {
		c.Shutdown()
	}
	if d.Broken {
		c.fail(unix.ECONNRESET)
	}
	if c.pend.length > 0 {
		c.enqueue()
	}
	return 0
}

// FlowState is what a Flow of unlimited length knows beside its connections.
type FlowState struct {
	// Last is as of Flow.Last.
	Last int64
	// Splicing and Streak are where the switch between copying and splicing
	// stands.
	Splicing bool
	Streak   uint8
}

// Halt stops the flow like Stop, but what lies in its pipe becomes pending
// output of the destination. The state is for Resume.
func (f *Flow) Halt() FlowState {
	s := FlowState{Last: f.last, Splicing: f.splicing, Streak: f.streak}
	f.Salvage()
	f.Stop()
	return s
}

// Resume gives a flow that has just been started the state of a halted one.
func (f *Flow) Resume(s FlowState) {
	f.last = s.Last
	f.splicing = s.Splicing && f.policy.Splice || f.policy.Always
	f.streak = s.Streak
}
