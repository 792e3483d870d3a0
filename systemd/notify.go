package systemd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifyEnv names the manager's socket, see sd_notify(3).
const notifyEnv = "NOTIFY_SOCKET"

const (
	// notifyTimeout bounds the wait for a manager that does not read.
	notifyTimeout = 2 * time.Second
	// maxFilesPerMessage is the kernel's limit (SCM_MAX_FD, unix(7)).
	maxFilesPerMessage = 253
)

// The states without a value, for Notify.
const (
	Ready    = daemon.SdNotifyReady
	Stopping = daemon.SdNotifyStopping
	Watchdog = daemon.SdNotifyWatchdog
)

// Managed says whether a manager wants to be notified.
func Managed() bool { return os.Getenv(notifyEnv) != "" }

// Notify sends assignments such as Ready, Status("...") or "MAINPID=123" in one
// message. It returns nil without doing anything when there is no manager.
func Notify(state ...string) error { return NotifyFiles(strings.Join(state, "\n")) }

// Status returns the assignment of the line systemctl status shows. What
// cannot be in a line is replaced.
func Status(text string) string { return "STATUS=" + oneLine(text) }

// MainPID returns the assignment that makes another process of the service the
// main one.
func MainPID(pid int) string { return fmt.Sprintf("MAINPID=%d", pid) }

// Reloading returns the assignments that begin a reload, with the time that
// Type=notify-reload asks for. Ready ends it.
func Reloading() string {
	return daemon.SdNotifyReloading + "\n" + strings.TrimSpace(daemon.SdNotifyMonotonicUsec())
}

// ExtendTimeout returns the assignment that allows the start, reload or stop
// under way to go on for d from now on.
func ExtendTimeout(d time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// NotifyFiles is Notify with descriptors, which remain the caller's: at most
// 253, as for FDSTORE=1. It returns nil without doing anything when there is no
// manager.
func NotifyFiles(state string, fds ...int) error {
	address := os.Getenv(notifyEnv)
	if address == "" {
		return nil
	}
	if len(fds) > maxFilesPerMessage {
		return fmt.Errorf("%d descriptors exceed %d in one message", len(fds), maxFilesPerMessage)
	}
	if err := sendTo(address, state, fds); err != nil {
		return fmt.Errorf("%s %q: %w", notifyEnv, address, err)
	}
	return nil
}

func sendTo(address, state string, fds []int) error {
	if address[0] != '/' && address[0] != '@' || len(address) < 2 || len(address) > 107 {
		return errors.New("not the path or abstract name of a Unix socket")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(notifyTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return sendPatiently(fd, []byte(state), rights, &unix.SockaddrUnix{Name: address})
}

// sendPatiently tries again while the manager has yet to take descriptors that
// are under way (ETOOMANYREFS, unix(7)).
func sendPatiently(fd int, state, rights []byte, to unix.Sockaddr) error {
	deadline := time.Now().Add(notifyTimeout)
	for {
		err := unix.Sendmsg(fd, state, rights, to, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
		case err == unix.ETOOMANYREFS && time.Now().Before(deadline):
			time.Sleep(10 * time.Millisecond)
		default:
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// Barrier waits until the manager has handled all earlier messages of the
// process, for at most d (sd_notify_barrier(3); systemd 246).
func Barrier(d time.Duration) error {
	if !Managed() {
		return nil
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer unix.Close(pipe[0])
	err := NotifyFiles("BARRIER=1", pipe[1])
	_ = unix.Close(pipe[1])
	if err != nil {
		return err
	}
	return awaitHangup(pipe[0], d)
}

// awaitHangup waits until the other end of a pipe has been closed everywhere.
func awaitHangup(fd int, d time.Duration) error {
	for deadline := time.Now().Add(d); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(left.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return fmt.Errorf("%s: no answer within %v", notifyEnv, d)
		default:
			return nil
		}
	}
}
