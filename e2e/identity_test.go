package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// identity is the "Uid", "Gid" or "Groups" line of a process.
func identity(t *testing.T, pid int, field string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\n"+field+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(line), " ")
}

// TestSetUID runs the workers as another user, on a privileged port, reloads,
// and replaces a worker.
func TestSetUID(t *testing.T) {
	t.Parallel()
	needRoot(t)
	echo, ppm, added := echoOrigin(t), port(t), port(t)
	d := newDaemon(t, "")
	const head = "workers 1\nsetgid 65534\nsetuid 65534\nauth none\ninternal 127.0.0.1\n"
	d.write(head + fmt.Sprintf("log %s/log\ntcppm %d 127.0.0.1 %d\n", d.dir, ppm, echo))
	d.launch()
	d.await()
	check := func() {
		t.Helper()
		pid := d.worker(0).PID
		if uid, gid := identity(t, pid, "Uid"), identity(t, pid, "Gid"); uid != "65534 65534 65534 65534" || gid != uid {
			t.Errorf("the worker's user is %s, its group %s", uid, gid)
		}
		if g := identity(t, pid, "Groups"); g != "" && g != "65534" {
			t.Errorf("the worker has the groups %s", g)
		}
		if eff := identity(t, pid, "CapEff"); strings.Trim(eff, "0") != "" {
			t.Errorf("the worker has capabilities %s", eff)
		}
	}
	check()
	if uid := identity(t, d.pid(), "Uid"); uid != "0 0 0 0" {
		t.Errorf("the supervisor's user is %s", uid)
	}
	mustPing(t, dial(t, ppm))

	// The supervisor opens what the workers could not.
	d.write(head + fmt.Sprintf("log %s/log2\ntcppm %d 127.0.0.1 %d\ntcppm %d 127.0.0.1 %d\n", d.dir, ppm, echo, added, echo))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	d.fds = d.countFDs()
	mustPing(t, dial(t, added))
	if _, stderr, code := d.ctl("drain", "--worker", "0"); code != 0 {
		t.Fatalf("drain: %s", stderr)
	}
	check()
	mustPing(t, dial(t, added))
}

// TestSetUIDWithoutRoot expects a clear refusal.
func TestSetUIDWithoutRoot(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, fmt.Sprintf("setuid 12345\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t))).shared()
	var wrap []string
	if os.Geteuid() == 0 {
		wrap = []string{need(t, "setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"}
	}
	if out, code := d.fails(wrap...); code != 1 || !strings.Contains(out, "only root can change the user") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestUpgradeOtherUser upgrades to a configuration with another user for the
// workers: when the upgrade fails, when the old daemon dies in the trial, and when
// both do, the sessions go on with the daemon that is left, or the next one.
func TestUpgradeOtherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := newMixedPorts(t)
	config := func(user int) string {
		return mixedConfig(p, fmt.Sprintf("workers 2\nupgrade_trial 60\nsetgid %d\nsetuid %d\n", user, user))
	}
	d := newDaemon(t, "").shared()
	d.startUpgradable(config(65534), daemonBin)
	user := func(want string) {
		t.Helper()
		if uid, _, _ := strings.Cut(identity(t, d.worker(0).PID, "Uid"), " "); uid != want {
			t.Errorf("a worker runs as %s instead of %s", uid, want)
		}
	}
	inTrial := func(next int) (newPID int, outcome chan string, tunnels []net.Conn, load *mixedLoad) {
		t.Helper()
		d.write("pidfile " + d.pidFile() + "\n" + config(next))
		before := connectVia(t, p.proxy, p.echo)
		mustPing(t, before)
		newPID, outcome = d.inTrial()
		during := connectVia(t, p.proxy, p.echo)
		mustPing(t, during)
		return newPID, outcome, []net.Conn{before, during}, startMixed(t, p, 1)
	}
	end := func(tunnels []net.Conn, load *mixedLoad) {
		t.Helper()
		d.awaitOldGone()
		load.end()
		for _, c := range tunnels {
			mustPing(t, c)
			c.Close()
		}
		d.awaitOpen(0)
	}

	newPID, outcome, tunnels, load := inTrial(65533)
	killAndAwait(t, newPID)
	d.awaitOutcome(outcome, "killed by signal 9")
	end(tunnels, load)
	user("65534")

	old := d.supervisor()
	newPID, _, tunnels, load = inTrial(65533)
	killAndAwait(t, old)
	eventually(t, patience, func() string {
		if now := readPID(d.pidFile()); now != newPID {
			return fmt.Sprintf("the pidfile names %d instead of %d", now, newPID)
		}
		return ""
	})
	end(tunnels, load)
	user("65533")

	newPID, _, tunnels, load = inTrial(65534)
	killAndAwait(t, d.supervisor(), newPID)
	d.startUpgradable(config(65534), daemonBin)
	end(tunnels, load)
	user("65534")
}
