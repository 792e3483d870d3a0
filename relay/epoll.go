package relay

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"3proxyd/internal/sys"
)

// eventsPerTurn bounds the events of epoll taken in one turn.
const eventsPerTurn = 256

const connEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET&(1<<32-1)

func (l *Loop) openEpoll() error {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	l.epfd = int32(epfd)
	l.events = make([]unix.EpollEvent, eventsPerTurn)
	slot, gen := l.table.take(sourceWaker, nil)
	if e := sys.EpollCtl(l.epfd, unix.EPOLL_CTL_ADD, l.wakefd, unix.EPOLLIN|unix.EPOLLET, eventData(slot, gen)); e != 0 {
		sys.Close(l.epfd)
		return fmt.Errorf("epoll_ctl eventfd: %w", e)
	}
	return nil
}

// pollEpoll waits and dispatches. A raw wait is unseen by the scheduler: EINTR
// means that the runtime wants this thread to reach a safe point, which Gosched
// is; going straight back into the raw call would hang the next garbage
// collection.
func (l *Loop) pollEpoll(timeout int, block bool) int {
	var n int
	if block {
		n, _ = sys.EpollWait(l.epfd, l.events, timeout)
	} else {
		pinned := l.pin(timeout)
		var errno unix.Errno
		n, errno = sys.EpollWaitRaw(l.epfd, l.events, timeout)
		if pinned {
			sys.Unpin()
		}
		if errno == unix.EINTR {
			runtime.Gosched()
		}
	}
	l.tick()
	for i := range n {
		l.dispatch(&l.events[i])
	}
	return n
}

func (l *Loop) dispatch(ev *unix.EpollEvent) {
	data := sys.EventData(ev)
	slot := uint32(data)
	s := l.table.at(slot)
	if s.gen != uint32(data>>32) {
		return
	}
	switch s.kind {
	case sourceConn:
		s.conn.event(ev.Events)
	case sourceListener:
		l.table.listeners[slot].accept()
	case sourcePacket:
		l.table.packet(slot).event(ev.Events)
	case sourceWaker:
		l.runPosted()
	}
}

func eventData(slot, gen uint32) uint64 { return uint64(slot) | uint64(gen)<<32 }
