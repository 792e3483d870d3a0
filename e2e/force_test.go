package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"3proxyd/ipc"
)

// connectAs opens a CONNECT tunnel as a user with the password "pw".
func connectAs(t *testing.T, proxy, target int, user string) net.Conn {
	t.Helper()
	c := dial(t, proxy)
	auth := map[string]string{"ann": "YW5uOnB3", "bob": "Ym9iOnB3"}[user]
	fmt.Fprintf(c, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n", target, auth)
	readHead(t, c, "HTTP/1.1 200 ")
	return c
}

// ended waits until a connection ends; it may not take longer than a second.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Error("the session goes on with data")
	} else if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the session goes on")
	}
}

// TestForce removes a user: with force only that user's sessions end, without
// it they go on.
func TestForce(t *testing.T) {
	t.Parallel()
	echo, proxy, socks := echoOrigin(t), port(t), port(t)
	config := func(force, users, rule string) string {
		return fmt.Sprintf("workers 2\nlog %%s/access.log\nlogformat \"L%%%%E %%%%U\"\nusers %s\nauth strong\n%s\n%s\ninternal 127.0.0.1\nproxy -p%d\nflush\nauth none\nsocks -p%d\n",
			users, rule, force, proxy, socks)
	}
	d := newDaemon(t, "")
	write := func(force, users, rule string) { d.write(fmt.Sprintf(config(force, users, rule), d.dir)) }
	both := "ann:CL:pw bob:CL:pw"
	write("noforce", both, "allow ann,bob")
	d.launch()
	d.await()
	open := func(user string) (list []net.Conn) {
		for range 6 {
			c := connectAs(t, proxy, echo, user)
			mustPing(t, c)
			list = append(list, c)
		}
		return list
	}
	all := func(list []net.Conn, check func(*testing.T, net.Conn)) {
		for _, c := range list {
			check(t, c)
		}
	}
	reload := func(args ...string) {
		if _, stderr, code := d.ctl(append([]string{"reload"}, args...)...); code != 0 {
			t.Fatalf("reload: %s", stderr)
		}
	}
	ann, bob := open("ann"), open("bob")
	// Sessions of a draining worker are checked as well.
	if _, stderr, code := d.ctl("drain", "--worker", "0"); code != 0 {
		t.Fatal(stderr)
	}
	write("noforce", "ann:CL:pw", "allow ann,bob")
	reload()
	all(bob, mustPing)
	write("force", both, "allow ann,bob")
	reload()
	all(bob, mustPing)
	all(ann, mustPing)
	write("force", "ann:CL:pw", "allow ann,bob")
	reload()
	all(bob, ended)
	all(ann, mustPing)
	if n := d.service("proxy")["ended_by_rules"]; n != 6 {
		t.Errorf("%d sessions were counted as ended", n)
	}
	// The request of --force needs no command; a rule counts as well as a user.
	write("noforce", both, "allow ann,bob")
	reload()
	bob = open("bob")
	write("noforce", both, "allow bob")
	reload("--force")
	all(ann, ended)
	all(bob, mustPing)
	// A new password ends the sessions of the old one.
	write("noforce", "ann:CL:pw bob:CL:other", "allow bob")
	reload("--force")
	all(bob, ended)
	eventually(t, patience, func() string {
		data, _ := os.ReadFile(d.dir + "/access.log")
		codes := map[string]int{}
		for line := range strings.Lines(string(data)) {
			codes[strings.TrimSpace(line)]++
		}
		if codes["00005 bob"] != 6 || codes["00003 ann"] != 6 || codes["00006 bob"] != 6 || len(codes) != 3 {
			return fmt.Sprint(codes)
		}
		return ""
	})
}

// TestForceOther checks sessions of other kinds: of a service that is gone, one
// that is being reached, an HTTP client between requests.
func TestForceOther(t *testing.T) {
	t.Parallel()
	o, echo := newOrigin(t, false), echoOrigin(t)
	ppm, proxy := port(t), port(t)
	config := func(more, rule string) string {
		return fmt.Sprintf("workers 1\nauth iponly\nforce\ninternal 127.0.0.1\nallow *\nsocks -p%d\n%sflush\n%s\nproxy -p%d\n", port(t), more, rule, proxy)
	}
	d := start(t, config(fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", ppm, echo), "allow *"))
	gone := dial(t, ppm)
	mustPing(t, gone)
	idle := dial(t, proxy)
	get := func() {
		fmt.Fprintf(idle, "GET %s/x HTTP/1.1\r\nHost: x\r\n\r\n", o.URL)
	}
	get()
	readHead(t, idle, "HTTP/1.1 200 ")
	if _, err := idle.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	d.write(config("", "deny *"))
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatal(stderr)
	}
	ended(t, gone)
	get()
	readHead(t, idle, "HTTP/1.1 403 ")
}

// TestDryRun expects a plan, and that nothing is touched.
func TestDryRun(t *testing.T) {
	t.Parallel()
	echo, kept, gone, added, taken := echoOrigin(t), port(t), port(t), port(t), port(t)
	base := fmt.Sprintf("workers 1\ninternal 127.0.0.1\nauth iponly\nusers ann:CL:1 bob:CL:2\nallow * 127.0.0.1\nmaxconn 10\ntcppm %d 127.0.0.1 %d\n", kept, echo)
	d := start(t, base+fmt.Sprintf("socks -p%d\n", gone))
	out, stderr, code := d.ctl("reload", "--dry-run")
	if code != 0 || !strings.Contains(out, "would change nothing") {
		t.Errorf("without a change: %d %s%s", code, out, stderr)
	}
	before := listeners(kept)
	d.write(fmt.Sprintf("workers 2\ninternal 127.0.0.1\nauth iponly\nusers ann:CL:secret cid:CL:2\nallow * 127.0.0.1\ndeny * 10.0.0.0/8\nmaxconn 20\ntcppm %d 127.0.0.1 %d\nlog %s/new.log\nproxy -p%d\n", kept, echo, d.dir, added))
	plan := ask[ipc.ReloadPlan](d, "reload", "--dry-run")
	id := fmt.Sprintf("tcppm@127.0.0.1:%d", kept)
	if !plan.Changed || !slices.Equal(plan.Added, []string{fmt.Sprintf("proxy@127.0.0.1:%d", added)}) ||
		!slices.Equal(plan.Removed, []string{fmt.Sprintf("socks@127.0.0.1:%d", gone)}) || len(plan.Services) != 1 {
		t.Fatalf("plan: %+v", plan)
	}
	want := ipc.ServiceChange{ID: id, Settings: []ipc.Change{{Setting: "maxconn", Before: "10", After: "20"}}, RulesAdded: []string{"deny * 10.0.0.0-10.255.255.255"}}
	if got := plan.Services[0]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("change: %+v instead of %+v", got, want)
	}
	if u := plan.Users; !slices.Equal(u.Added, []string{"cid"}) || !slices.Equal(u.Removed, []string{"bob"}) || !slices.Equal(u.Changed, []string{"ann"}) {
		t.Errorf("users: %+v", u)
	}
	out, _, _ = d.ctl("reload", "--dry-run")
	for _, line := range []string{"added proxy@", "removed socks@", "changed tcppm@", "maxconn: 10 → 20", "+ deny * 10.0.0.0-10.255.255.255",
		"workers: 1 → 2", "users added: cid", "users removed: bob", "users with another password: ann"} {
		if !strings.Contains(out, line) {
			t.Errorf("the plan does not say %q:\n%s", line, out)
		}
	}
	if strings.Contains(out, "secret") {
		t.Errorf("a password is shown:\n%s", out)
	}
	other := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", taken))
	for _, bad := range []struct{ text, want string }{
		{fmt.Sprintf("socks -p%d\n", taken), ":9:1: error: socks: 127.0.0.1"},
		{"log /nonexistent/log\nsocks -p1\n", ":9:5: error: log: "},
		{"log /tmp\nsocks -p1\n", ":9:5: error: log: "},
		{"include gone\n", ":9:9: error: include"},
		{"cpus 4000\n", ":9:1: error: cpus"},
	} {
		d.write(base + bad.text)
		out, stderr, code := d.ctl("reload", "--dry-run")
		if code != 1 || !strings.Contains(stderr, d.config+bad.want) {
			t.Errorf("%s: exit code %d: %s%s", bad.text, code, out, stderr)
		}
	}
	_ = other
	d.write(base + fmt.Sprintf("socks -p%d -olSO_REUSEPORT=0\n", gone))
	if warnings := fmt.Sprint(ask[ipc.ReloadPlan](d, "reload", "--dry-run").Warnings); !strings.Contains(warnings, "SO_REUSEPORT takes effect when") {
		t.Errorf("warnings of an option that stays: %v", warnings)
	}
	if s := d.status(); s.Generation != 1 || s.LastReload != nil || len(s.Workers) != 1 {
		t.Errorf("status after dry runs: %+v", s)
	}
	if now := listeners(kept); !slices.Equal(now, before) || listens(added) {
		t.Error("sockets have changed")
	}
	if _, err := os.Stat(d.dir + "/new.log"); err == nil {
		t.Error("a log was made")
	}
}

// TestForceOldGeneration takes a user away whose request a replaced daemon still
// answers: it is listed, and ended by a reload with force only.
func TestForceOldGeneration(t *testing.T) {
	t.Parallel()
	answering := tcpOrigin(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1<<10))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		time.Sleep(time.Minute)
	})
	proxy := port(t)
	config := func(users string) string {
		return fmt.Sprintf("workers 2\nupgrade_trial 0\nusers %s\nauth strong\nallow *\ninternal 127.0.0.1\nproxy -p%d\n", users, proxy)
	}
	d := startUpgradable(t, config("ann:CL:pw bob:CL:pw"))
	get := func(auth string) net.Conn {
		c := dial(t, proxy)
		fmt.Fprintf(c, "GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n", answering, auth)
		readHead(t, c, "HTTP/1.1 200 ")
		return c
	}
	ann, bob := get("YW5uOnB3"), get("Ym9iOnB3")
	old := d.supervisor()
	d.upgrade()
	sessions := d.conns()
	for _, s := range sessions {
		if s.OldPID != old {
			t.Errorf("session %+v is not of the old generation, process %d", s, old)
		}
	}
	if len(sessions) != 2 {
		t.Errorf("sessions: %+v", sessions)
	}
	if out, _, _ := d.ctl("conns"); strings.Count(out, fmt.Sprintf("of pid %d", old)) != 2 {
		t.Errorf("conns: %s", out)
	}
	d.write("pidfile " + d.pidFile() + "\n" + config("ann:CL:pw"))
	if out, stderr, code := d.ctl("reload", "--force"); code != 0 || strings.Contains(out, "warning") {
		t.Errorf("reload: %d: %s%s", code, out, stderr)
	}
	body := make([]byte, 3)
	_ = bob.SetReadDeadline(time.Now().Add(patience))
	_, _ = io.ReadFull(bob, body)
	ended(t, bob)
	bob.Close()
	eventually(t, patience, func() string {
		if n := len(d.conns()); n != 1 {
			return fmt.Sprintf("%d sessions are left", n)
		}
		return ""
	})
	ann.Close()
	d.awaitOldGone()
}

// TestForceUserBack takes a user away whose sessions move between workers
// meanwhile, and puts him back: a reload with force ends those of another password
// only.
func TestForceUserBack(t *testing.T) {
	t.Parallel()
	echo, proxy := echoOrigin(t), port(t)
	d := newDaemon(t, "")
	reload := func(users string, args ...string) {
		t.Helper()
		d.write(fmt.Sprintf("workers 2\nusers %s\nauth strong\nallow ann,bob\ninternal 127.0.0.1\nproxy -p%d\n", users, proxy))
		if _, stderr, code := d.ctl(append([]string{"reload"}, args...)...); code != 0 {
			t.Fatalf("reload: %s", stderr)
		}
	}
	d.write(fmt.Sprintf("workers 2\nusers ann:CL:pw bob:CL:pw\nauth strong\nallow ann,bob\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	d.launch()
	d.await()
	var ann, bob []net.Conn
	for range 4 {
		ann, bob = append(ann, connectAs(t, proxy, echo, "ann")), append(bob, connectAs(t, proxy, echo, "bob"))
	}
	reload("ann:CL:pw")
	for range 2 {
		for worker := range 2 {
			if _, stderr, code := d.ctl("drain", "--worker", fmt.Sprint(worker)); code != 0 {
				t.Fatal(stderr)
			}
			for _, c := range slices.Concat(ann, bob) {
				mustPing(t, c)
			}
		}
	}
	eventually(t, patience, func() string {
		if n := len(children(d.pid())); n != 2 {
			return fmt.Sprintf("%d workers", n)
		}
		return ""
	})
	reload("ann:CL:pw bob:CL:pw", "--force")
	for _, c := range slices.Concat(ann, bob) {
		mustPing(t, c)
	}
	reload("ann:CL:pw bob:CL:other", "--force")
	for i := range ann {
		mustPing(t, ann[i])
		ended(t, bob[i])
	}
}
