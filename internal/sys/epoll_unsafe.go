package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EpollCtl adds, changes or removes a descriptor, epoll_ctl(2). data comes
// back with each event.
func EpollCtl(epfd int32, op int, fd int32, events uint32, data uint64) unix.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(uint32(data)), Pad: int32(uint32(data >> 32))}
	_, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// EventData returns the data that EpollCtl registered.
func EventData(ev *unix.EpollEvent) uint64 {
	return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// EpollWaitRaw waits at most timeout milliseconds without telling the Go
// scheduler, epoll_pwait(2). The caller must call runtime.Gosched after EINTR:
// that is how the runtime asks this thread to stop.
func EpollWaitRaw(epfd int32, evs []unix.EpollEvent, timeout int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(evs))), uintptr(len(evs)), uintptr(timeout), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// EpollWait waits at most timeout milliseconds (-1: without limit) as a call
// that the Go scheduler knows to block.
func EpollWait(epfd int32, evs []unix.EpollEvent, timeout int) (int, unix.Errno) {
	r, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(evs))), uintptr(len(evs)), uintptr(timeout), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}
