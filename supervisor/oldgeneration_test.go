package supervisor

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// A received process descriptor shares its flags with the parent's, which waits
// with it.
func TestForeignLeavesFlags(t *testing.T) {
	pidfd := -1
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	received, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := newForeign(ipc.HandoffWorker{PID: cmd.Process.Pid}, received)
	if flags, err := unix.FcntlInt(uintptr(pidfd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the parent's descriptor %#x, %v", flags, err)
	}
	if p.hasExited() {
		t.Error("the process is said to have ended")
	}
	p.signal(unix.SIGKILL)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the parent waits: %v", err)
	}
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Error("the end of the process is not seen")
	}
}

// A process that has been reaped before its descriptor arrives has ended.
func TestForeignReaped(t *testing.T) {
	pidfd := -1
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p := newForeign(ipc.HandoffWorker{PID: cmd.Process.Pid}, pidfd)
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Error("the end of the process is not seen")
	}
}
