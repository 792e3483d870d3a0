package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The parts of the kernel's interface to io_uring(7) that are used here, from
// include/uapi/linux/io_uring.h.
const (
	setupCQSize       = 1 << 3
	setupRDisabled    = 1 << 6
	setupSubmitAll    = 1 << 7
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	featSingleMmap   = 1 << 0
	featNoDrop       = 1 << 1
	featSubmitStable = 1 << 2
	featFastPoll     = 1 << 5
	featExtArg       = 1 << 8
	featCQESkip      = 1 << 11
	featNoIOWait     = 1 << 17

	enterGetEvents      = 1 << 0
	enterExtArg         = 1 << 3
	enterRegisteredRing = 1 << 4
	enterNoIOWait       = 1 << 7

	offSQRing = 0
	offSQEs   = 0x10000000

	sqCQOverflow = 1 << 1

	registerProbe       = 8
	registerEnableRings = 12
	registerRingFDs     = 20
	registerPbufRing    = 22

	opPollAdd     = 6
	opAsyncCancel = 14
	opConnect     = 16
	opClose       = 19
	opSend        = 26
	opRecv        = 27

	sqeBufferSelect = 1 << 5
	sqeCQESkip      = 1 << 6

	recvPollFirst = 1 << 0

	pollAddMulti = 1 << 0

	// CQEBuffer says that Flags has the number of a provided buffer, CQEMore
	// that the request goes on and more completions of it will come,
	// CQENonEmpty that the socket of a receive has more bytes, or the FIN.
	CQEBuffer   = 1 << 0
	CQEMore     = 1 << 1
	CQENonEmpty = 1 << 2

	cqeBufferShift = 16
)

// neededFeatures and neededOps are what the engine cannot do without; all of it
// is in Linux 6.1.
const neededFeatures = featSingleMmap | featNoDrop | featSubmitStable | featFastPoll | featExtArg | featCQESkip

var neededOps = [...]uint8{opPollAdd, opAsyncCancel, opConnect, opClose, opSend, opRecv}

// CQE is a completion.
type CQE struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// Buffer returns the number of the provided buffer that the completion carries,
// if it has one.
func (c *CQE) Buffer() (id uint16, ok bool) {
	return uint16(c.Flags >> cqeBufferShift), c.Flags&CQEBuffer != 0
}

// ProbeUring opens a small ring as the engine needs it and closes it again. The
// error says why this process may not or cannot use io_uring.
func ProbeUring() error {
	u, err := NewUring(8, 16)
	if err != nil {
		return err
	}
	defer u.Close()
	_, err = u.ProvideBuffers(0, 8, 4096)
	return err
}

// disabledPath holds the system's setting of who may use io_uring.
const disabledPath = "/proc/sys/kernel/io_uring_disabled"

// uringRefused explains the errno of io_uring_setup(2).
func uringRefused(errno unix.Errno) error {
	switch errno {
	case unix.ENOSYS:
		return errors.New("the kernel has no io_uring")
	case unix.EINVAL:
		return errors.New("the kernel's io_uring is too old (Linux 6.1 or newer is needed)")
	case unix.ENOMEM:
		return fmt.Errorf("io_uring_setup: %w (RLIMIT_MEMLOCK or the memory of the control group)", errno)
	case unix.EPERM:
		return fmt.Errorf("io_uring_setup: %w (%s)", errno, whyForbidden())
	}
	return fmt.Errorf("io_uring_setup: %w", errno)
}

func whyForbidden() string {
	b, err := os.ReadFile(disabledPath)
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 {
			return fmt.Sprintf("sysctl kernel.io_uring_disabled is %d", n)
		}
	}
	return "forbidden by seccomp or a security module"
}
