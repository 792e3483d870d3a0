// Package lab makes the place where proxies are measured: three network
// namespaces in a row,
//
//	client 10.0.1.2 - 10.0.1.1 proxy 10.0.2.1 - 10.0.2.2 origin
//
// joined by veth pairs, each with CPUs of its own. Everything it makes has a
// name that tells its owner, is removed by Close, and if the owner died before
// that, by the next New.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Lab is the place. Its roles are ready when New returns.
type Lab struct {
	Client, Proxy, Origin *Role
	CPUs                  CPUs
	// Dir is a directory for files that nobody needs later. It is readable for
	// every user, since proxies change theirs.
	Dir string
	// Files is the limit of open files of every process in the lab.
	Files int
	lock  net.Listener
}

// lockName is the socket that keeps two labs from disturbing each other.
const lockName = "@" + prefix + "-lock"

// New makes the lab; it needs root. While another lab runs on this machine it
// waits until ctx ends.
func New(ctx context.Context, cpus CPUs) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root: run as root")
	}
	lock, err := acquire(ctx)
	if err != nil {
		return nil, err
	}
	l := &Lab{CPUs: cpus, lock: lock}
	if err := l.build(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build() error {
	if err := RemoveStale(); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	files, err := raiseFiles()
	if err != nil {
		return err
	}
	l.Files = files
	me, err := self()
	if err != nil {
		return err
	}
	l.Dir = filepath.Join(os.TempDir(), me.name(""))
	if err := os.Mkdir(l.Dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	l.Client = newRole(me.name("cli"), l.CPUs.Client)
	l.Proxy = newRole(me.name("prx"), l.CPUs.Proxy)
	l.Origin = newRole(me.name("srv"), l.CPUs.Origin)
	if err := l.buildNet(); err != nil {
		return err
	}
	for _, r := range l.roles() {
		if err := r.enter(); err != nil {
			return err
		}
	}
	return l.setSysctls()
}

func (l *Lab) roles() []*Role { return []*Role{l.Client, l.Proxy, l.Origin} }

// Close ends every process in the lab and removes everything New made.
func (l *Lab) Close() error {
	var errs []error
	for _, r := range l.roles() {
		if r != nil {
			close(r.dead)
			errs = append(errs, removeNet(r.ns))
		}
	}
	if l.Dir != "" {
		errs = append(errs, os.RemoveAll(l.Dir))
	}
	return errors.Join(append(errs, l.lock.Close())...)
}

// acquire takes the abstract Unix socket that stands for the right to measure;
// it vanishes with the process, unix(7).
func acquire(ctx context.Context) (net.Listener, error) {
	for told := false; ; told = true {
		l, err := net.Listen("unix", lockName)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if !told {
			fmt.Fprintln(os.Stderr, "waiting for another run on this machine to end")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another run: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// raiseFiles raises the limit of open files as far as the hard limit, for this
// process and those it starts, and returns it.
func raiseFiles() (int, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("getrlimit: %w", err)
	}
	lim.Cur = lim.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("setrlimit: %w", err)
	}
	return int(min(lim.Max, 1<<30)), nil
}
