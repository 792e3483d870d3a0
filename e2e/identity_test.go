package e2e

import (
	"fmt"
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
