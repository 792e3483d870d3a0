package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Role is the client, the proxy or the origin: a network namespace and CPUs.
type Role struct {
	ns   string
	cpus []int
	jobs chan func()
	dead chan struct{}
}

func newRole(ns string, cpus []int) *Role {
	return &Role{ns: ns, cpus: cpus, jobs: make(chan func()), dead: make(chan struct{})}
}

// NS returns the name of the role's namespace.
func (r *Role) NS() string { return r.ns }

// CPUs returns the role's CPUs.
func (r *Role) CPUs() []int { return r.cpus }

// enter starts the thread that lives in the role. Processes it starts inherit
// namespace and CPUs, and are killed by the kernel should this process die: the
// thread lives as long as the process, since PR_SET_PDEATHSIG is about threads.
func (r *Role) enter() error {
	entered := make(chan error)
	go func() {
		runtime.LockOSThread()
		entered <- r.settle()
		for {
			select {
			case job := <-r.jobs:
				job()
			case <-r.dead:
				return
			}
		}
	}()
	return <-entered
}

func (r *Role) settle() error {
	fd, err := unix.Open(filepath.Join(netnsDir, r.ns), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", r.ns, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", r.ns, err)
	}
	if err := unix.SchedSetaffinity(0, cpuSet(r.cpus)); err != nil {
		return fmt.Errorf("use CPUs %v: %w", r.cpus, err)
	}
	return nil
}

// Do runs f on the role's thread and returns its error.
func (r *Role) Do(f func() error) error {
	done := make(chan error, 1)
	r.jobs <- func() { done <- f() }
	return <-done
}

// Start starts cmd in the role, in a process group of its own.
func (r *Role) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return r.Do(cmd.Start)
}

// PIDs lists the processes that run in the role's namespace.
func (r *Role) PIDs() ([]int, error) {
	want, err := os.Stat(filepath.Join(netnsDir, r.ns))
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", r.ns, err)
	}
	return pidsIn(want)
}

// Kill ends every process in the role's namespace.
func (r *Role) Kill() error {
	file, err := os.Stat(filepath.Join(netnsDir, r.ns))
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	return killAll(file)
}

// WaitListening waits until to accepts connections from the role.
func (r *Role) WaitListening(ctx context.Context, to netip.AddrPort) error {
	for {
		err := r.Do(func() error {
			conn, err := net.DialTimeout("tcp", to.String(), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on %s: %w", to, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
