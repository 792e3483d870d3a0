package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Recv reads from a socket, recv(2). n is 0 at the end of the stream.
func Recv(fd int32, p []byte) (n int, errno unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Read reads from a pipe, read(2).
func Read(fd int32, p []byte) (n int, errno unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Unsent returns how many bytes in the send buffer of a TCP socket the peer has
// not acknowledged, SIOCOUTQ of tcp(7); of a Unix socket, those it has not read.
func Unsent(fd int32) int {
	var n int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if e != 0 {
		return 0
	}
	return int(n)
}

// AtMark reports whether a TCP socket has been read up to urgent data,
// sockatmark(3).
func AtMark(fd int32) bool {
	var at int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), siocatmark, uintptr(unsafe.Pointer(&at)))
	return e == 0 && at != 0
}

// siocatmark is SIOCATMARK of asm-generic/sockios.h.
const siocatmark = 0x8905

// MayRecv reports whether recv(2) would bring something now: bytes, the end of
// the stream or an error.
func MayRecv(fd int32) bool {
	var b [1]byte
	_, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	return e != unix.EAGAIN
}

// Send writes to a socket, send(2) with MSG_NOSIGNAL and flags.
func Send(fd int32, p []byte, flags int) (n int, errno unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags|unix.MSG_NOSIGNAL), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Send2 writes two buffers in one call, sendmsg(2) with MSG_NOSIGNAL.
func Send2(fd int32, a, b []byte) (n int, errno unix.Errno) {
	iov := [2]unix.Iovec{
		{Base: unsafe.SliceData(a), Len: uint64(len(a))},
		{Base: unsafe.SliceData(b), Len: uint64(len(b))},
	}
	msg := unix.Msghdr{Iov: &iov[0], Iovlen: 2}
	r, _, e := syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL, 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Splice moves up to n bytes between a socket and a pipe, splice(2), with
// SPLICE_F_NONBLOCK, SPLICE_F_MOVE and flags.
func Splice(in, out int32, n int, flags int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(in), 0, uintptr(out), 0, uintptr(n), uintptr(flags|unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE))
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Accept takes a connection from the queue of a listening socket, accept4(2)
// with SOCK_NONBLOCK and SOCK_CLOEXEC. The new descriptor is the caller's.
func Accept(fd int32, sa *Sockaddr) (int32, unix.Errno) {
	sa.len = sockaddrSize
	r, _, e := syscall.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&sa.len)), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int32(r), 0
}

// Socket opens a non-blocking stream socket, socket(2). The descriptor is the
// caller's.
func Socket(family int) (int32, unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int32(r), 0
}

// Connect starts a connection, connect(2). EINPROGRESS means that it is under
// way.
func Connect(fd int32, sa *Sockaddr) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(sa.len))
	return e
}

// Bind gives a socket its local address, bind(2).
func Bind(fd int32, sa *Sockaddr) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(sa.len))
	return e
}

// Listen makes a bound stream socket a listening one, listen(2).
func Listen(fd int32, backlog int) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_LISTEN, uintptr(fd), uintptr(backlog), 0)
	return e
}

// Getsockname stores the local address of a socket in sa, getsockname(2).
func Getsockname(fd int32, sa *Sockaddr) unix.Errno {
	sa.len = sockaddrSize
	_, _, e := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&sa.len)))
	return e
}

// SetInt sets a socket option that takes an int, setsockopt(2).
func SetInt(fd int32, level, name, value int) unix.Errno {
	v := int32(value)
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&v)), 4, 0)
	return e
}

// SocketError takes the pending error of a socket, SO_ERROR of socket(7).
func SocketError(fd int32) unix.Errno {
	var v int32
	size := uint32(4)
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return e
	}
	return unix.Errno(v)
}

// ShutdownWrite sends the FIN, shutdown(2) with SHUT_WR.
func ShutdownWrite(fd int32) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return e
}

// Close closes a descriptor, close(2). The descriptor is gone whatever is
// returned.
func Close(fd int32) unix.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return e
}

// Pipe opens a non-blocking pipe, pipe2(2). Both descriptors are the caller's.
func Pipe() (r, w int32, errno unix.Errno) {
	var p [2]int32
	_, _, e := syscall.RawSyscall(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&p)), unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	return p[0], p[1], e
}

// Fcntl calls fcntl(2) with an integer argument.
func Fcntl(fd int32, cmd, arg int) (int, unix.Errno) {
	r, _, e := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), uintptr(cmd), uintptr(arg))
	if e != 0 {
		return 0, e
	}
	return int(r), 0
}

// Wake adds one to an eventfd(2).
func Wake(fd int32) {
	one := uint64(1)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}

// SetLinger sets SO_LINGER of socket(7); with 0 seconds close sends a RST.
func SetLinger(fd int32, seconds int) unix.Errno {
	v := unix.Linger{Onoff: 1, Linger: int32(seconds)}
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return e
}
