package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"3proxyd/bench/lab"
	"3proxyd/bench/peer"
	"3proxyd/bench/scenario"
)

// subject is a proxy to be measured: a peer with a binary and options.
type subject struct {
	label   string
	peer    *peer.Peer
	path    string
	version string
	options string
	lines   []string
	// contends limits the scenarios to those in which its peer is a contender.
	contends bool
}

// takesPart tells whether the subject is measured in a scenario.
func (s *subject) takesPart(sc scenario.Scenario) bool {
	return s.peer.Serves(sc.Mode) && (!s.contends || slices.Contains(peer.Contenders(sc), s.peer.Name))
}

// process is a subject that runs.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	stderr *tail
}

// launch starts the subject in the lab and waits until it listens for mode.
func (s *subject) launch(ctx context.Context, l *lab.Lab, mode scenario.Mode) (*process, error) {
	if s.peer.Configure == nil {
		return &process{}, nil
	}
	dir, err := os.MkdirTemp(l.Dir, s.peer.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory readable: %w", err)
	}
	args, err := s.peer.Configure(peer.Env{
		Dir: dir, Listen: lab.ProxyAddr, Out: lab.ProxyOutAddr, Origin: lab.OriginAddrPort, OriginTLS: lab.OriginTLSAddrPort,
		CPUs: l.Proxy.CPUs(), Files: l.Files, Options: s.options, Lines: s.lines,
	})
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(s.path, args...), exited: make(chan struct{}), stderr: &tail{}}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.stderr, p.stderr
	// A daemon's children may hold the pipe of its output.
	p.cmd.WaitDelay = time.Second
	if err := l.Proxy.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended shows in what it wrote
		close(p.exited)
	}()
	if err := p.waitListening(ctx, l, s.addr(mode)); err != nil {
		return nil, errors.Join(err, p.stop(l))
	}
	return p, nil
}

func (p *process) waitListening(ctx context.Context, l *lab.Lab, addr netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	go func() {
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := l.Client.WaitListening(ctx, addr); err != nil {
		return fmt.Errorf("%w; it wrote: %s", err, p.stderr)
	}
	return nil
}

// addr returns where clients connect to.
func (s *subject) addr(mode scenario.Mode) netip.AddrPort {
	if s.peer.Configure == nil {
		return lab.OriginAddrPort
	}
	return netip.AddrPortFrom(lab.ProxyAddr, peer.Port(mode))
}

// pids lists the processes of the proxy.
func (p *process) pids(l *lab.Lab) ([]int, error) {
	if p.cmd == nil {
		return nil, nil
	}
	return l.Proxy.PIDs()
}

// ended tells whether the proxy's first process is gone.
func (p *process) ended() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// stop ends the proxy, and kills what is left of it.
func (p *process) stop(l *lab.Lab) error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(2 * time.Second):
	}
	err := l.Proxy.Kill()
	<-p.exited
	return err
}

// buildDaemon builds 3proxyd from the module in the working directory.
func buildDaemon(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "3proxyd")
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=auto", "-trimpath", "-o", path, "3proxyd/cmd/3proxyd").CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("build 3proxyd: %w", ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("build 3proxyd (or name a binary by --bin): %w: %s", err, out)
	}
	return path, nil
}
