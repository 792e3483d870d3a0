package sys

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EpollAdd registers fd, epoll_ctl(2). data comes back with each event.
func EpollAdd(epfd, fd int, events uint32, data uint64) unix.Errno {
	ev := unix.EpollEvent{Events: events, Fd: int32(uint32(data)), Pad: int32(uint32(data >> 32))}
	_, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// EventData returns the data that EpollAdd registered.
func EventData(ev *unix.EpollEvent) uint64 {
	return uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
}

// Wait returns the events of epfd, waiting at most timeout; a negative timeout
// has no limit, epoll_pwait2(2). An interrupted wait is an empty one: it lets
// the Go runtime stop this thread. Kernels before 5.11 wait whole milliseconds.
func Wait(epfd int, evs []unix.EpollEvent, timeout time.Duration) (int, error) {
	n, e := wait2(epfd, evs, timeout)
	if e == unix.ENOSYS {
		n, e = waitMillis(epfd, evs, timeout)
	}
	if e == unix.EINTR {
		runtime.Gosched()
		return 0, nil
	}
	if e != 0 {
		return 0, e
	}
	return n, nil
}

func wait2(epfd int, evs []unix.EpollEvent, timeout time.Duration) (int, unix.Errno) {
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	r, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(evs))), uintptr(len(evs)), uintptr(unsafe.Pointer(ts)), 0, 0)
	return int(r), e
}

func waitMillis(epfd int, evs []unix.EpollEvent, timeout time.Duration) (int, unix.Errno) {
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	r, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd), uintptr(unsafe.Pointer(unsafe.SliceData(evs))), uintptr(len(evs)), uintptr(ms), 0, 0)
	return int(r), e
}

// Recv reads from a socket, recv(2). n is 0 at the end of the stream.
func Recv(fd int, p []byte) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Read reads from a descriptor that is not a socket, read(2).
func Read(fd int, p []byte) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Write writes to a descriptor that is not a socket and takes all or nothing,
// write(2).
func Write(fd int, p []byte) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return e
}

// Discard drops up to n received bytes of a TCP socket without copying them,
// MSG_TRUNC of tcp(7). It returns 0 at the end of the stream.
func Discard(fd int, n int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), unix.MSG_TRUNC, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Send writes to a socket, send(2) with MSG_NOSIGNAL and flags.
func Send(fd int, p []byte, flags int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags|unix.MSG_NOSIGNAL), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Sendfile sends up to n bytes of the file in from offset off, sendfile(2).
func Sendfile(out, in int, off int64, n int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_SENDFILE, uintptr(out), uintptr(in), uintptr(unsafe.Pointer(&off)), uintptr(n), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Accept takes a connection from a listening socket's queue, accept4(2).
func Accept(fd int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(r), 0
}

// Socket opens a non-blocking IPv4 stream socket, socket(2).
func Socket() (int, unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int(r), 0
}

// Addr is an IPv4 socket address in the kernel's form.
type Addr struct{ raw unix.RawSockaddrInet4 }

// NewAddr returns ap, which must be IPv4, in the kernel's form.
func NewAddr(ap netip.AddrPort) *Addr {
	a := &Addr{raw: unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ap.Addr().As4()}}
	var port [2]byte
	binary.BigEndian.PutUint16(port[:], ap.Port())
	a.raw.Port = binary.NativeEndian.Uint16(port[:])
	return a
}

// Connect starts a connection, connect(2). EINPROGRESS means under way.
func Connect(fd int, a *Addr) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), unix.SizeofSockaddrInet4)
	return e
}

// SocketError takes the pending error of a socket, SO_ERROR of socket(7).
func SocketError(fd int) unix.Errno {
	var v int32
	size := uint32(4)
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return e
	}
	return unix.Errno(v)
}

// Close closes a descriptor, close(2).
func Close(fd int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}
