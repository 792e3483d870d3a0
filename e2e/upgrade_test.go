package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

// buildVersion builds the daemon with another version.
func buildVersion(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "3proxyd")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X 3proxyd/internal/version.Release="+version, "-o", path, "3proxyd/cmd/3proxyd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestUpgrade replaces the daemon by another build: sockets, counters, limits
// and sessions stay.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	newer := buildVersion(t, "9.8.7")
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 1\n"))
	c := connectVia(t, p.proxy, p.echo)
	mustPing(t, c)
	for range 20 {
		if err := pingOnce(p.tcppm); err != nil {
			t.Fatal(err)
		}
	}
	sockets, before, was := listeners(p.tcppm), d.stats(), d.status()
	r := ask[ipc.UpgradeResult](d, "upgrade", "--binary", newer)
	if r.Version != "9.8.7" || r.PID != d.supervisor() || r.Generation != was.Generation+1 || len(r.Kept) != 3 || len(r.Added)+len(r.Removed) > 0 {
		t.Errorf("upgrade: %+v", r)
	}
	now := d.status()
	if now.Version != "9.8.7" || now.PID != r.PID || now.LastUpgrade == nil || !now.LastUpgrade.OK || now.LastUpgrade.From != was.Version {
		t.Errorf("status: %+v, last upgrade %+v", now, now.LastUpgrade)
	}
	if parent, _ := parentOf(r.PID); parent == was.PID {
		t.Errorf("the parent of the new daemon is the old one")
	}
	if after := listeners(p.tcppm); !slices.Equal(after, sockets) {
		t.Errorf("the listening sockets are %v instead of %v", after, sockets)
	}
	after := d.stats()
	for _, name := range []string{"open", "accepted", "requests", "bytes_in", "bytes_out"} {
		if after.Total[name] != before.Total[name] {
			t.Errorf("%s is %d after the upgrade, %d before", name, after.Total[name], before.Total[name])
		}
	}
	// The tunnel moves, so that the old generation is gone while it lives.
	d.awaitOldGone()
	mustPing(t, c)
	if err := pingOnce(p.tcppm); err != nil {
		t.Error(err)
	}
	if n := d.stats().Total["open"]; n != 1 {
		t.Errorf("%d sessions are open", n)
	}
	c.Close()
	if n := d.service("tcppm")["accepted"]; n != 21 {
		t.Errorf("%d sessions were counted, 21 made", n)
	}
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Errorf("reload after the upgrade: %s", stderr)
	}
}

// TestUpgradeBySignal replaces the file of the running binary and sends
// SIGUSR2.
func TestUpgradeBySignal(t *testing.T) {
	t.Parallel()
	old, newer := buildVersion(t, "1.1.1"), buildVersion(t, "2.2.2")
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 1\nupgrade_trial 0\n"), old)
	if err := os.Rename(newer, old); err != nil {
		t.Fatal(err)
	}
	pid := d.supervisor()
	_ = syscall.Kill(pid, syscall.SIGUSR2)
	eventually(t, patience, func() string {
		if s := d.status(); s.Version != "2.2.2" || s.PID == pid {
			return fmt.Sprintf("version %s, process %d", s.Version, s.PID)
		}
		return ""
	})
	d.awaitOldGone()
}

// TestUpgradeUnderLoad upgrades again and again under load with long streams and
// datagrams: nothing may be refused, reset, lost or leaked.
func TestUpgradeUnderLoad(t *testing.T) {
	p, ppm, origin := newMixedPorts(t), port(t), newUDPOrigin(t, "127.0.0.1:0")
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\nupgrade_old 16\ntimeouts 1 1 30 3\n")+
		fmt.Sprintf("udppm %d 127.0.0.1 %d\n", ppm, origin.port()))
	upgrades := 20
	if testing.Short() {
		upgrades = 5
	}
	if n := os.Getenv("E2E_UPGRADES"); n != "" {
		fmt.Sscan(n, &upgrades)
	}
	first := openFDs(t, d.supervisor())
	sockets := listeners(p.proxy)
	l, datagrams := startMixed(t, p, 2), startUDPLoad(t, ppm, 10, 10*time.Millisecond)
	for range upgrades {
		// The streams of each round end in the next generation but one.
		list := startStreams(t, p, 6)
		d.upgrade()
		if now := listeners(p.proxy); !slices.Equal(now, sockets) {
			t.Errorf("the listening sockets are %v instead of %v", now, sockets)
		}
		endStreams(t, list)
	}
	l.end()
	datagrams.end()
	if n := datagrams.lost.Load(); n > 0 {
		t.Errorf("%d datagrams are lost", n)
	}
	d.awaitOldGone()
	if text := d.printed(); strings.Contains(text, "the supervisor is gone") {
		t.Error("a supervisor has ended before its workers")
	}
	eventually(t, patience, func() string {
		if now := openFDs(t, d.supervisor()); now > first+2 {
			return fmt.Sprintf("the supervisor has %d descriptors, %d at the start:\n%s", now, first, strings.Join(fdTargets(d.supervisor()), "\n"))
		}
		return ""
	})
	udp := d.service("udppm")
	if n := d.stats().Total["accepted"] - udp["accepted"]; n != uint64(l.made.Load())+uint64(6*upgrades) {
		t.Errorf("%d sessions were counted, %d made", n, l.made.Load()+int64(6*upgrades))
	}
	if want := uint64(datagrams.sent.Load()); udp["datagrams_in"] != want || udp["datagrams_out"] != want {
		t.Errorf("%d datagrams were sent, counters %v", want, udp)
	}
}

// halfTunnel connects and sends half a request: a session that cannot move.
func halfTunnel(t *testing.T, proxy int) net.Conn {
	t.Helper()
	c := dial(t, proxy)
	if _, err := io.WriteString(c, "CONNECT 127.0.0.1:"); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestUpgradeGenerations lets old generations live on by sessions that cannot
// move: they are listed, bounded and ended at drain_timeout.
func TestUpgradeGenerations(t *testing.T) {
	t.Parallel()
	p := newMixedPorts(t)
	d := startUpgradable(t, mixedConfig(p, "workers 2\nupgrade_trial 0\ndrain_timeout 12\n"))
	first := halfTunnel(t, p.proxy)
	d.awaitOpen(1)
	d.upgrade()
	halfTunnel(t, p.proxy)
	d.awaitOpen(2)
	d.upgrade()
	olds := d.status().OldGenerations
	if len(olds) != 2 {
		t.Errorf("%d old generations are listed", len(olds))
	}
	for _, o := range olds {
		if o.Sessions != 1 || o.LeftSec <= 0 || o.LeftSec > 12 || o.PID == 0 {
			t.Errorf("old generation: %+v", o)
		}
	}
	if _, stderr, code := d.ctl("upgrade"); code != 1 || !strings.Contains(stderr, "2 old generations") {
		t.Errorf("a third old generation: exit code %d: %s", code, stderr)
	}
	// The first handshake goes on where it began.
	fmt.Fprintf(first, "%d HTTP/1.1\r\nHost: x\r\n\r\n", p.echo)
	if b := make([]byte, 12); true {
		if _, err := io.ReadFull(first, b); err != nil || string(b) != "HTTP/1.1 200" {
			t.Errorf("the half request was answered %q, %v", b, err)
		}
	}
	d.awaitOldGone()
	d.upgrade()
	d.awaitOldGone()
}

// TestUpgradeIdentities upgrades a daemon without root, and one whose workers
// have another user than its own.
func TestUpgradeIdentities(t *testing.T) {
	t.Parallel()
	needRoot(t)
	unprivileged := []string{need(t, "setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", daemonBin}
	for name, c := range map[string]struct {
		config  string
		command []string
		uids    [2]string // of the supervisor and of a worker
	}{
		"without root": {"", unprivileged, [2]string{"65534", "65534"}},
		"setuid":       {"setgid 65534\nsetuid 65534\n", []string{daemonBin}, [2]string{"0", "65534"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMixedPorts(t)
			d := newDaemon(t, "").shared()
			d.startUpgradable(mixedConfig(p, "workers 2\nupgrade_trial 0\n"+c.config), c.command...)
			load := startMixed(t, p, 1)
			for range 3 {
				streams := startStreams(t, p, 3)
				d.upgrade()
				endStreams(t, streams)
				d.awaitOldGone()
			}
			load.end()
			for i, pid := range []int{d.supervisor(), d.worker(0).PID} {
				if uid, _, _ := strings.Cut(identity(t, pid, "Uid"), " "); uid != c.uids[i] {
					t.Errorf("process %d runs as %s instead of %s", pid, uid, c.uids[i])
				}
			}
		})
	}
}

// TestUpgradeBinaryOfOthers expects that the owner of the control socket, who
// may control the daemon, cannot have it run a program of his.
func TestUpgradeBinaryOfOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	setpriv := need(t, "setpriv")
	d := newDaemon(t, "").shared()
	text := fmt.Sprintf("control %s 0600 65534\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", d.socket, port(t))
	if err := os.WriteFile(d.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d.launch()
	d.await()
	ctl := []string{"--reuid=65534", "--regid=65534", "--clear-groups", ctlBin, "-s", d.socket, "upgrade", "--trial", "0"}
	if _, stderr, code := command(t, setpriv, append(ctl, "--binary", "/bin/true")...); code != 1 || !strings.Contains(stderr, "only root and the daemon's user") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestUpgradeUnixSocket upgrades a daemon with a service at a Unix socket, whose
// file has to stay, and to be removed at the end.
func TestUpgradeUnixSocket(t *testing.T) {
	t.Parallel()
	echo := echoOrigin(t)
	d := newDaemon(t, "")
	path := filepath.Join(d.dir, "s")
	d.startUpgradable(fmt.Sprintf("workers 2\nupgrade_trial 0\nauth none\ntcppm -iunix:%s 1 127.0.0.1 %d\n", path, echo), daemonBin)
	for range 3 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		mustPing(t, c)
		d.upgrade()
		mustPing(t, c)
		c.Close()
		d.awaitOldGone()
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mustPing(t, c)
	c.Close()
	_ = syscall.Kill(d.supervisor(), syscall.SIGTERM)
	eventually(t, patience, func() string {
		if _, err := os.Lstat(path); err == nil {
			return "the socket's file is left behind"
		}
		return ""
	})
}
