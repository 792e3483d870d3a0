// Package sys holds the system calls of the load generator and the origin.
//
// Every descriptor is non-blocking, so the calls enter the kernel without
// telling the Go scheduler. They return the kernel's errno unboxed; 0 is
// success. unsafe is used in the files named *_unsafe.go only.
package sys

import (
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// memoryLimit is where a role's collector starts to work: never, in practice.
const memoryLimit = 2 << 30

// LockLoop makes the calling goroutine fit to run an event loop: it stays on
// its thread, timers fire without slack and the collector is off, so that
// nothing but the loop uses the role's CPU.
func LockLoop() {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// Listen opens a non-blocking TCP socket that listens on addr. Accepted
// sockets inherit TCP_NODELAY.
func Listen(addr netip.AddrPort, backlog int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := bindListen(fd, addr, backlog); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen %s: %w", addr, err)
	}
	return fd, nil
}

func bindListen(fd int, addr netip.AddrPort, backlog int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

// Millis returns ms milliseconds; a negative ms is the wait without limit.
func Millis(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
