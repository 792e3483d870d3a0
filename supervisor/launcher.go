package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// RoleLauncher is the process between a supervisor and the successor it
// starts. When it ends the successor becomes a child of process 1: a service
// manager takes only such a process for the main one of a service.
const RoleLauncher = "launcher"

// launcher is that process. Everything the successor starts is in its care
// until then: orphans become its children (PR_SET_CHILD_SUBREAPER, prctl(2)).
type launcher struct {
	conn *ipc.Conn
	pid  int
	// gone is closed when there is no child any more.
	gone chan struct{}
}

// RunLauncher carries out what the supervisor says and returns the exit code.
func RunLauncher() int {
	// What is sent to the whole process group or control group is meant for
	// the supervisor; the successor must not inherit that it is ignored.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	unix.CloseOnExec(ipc.LauncherHandoffFD)
	conn, err := ipc.NewHandoffConn(ipc.HandoffFD)
	if err != nil {
		fmt.Fprintln(os.Stderr, "3proxyd: launcher:", err)
		return 1
	}
	l := &launcher{conn: conn, gone: make(chan struct{})}
	for {
		m, err := conn.Recv()
		if err != nil {
			return 0
		}
		switch m.Type {
		case ipc.MsgLaunch:
			l.launch(m)
		case ipc.MsgLaunchKill:
			var what ipc.LaunchKill
			_ = m.Decode(&what)
			l.killAll(what.Kept)
			return 0
		}
	}
}

// launch starts the successor and tells the supervisor.
func (l *launcher) launch(m *ipc.Message) {
	pid, pidfd, err := l.start(m)
	if err != nil {
		_ = l.conn.Send(ipc.MsgLaunched, 0, ipc.Launched{Error: err.Error()})
		return
	}
	l.pid = pid
	if err := l.conn.Send(ipc.MsgLaunched, 0, ipc.Launched{PID: pid}, pidfd); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = unix.Close(pidfd)
	go l.reap()
}

func (l *launcher) start(m *ipc.Message) (pid, pidfd int, err error) {
	var what ipc.Launch
	if err := m.Decode(&what); err != nil {
		return 0, -1, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, -1, os.NewSyscallError("prctl", err)
	}
	pidfd = -1
	pid, err = syscall.ForkExec(what.Binary, what.Args, &syscall.ProcAttr{
		Env:   what.Env,
		Files: []uintptr{0, 1, 2, ipc.LauncherHandoffFD},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	// The supervisor learns of the successor's end by the end of the socket.
	_ = unix.Close(ipc.LauncherHandoffFD)
	if err == nil && pidfd < 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		err = errors.New("the kernel has no process descriptors")
	}
	return pid, pidfd, err
}

// reap waits for all children and reports the end of the successor.
func (l *launcher) reap() {
	defer close(l.gone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return
		}
		if pid == l.pid {
			_ = l.conn.Send(ipc.MsgLaunchEnded, 0, ipc.Launched{PID: pid, Error: waitText(status)})
		}
	}
}

// launcherKill bounds the wait for processes that have been killed.
const launcherKill = 10 * time.Second

// killAll ends the successor and whatever it has started, but for processes
// that are kept.
func (l *launcher) killAll(kept []int) {
	if l.pid == 0 {
		return
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(launcherKill); time.Now().Before(deadline); {
		children := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool { return slices.Contains(kept, pid) })
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-l.gone:
			return
		case <-tick.C:
		}
	}
}

// childrenOf lists the children of a process.
func childrenOf(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(pid) == parent {
			found = append(found, pid)
		}
	}
	return found
}

// parentOf returns the parent of a process, 0 when it is not known.
func parentOf(pid int) int {
	_, parent := processStat(pid)
	return parent
}

// processStat returns state and parent of a process, "" and 0 when they are not
// known. The name in proc_pid_stat(5) may contain anything, so that fields count
// from its end.
func processStat(pid int) (state string, parent int) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	defer file.Close()
	data, _ := io.ReadAll(io.LimitReader(file, 4096))
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}
