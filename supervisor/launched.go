package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/ipc"
)

// launched is a successor being started, and the launcher that is its parent
// meanwhile.
type launched struct {
	conn *ipc.Conn
	proc *os.Process
	pid  int
	// pidfd is the successor, as a process descriptor (pidfd_open(2)).
	pidfd int
	// ended is closed when the successor has ended; endText may be read then.
	ended   chan struct{}
	endText string
	// gone is closed when the launcher has ended.
	gone chan struct{}
}

// launchTime bounds the start of the launcher and of the new binary.
const launchTime = 10 * time.Second

// launchSuccessor starts a binary with the own arguments and handoff as
// ipc.HandoffFD.
func (d *daemon) launchSuccessor(binary string, handoff *os.File) (*launched, error) {
	l, err := d.startLauncher(handoff)
	if err != nil {
		return nil, fmt.Errorf("launcher: %w", err)
	}
	what := ipc.Launch{Binary: binary, Args: os.Args, Env: d.successorEnv()}
	if err := l.conn.Send(ipc.MsgLaunch, 0, what); err != nil {
		l.kill()
		return nil, fmt.Errorf("launcher: %w", err)
	}
	if err := l.awaitStart(); err != nil {
		l.kill()
		return nil, err
	}
	go l.read()
	return l, nil
}

func (d *daemon) startLauncher(handoff *os.File) (*launched, error) {
	conn, far, err := ipc.HandoffPair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer null.Close()
	env := append([]string{RoleEnv + "=" + RoleLauncher, "GOMAXPROCS=2"}, d.options.Env...)
	proc, err := os.StartProcess(d.options.Exe, []string{"3proxyd: launcher"}, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{null, d.options.Stdout, d.options.Stderr, far, handoff},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	l := &launched{conn: conn, proc: proc, pidfd: -1, ended: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		_, _ = proc.Wait()
		close(l.gone)
	}()
	return l, nil
}

// forgottenEnv are variables that are meant for this process only.
var forgottenEnv = []string{RoleEnv, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "WATCHDOG_PID"}

func (d *daemon) successorEnv() []string {
	var env []string
	for _, v := range append(os.Environ(), d.options.Env...) {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(forgottenEnv, name) {
			env = append(env, v)
		}
	}
	return append(env, RoleEnv+"="+RoleSuccessor)
}

// awaitStart takes the launcher's answer to MsgLaunch.
func (l *launched) awaitStart() error {
	if err := l.conn.SetRecvDeadline(time.Now().Add(launchTime)); err != nil {
		return err
	}
	m, err := l.conn.Recv()
	if err != nil {
		return fmt.Errorf("the launcher does not answer: %w", err)
	}
	defer m.CloseFDs()
	var answer ipc.Launched
	if err := m.Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	if m.Type != ipc.MsgLaunched || len(m.FDs) != 1 {
		return fmt.Errorf("the launcher answers with message type %d and %d descriptors", m.Type, len(m.FDs))
	}
	l.pid, l.pidfd, m.FDs = answer.PID, m.FDs[0], nil
	return l.conn.SetRecvDeadline(time.Time{})
}

// read waits for the end of the successor.
func (l *launched) read() {
	l.endText = "its launcher has ended"
	defer close(l.ended)
	for {
		m, err := l.conn.Recv()
		if err != nil {
			return
		}
		var what ipc.Launched
		if m.Type == ipc.MsgLaunchEnded && m.Decode(&what) == nil {
			l.endText = what.Error
			return
		}
		m.CloseFDs()
	}
}

// release ends the launcher, so that the successor becomes a child of process
// 1 or the next subreaper.
func (l *launched) release() {
	_ = l.conn.Close()
	select {
	case <-l.gone:
	case <-time.After(launchTime):
		_ = l.proc.Kill()
		<-l.gone
	}
}

// kill ends the successor and all it has started but for the processes kept, and
// returns when they are gone.
func (l *launched) kill(kept ...int) {
	if l.conn.Send(ipc.MsgLaunchKill, 0, ipc.LaunchKill{Kept: kept}) == nil {
		select {
		case <-l.gone:
		case <-time.After(launcherKill + launchTime):
		}
	}
	_ = l.proc.Kill()
	<-l.gone
	_ = l.conn.Close()
	// A launcher that was killed has left it behind.
	if l.pidfd >= 0 {
		_ = unix.PidfdSendSignal(l.pidfd, unix.SIGKILL, nil, 0)
	}
}

// close gives the descriptors up.
func (l *launched) close() {
	if l.pidfd >= 0 {
		_ = unix.Close(l.pidfd)
		l.pidfd = -1
	}
}
