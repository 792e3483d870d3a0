package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

// script writes an executable shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	return program(t, "#!/bin/sh\n"+text+"\n", 0o755)
}

func program(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "3proxyd")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// foreignELF is the header of a program for another architecture.
func foreignELF() string {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(b[16:], 2)
	binary.LittleEndian.PutUint16(b[18:], 243) // RISC-V
	binary.LittleEndian.PutUint32(b[20:], 1)
	binary.LittleEndian.PutUint16(b[52:], 64)
	return string(b)
}

// TestUpgradeRefused tries new binaries that fail in every way before they are
// ready: the reason comes back, and under load no client notices.
func TestUpgradeRefused(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 0\n")
	d := startUpgradable(t, config)
	pid, sockets, fds := d.supervisor(), listeners(p.proxy), openFDs(t, d.supervisor())
	good := "pidfile " + d.pidFile() + "\n" + config
	taken := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t)))
	busy := taken.status().Services[0].Address
	load := startMixed(t, p, 1)
	for name, c := range map[string]struct {
		binary string
		args   []string
		config string
		want   string
	}{
		"missing":         {binary: "/nonexistent/3proxyd", want: "no such file"},
		"directory":       {binary: t.TempDir(), want: "it is not a file"},
		"not executable":  {binary: program(t, "#!/bin/sh\n", 0o644), want: "not executable"},
		"architecture":    {binary: program(t, foreignELF(), 0o755), want: "another architecture: EM_RISCV"},
		"no program":      {binary: program(t, "no program at all", 0o755), want: "exec format error"},
		"crash":           {binary: script(t, "exit 7"), want: "exit status 7"},
		"killed":          {binary: script(t, "kill -9 $$"), want: "killed by signal 9"},
		"hang":            {binary: script(t, "sleep 1000"), args: []string{"--timeout", "1"}, want: "did not say hello within 1s"},
		"hang, children":  {binary: script(t, "sleep 1000 & sleep 1000"), args: []string{"--timeout", "1"}, want: "did not say hello"},
		"stopped":         {binary: script(t, "kill -STOP $$"), args: []string{"--timeout", "1"}, want: "did not say hello"},
		"no memory":       {binary: script(t, "ulimit -v 200000; exec "+daemonBin+` "$@" 2>/dev/null`), want: "the new daemon ended before"},
		"no descriptors":  {binary: script(t, "ulimit -n 12; exec "+daemonBin+` "$@"`), want: "too many open files"},
		"bad command":     {config: good + "proxxy\n", want: d.config + `:10:1: error: unknown command "proxxy"`},
		"bad port":        {config: good + "socks -p" + busy[strings.LastIndexByte(busy, ':')+1:] + "\n", want: d.config + ":10:1: error: socks: "},
		"bad log":         {config: good + "log /nonexistent/dir/log\nsocks -p1\n", want: d.config + ":10:5: error: "},
		"no config":       {config: "", want: d.config + ":1:1: error: no service"},
		"relative":        {binary: "./nothing", want: "no such file"},
		"version":         {binary: fakeSuccessor(t, "version"), want: "it speaks versions 98 to 99 of the handoff, this daemon 1 to 1"},
		"garbage":         {binary: fakeSuccessor(t, "garbage"), want: "the new daemon"},
		"silent":          {binary: fakeSuccessor(t, "silent"), args: []string{"--timeout", "1"}, want: "did not take the sockets within"},
		"out of order":    {binary: fakeSuccessor(t, "disorder"), want: "sends message type"},
		"dies on go":      {binary: fakeSuccessor(t, "dies on go"), want: "ended before it could accept connections: exit status 5"},
		"dies on check":   {binary: fakeSuccessor(t, "dies on check"), want: "ended before it could show that its workers run: exit status 5"},
		"dies at the end": {binary: fakeSuccessor(t, "dies at the end"), want: "ended before it could take over: exit status 5"},
	} {
		d.write(good)
		if c.config != "" || name == "no config" {
			d.write(c.config)
		}
		args := append([]string{"upgrade"}, c.args...)
		if c.binary != "" {
			args = append(args, "--binary", c.binary)
		}
		out, stderr, code := d.ctl(args...)
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d: %s%s; expected %s", name, code, out, stderr, c.want)
		}
		if now := d.supervisor(); now != pid {
			t.Fatalf("%s: the daemon is %d instead of %d", name, now, pid)
		}
		if n := len(d.family()); n != 3 {
			t.Errorf("%s: there are %d processes", name, n)
		}
	}
	d.write(good)
	load.end()
	if now := listeners(p.proxy); !slices.Equal(now, sockets) {
		t.Errorf("the sockets are %v instead of %v", now, sockets)
	}
	if s := d.status(); s.LastUpgrade == nil || s.LastUpgrade.OK || s.LastUpgrade.Error == "" || s.Upgrade != nil {
		t.Errorf("status after failures: %+v %+v", s.LastUpgrade, s.Upgrade)
	}
	eventually(t, patience, func() string {
		if now := openFDs(t, pid); now > fds {
			return fmt.Sprintf("%d descriptors instead of %d:\n%s", now, fds, strings.Join(fdTargets(pid), "\n"))
		}
		return ""
	})
	d.upgrade()
	d.awaitOldGone()
}

// inTrial starts an upgrade and returns when the new daemon is on trial.
func (d *daemon) inTrial(args ...string) (newPID int, outcome chan string) {
	d.t.Helper()
	outcome = make(chan string, 1)
	go func() {
		out, stderr, code := d.ctl(append([]string{"upgrade"}, args...)...)
		outcome <- fmt.Sprintf("%d %s%s", code, out, stderr)
	}()
	eventually(d.t, patience, func() string {
		if u := d.status().Upgrade; u != nil && u.State == "trial" {
			newPID = u.PID
			return ""
		}
		return "no trial"
	})
	return newPID, outcome
}

func (d *daemon) awaitOutcome(outcome chan string, want string) {
	d.t.Helper()
	select {
	case got := <-outcome:
		if !strings.Contains(got, want) {
			d.t.Errorf("the upgrade ended with %q, expected %q", got, want)
		}
	case <-time.After(patience):
		d.t.Errorf("the upgrade does not end")
	}
}

// TestUpgradeTrial has the new daemon fail in its trial: the old one goes on as
// if nothing had been.
func TestUpgradeTrial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(t *testing.T, d *daemon, newPID int)
		want string
	}{
		"daemon killed":       {func(t *testing.T, _ *daemon, pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }, "1 3proxyctl: upgrade: the new daemon ended before it could outlast its trial: killed by signal 9"},
		"daemon told to stop": {func(t *testing.T, _ *daemon, pid int) { _ = syscall.Kill(pid, syscall.SIGTERM) }, "told to stop"},
		"worker killed": {func(t *testing.T, _ *daemon, pid int) {
			_ = syscall.Kill(children(pid)[0], syscall.SIGKILL)
		}, "1 3proxyctl: upgrade: the new daemon: its worker"},
		"worker hangs": {func(t *testing.T, _ *daemon, pid int) { freeze(t, children(pid)[0]) }, "1 3proxyctl: upgrade: the new daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMixedPorts(t)
			d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 3\n"))
			pid, sockets := d.supervisor(), listeners(p.proxy)
			tunnel := connectVia(t, p.proxy, p.echo)
			mustPing(t, tunnel)
			newPID, outcome := d.inTrial()
			if _, stderr, code := d.ctl("reload"); code != 1 || !strings.Contains(stderr, "an upgrade is under way") {
				t.Errorf("reload during the trial: exit code %d: %s", code, stderr)
			}
			if _, stderr, code := d.ctl("upgrade"); code != 1 || !strings.Contains(stderr, "an upgrade is under way") {
				t.Errorf("upgrade during the trial: exit code %d: %s", code, stderr)
			}
			c.fail(t, d, newPID)
			d.awaitOutcome(outcome, c.want)
			if now := d.supervisor(); now != pid {
				t.Errorf("the daemon is %d instead of %d", now, pid)
			}
			eventually(t, patience, func() string {
				if n := len(d.family()); n != 3 {
					return fmt.Sprintf("%d processes", n)
				}
				return ""
			})
			mustPing(t, tunnel)
			load := startMixed(t, p, 1)
			time.Sleep(300 * time.Millisecond)
			load.end()
			tunnel.Close()
			d.awaitOpen(0)
			if now := listeners(p.proxy); !slices.Equal(now, sockets) {
				t.Errorf("the sockets are %v instead of %v", now, sockets)
			}
			d.upgrade("--trial", "0")
			d.awaitOldGone()
		})
	}
}

// TestUpgradeCancelledUnderLoad ends the new daemon in its trial, in every way:
// the old one goes on with what that one has accepted.
func TestUpgradeCancelledUnderLoad(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 60\n"))
	pid := d.supervisor()
	load := startMixed(t, p, 1)
	streams := uint64(0)
	for _, c := range []struct {
		signals []syscall.Signal
		want    string
	}{
		{[]syscall.Signal{syscall.SIGTERM}, "told to stop"},
		{[]syscall.Signal{syscall.SIGKILL}, "killed by signal 9"},
		{[]syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL}, "killed by signal 9"},
	} {
		newPID, outcome := d.inTrial()
		time.Sleep(200 * time.Millisecond)
		during, half := startStreams(t, p, 6), halfTunnel(t, p.proxy)
		streams += 7
		time.Sleep(100 * time.Millisecond)
		for _, sig := range c.signals {
			_ = syscall.Kill(newPID, sig)
		}
		d.awaitOutcome(outcome, c.want)
		finishHalf(t, half, p.echo)
		mustPing(t, half)
		d.awaitProcesses(3)
		mustPing(t, half)
		half.Close()
		endStreams(t, during)
	}
	load.end()
	if now := d.supervisor(); now != pid {
		t.Errorf("the daemon is %d instead of %d", now, pid)
	}
	d.awaitOpen(0)
	if n := d.stats().Total["accepted"]; n != uint64(load.made.Load())+streams {
		t.Errorf("%d sessions were counted, %d made", n, uint64(load.made.Load())+streams)
	}
	d.upgrade("--trial", "0")
	d.awaitOldGone()
}

// TestUpgradeCancelledServices ends a new daemon that has services of its own in
// its trial: their sessions go on until they end, and leave nothing behind.
func TestUpgradeCancelledServices(t *testing.T) {
	t.Parallel()
	p, added := newMixedPorts(t), port(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 60\n")
	d := startUpgradable(t, config)
	good := "pidfile " + d.pidFile() + "\n" + config
	d.write(good + fmt.Sprintf("workers 3\ntcppm %d 127.0.0.1 %d\n", added, p.echo))
	newPID, outcome := d.inTrial()
	own := dial(t, added)
	mustPing(t, own)
	d.write(good)
	_ = syscall.Kill(newPID, syscall.SIGKILL)
	d.awaitOutcome(outcome, "killed by signal 9")
	mustPing(t, own)
	if listens(added) {
		t.Error("the service that only the new daemon had still listens")
	}
	if n := d.stats().Total["open"]; n != 1 {
		t.Errorf("%d sessions are open", n)
	}
	own.Close()
	d.awaitOpen(0)
	d.awaitProcesses(3)
	d.upgrade("--trial", "0")
	d.awaitOldGone()
}

// TestUpgradeOldKilled kills the old daemon in the trial, under load: the new
// one takes over by itself, and tunnels move to it.
func TestUpgradeOldKilled(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 60\n"))
	pid := d.supervisor()
	tunnel := connectVia(t, p.proxy, p.echo)
	mustPing(t, tunnel)
	load := startMixed(t, p, 1)
	newPID, _ := d.inTrial()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, patience, func() string {
		if now := readPID(d.pidFile()); now != newPID {
			return fmt.Sprintf("the pidfile names %d instead of %d", now, newPID)
		}
		return ""
	})
	eventually(t, patience, func() string {
		if out, _, code := d.ctl("-o", "json", "status"); code != 0 || !strings.Contains(out, fmt.Sprintf(`"pid": %d`, newPID)) {
			return "the new daemon does not answer"
		}
		return ""
	})
	load.end()
	d.awaitOldGone()
	mustPing(t, tunnel)
	tunnel.Close()
	d.awaitOpen(0)
	if n := d.stats().Total["accepted"]; n != 1+uint64(load.made.Load()) {
		t.Errorf("%d sessions were counted, %d made", n, 1+load.made.Load())
	}
	d.upgrade("--trial", "0")
	d.awaitOldGone()
}

// TestUpgradeStopped stops the daemon in the trial: the upgrade is given up and
// the daemon drains.
func TestUpgradeStopped(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 60\n"))
	tunnel := connectVia(t, p.proxy, p.echo)
	mustPing(t, tunnel)
	_, outcome := d.inTrial()
	_ = syscall.Kill(d.supervisor(), syscall.SIGTERM)
	d.awaitOutcome(outcome, "the daemon is draining")
	mustPing(t, tunnel)
	eventually(t, patience, func() string {
		if n := len(d.family()); n > 3 {
			return fmt.Sprintf("%d processes", n)
		}
		return ""
	})
	tunnel.Close()
}

// TestUpgradeStopAfter stops the new daemon while an old generation drains: it
// ends with it.
func TestUpgradeStopAfter(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\n"))
	half := halfTunnel(t, p.proxy)
	d.awaitOpen(1)
	d.upgrade()
	pid := d.supervisor()
	_ = syscall.Kill(pid, syscall.SIGTERM)
	eventually(t, patience, func() string {
		if _, stderr, code := d.ctl("status"); code == 0 {
			return ""
		} else {
			return stderr
		}
	})
	time.Sleep(time.Second)
	if !alive(pid) {
		t.Error("the new daemon has left the old generation behind")
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	eventually(t, patience, func() string {
		if n := len(d.family()); n > 0 {
			return fmt.Sprintf("%d processes are left", n)
		}
		return ""
	})
	half.Close()
}

// TestUpgradeChanges upgrades to a configuration with services added and
// removed, and other numbers of workers.
func TestUpgradeChanges(t *testing.T) {
	t.Parallel()
	p, added := newMixedPorts(t), port(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\n"))
	head := "pidfile " + d.pidFile() + "\nauth none\ninternal 127.0.0.1\nupgrade_trial 0\n"
	for _, workers := range []int{3, 1, 2} {
		text := fmt.Sprintf("%sworkers %d\nproxy -p%d\nsocks -p%d\ntcppm %d 127.0.0.1 %d\n", head, workers, p.proxy, added, p.tcppm, p.echo)
		d.write(text)
		r := ask[ipc.UpgradeResult](d, "upgrade")
		if workers == 3 && (!slices.Equal(r.Added, []string{fmt.Sprintf("socks@127.0.0.1:%d", added)}) || !slices.Equal(r.Removed, []string{fmt.Sprintf("socks@127.0.0.1:%d", p.socks)})) {
			t.Errorf("upgrade: %+v", r)
		}
		d.awaitOldGone()
		if n := len(d.status().Workers); n != workers {
			t.Errorf("%d workers instead of %d", n, workers)
		}
		if listens(p.socks) {
			t.Error("the removed service still listens")
		}
		q := p
		q.socks = added
		load := startMixed(t, q, 2)
		time.Sleep(300 * time.Millisecond)
		load.end()
	}
}

// TestUpgradeCrashAfter kills the new daemon while an old generation drains: the
// next one finds the workers of both.
func TestUpgradeCrashAfter(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	config := mixedConfig(p, "workers 2\nupgrade_trial 0\n")
	d := startUpgradable(t, config)
	half := halfTunnel(t, p.proxy)
	d.awaitOpen(1)
	old := d.supervisor()
	d.upgrade()
	tunnel := connectVia(t, p.proxy, p.echo)
	mustPing(t, tunnel)
	load := startMixed(t, p, 1)
	killed := d.supervisor()
	_ = syscall.Kill(killed, syscall.SIGKILL)
	eventually(t, patience, func() string {
		if alive(killed) {
			return "the killed daemon lives"
		}
		return ""
	})
	d.startUpgradable(config, daemonBin)
	olds := d.status().OldGenerations
	if len(olds) != 1 || olds[0].PID != old || olds[0].Sessions != 1 {
		t.Errorf("old generations: %+v", olds)
	}
	mustPing(t, tunnel)
	fmt.Fprintf(half, "%d HTTP/1.1\r\nHost: x\r\n\r\n", p.echo)
	answer := make([]byte, 12)
	if _, err := io.ReadFull(half, answer); err != nil || string(answer) != "HTTP/1.1 200" {
		t.Errorf("the half request was answered %q, %v", answer, err)
	}
	half.Close()
	load.end()
	d.awaitOldGone()
	tunnel.Close()
}
