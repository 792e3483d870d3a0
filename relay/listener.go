package relay

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// acceptRetryMS is how long accepting pauses for want of descriptors or
// memory, in milliseconds.
const acceptRetryMS = 100

// AcceptHandler takes the connections of a Listener.
type AcceptHandler interface {
	// Admit reserves room for one connection. Before it answers false it must
	// have paused the listener (Pause or PauseFor).
	Admit(l *Listener) bool
	// OnAccept takes a connection that was admitted; fd is the handler's.
	OnAccept(l *Listener, fd int32, peer netip.AddrPort)
	// OnNoAccept gives back what Admit reserved: there was no connection.
	OnNoAccept(l *Listener)
	// OnExhausted says that accepting has paused for want of descriptors or
	// memory; it resumes by itself.
	OnExhausted(l *Listener, errno unix.Errno)
}

// Listener is a listening socket, level-triggered. The descriptor is borrowed
// unless ListenTCP has opened it: Pause takes it out of the epoll set before its
// owner may close it, because the same socket is open in other processes as
// well.
type Listener struct {
	loop   *Loop
	h      AcceptHandler
	retry  Timer
	fd     int32
	slot   uint32
	gen    uint32
	shared bool
	active bool
	owned  bool
}

// FD returns the descriptor.
func (s *Listener) FD() int32 { return s.fd }

// Active reports whether the listener is accepting.
func (s *Listener) Active() bool { return s.active }

// Listen starts to accept from fd, a listening non-blocking socket. shared
// says that other processes accept from the same socket; then a connection
// wakes only one of them (EPOLLEXCLUSIVE).
func (l *Loop) Listen(s *Listener, fd int32, shared bool, h AcceptHandler) unix.Errno {
	l.StopTimer(&s.retry)
	*s = Listener{loop: l, h: h, fd: fd, shared: shared}
	return s.Resume()
}

// Resume accepts again after Pause.
func (s *Listener) Resume() unix.Errno {
	if s.active {
		return 0
	}
	s.loop.StopTimer(&s.retry)
	s.slot, s.gen = s.loop.table.takeListener(s)
	if s.loop.ring != nil {
		s.loop.ring.pollListener(s)
	} else if errno := sys.EpollCtl(s.loop.epfd, unix.EPOLL_CTL_ADD, s.fd, s.events(), eventData(s.slot, s.gen)); errno != 0 {
		s.loop.table.release(s.slot)
		return errno
	}
	s.active = true
	return 0
}

func (s *Listener) events() uint32 {
	if s.shared {
		return unix.EPOLLIN | unix.EPOLLEXCLUSIVE
	}
	return unix.EPOLLIN
}

// Pause stops accepting; connections wait in the queue.
func (s *Listener) Pause() {
	s.loop.StopTimer(&s.retry)
	if !s.active {
		return
	}
	if s.loop.ring != nil {
		s.loop.ring.cancelListener(s)
	} else {
		sys.EpollCtl(s.loop.epfd, unix.EPOLL_CTL_DEL, s.fd, 0, 0)
	}
	s.loop.table.release(s.slot)
	s.active = false
}

// PauseFor stops accepting for ms milliseconds.
func (s *Listener) PauseFor(ms int64) {
	s.Pause()
	s.loop.SetTimer(&s.retry, ms, s)
}

// OnTimer ends a pause.
func (s *Listener) OnTimer(*Timer) {
	if errno := s.Resume(); errno != 0 {
		s.PauseFor(acceptRetryMS)
	}
}

// accept takes one connection. The listener is level-triggered, so that one
// that waits behind it is taken in the next turn: a turn is needed anyway, and
// no call is spent to find the queue empty.
func (s *Listener) accept() {
	if s.h.Admit(s) {
		s.acceptAdmitted()
	}
}

func (s *Listener) acceptAdmitted() bool {
	sa := &s.loop.sa
	fd, errno := sys.Accept(s.fd, sa)
	if errno == 0 {
		s.h.OnAccept(s, fd, sa.AddrPort())
		return true
	}
	s.h.OnNoAccept(s)
	switch errno {
	case unix.EINVAL:
		// Another holder of the socket has shut it down; epoll reports that
		// again and again.
		s.PauseFor(acceptRetryMS)
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		s.PauseFor(acceptRetryMS)
		s.h.OnExhausted(s, errno)
	}
	return false
}

// Drain accepts what waits in the queue, up to limit connections, and stops
// when the queue is empty or Admit refuses. It is for a listener that is about
// to be given up.
func (s *Listener) Drain(limit int) {
	for range limit {
		if !s.h.Admit(s) || !s.acceptAdmitted() {
			return
		}
	}
}
