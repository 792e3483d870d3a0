package ipc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// handoffFrameVersion is the version in the header of the messages of a
// handoff. It never changes: the versions of the protocol are agreed upon by
// HandoffHello.
const handoffFrameVersion = 1

// HandoffPair returns the two ends of a channel between two supervisors, or
// between a supervisor and a launcher: the near end for this process and the far
// end as a file to pass on. Both are close-on-exec.
func HandoffPair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, err := NewHandoffConn(fds[0])
	if err != nil {
		closeAll(fds[:])
		return nil, nil, err
	}
	return near, os.NewFile(uintptr(fds[1]), "handoff socket"), nil
}

// NewHandoffConn makes a Conn for the messages of a handoff; see NewConn. What
// the peer has sent before its end can be read after it.
func NewHandoffConn(fd int) (*Conn, error) {
	c, err := NewConn(fd)
	if err != nil {
		return nil, err
	}
	c.version, c.readsAfterReset = handoffFrameVersion, true
	return c, nil
}

// ChooseHandoffVersion returns the greatest version of the handoff protocol
// that this binary and the successor speak.
func ChooseHandoffVersion(h HandoffHello) (int, error) {
	v := min(h.Max, HandoffMax)
	if v < h.Min || v < HandoffMin {
		return 0, fmt.Errorf("it speaks versions %d to %d of the handoff, this daemon %d to %d", h.Min, h.Max, HandoffMin, HandoffMax)
	}
	return v, nil
}
