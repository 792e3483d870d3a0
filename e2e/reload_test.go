package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"3proxyd/ipc"
)

// TestReload adds, changes and removes services while sessions live.
func TestReload(t *testing.T) {
	t.Parallel()
	echo := echoOrigin(t)
	kept, removed, added := port(t), port(t), port(t)
	service := func(p int) string { return fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", p, echo) }
	const head = "workers 2\nauth none\ninternal 127.0.0.1\n"
	d := start(t, head+service(kept)+service(removed))
	a, b := dial(t, kept), dial(t, removed)
	mustPing(t, a)
	mustPing(t, b)
	inodes := listeners(kept)
	if len(inodes) != 2 {
		t.Errorf("%d sockets listen for 2 workers", len(inodes))
	}
	pids := []int{d.worker(0).PID, d.worker(1).PID}

	d.write(head + "maxconn 1\n" + service(kept) + service(added))
	r := ask[ipc.ReloadResult](d, "reload")
	id := func(p int) []string { return []string{fmt.Sprintf("tcppm@127.0.0.1:%d", p)} }
	if r.Generation != 2 || !r.Changed || !slices.Equal(r.Kept, id(kept)) || !slices.Equal(r.Added, id(added)) || !slices.Equal(r.Removed, id(removed)) {
		t.Errorf("reload: %+v", r)
	}
	if now := listeners(kept); !slices.Equal(now, inodes) {
		t.Errorf("the sockets of an unchanged service are %v instead of %v", now, inodes)
	}
	if listens(removed) {
		t.Error("the removed service still listens")
	}
	mustPing(t, a)
	mustPing(t, b)
	mustPing(t, dial(t, added))
	if n := d.status().Services[0].MaxConn; n != 1 {
		t.Errorf("maxconn is %d after the reload", n)
	}
	if now := []int{d.worker(0).PID, d.worker(1).PID}; !slices.Equal(now, pids) {
		t.Errorf("the workers are %v instead of %v", now, pids)
	}
	// The session of the removed service is still counted and listed.
	if n := len(d.conns()); n != 3 {
		t.Errorf("%d sessions are listed", n)
	}

	text, stderr, code := d.ctl("reload")
	if code != 0 || !strings.Contains(text, "generation 3") || !strings.Contains(text, "nothing has changed") {
		t.Errorf("a reload without a change: %d %s%s", code, text, stderr)
	}
	// The signal does the same.
	_ = d.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, patience, func() string {
		if g := d.status().Generation; g != 4 {
			return fmt.Sprintf("generation %d after SIGHUP", g)
		}
		return ""
	})
	mustPing(t, a)
}

// TestReloadRefused expects that an error leaves everything as it was and
// comes back with its place.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	echo, ppm, taken := echoOrigin(t), port(t), port(t)
	good := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo)
	d := start(t, good)
	other := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", taken))
	c := dial(t, ppm)
	mustPing(t, c)
	inodes, before := listeners(ppm), d.status()
	for _, bad := range []struct {
		text, want string
	}{
		{good + "proxxy\n", d.config + `:6:1: error: unknown command "proxxy"`},
		{good + fmt.Sprintf("socks -p%d\n", taken), d.config + ":6:1: error: "},
		{good + "include gone.cfg\n", d.config + ":6:9: error: include"},
		{good + "log /nonexistent/dir/log\nsocks\n", d.config + ":6:5: error: "},
		{"", d.config + ":1:1: error: no service"},
	} {
		d.write(bad.text)
		out, stderr, code := d.ctl("reload")
		if code != 1 || !strings.Contains(stderr, bad.want) {
			t.Errorf("exit code %d: %s%s, expected %s", code, out, stderr, bad.want)
		}
	}
	if err := os.Remove(d.config); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := d.ctl("reload"); code != 1 || !strings.Contains(stderr, d.config) {
		t.Errorf("without the file: exit code %d: %s", code, stderr)
	}
	after := d.status()
	if after.Generation != before.Generation || len(after.Services) != 1 {
		t.Errorf("status: %+v", after)
	}
	if after.LastReload == nil || after.LastReload.OK || after.LastReload.Error == "" {
		t.Errorf("last reload: %+v", after.LastReload)
	}
	if now := listeners(ppm); !slices.Equal(now, inodes) {
		t.Errorf("the sockets are %v instead of %v", now, inodes)
	}
	mustPing(t, c)
	mustPing(t, dial(t, ppm))
	d.write(good)
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Errorf("the good configuration: exit code %d: %s", code, stderr)
	}
	mustPing(t, c)
	_ = other
}

// TestReloadRules expects new rules to hold for new requests and the old ones
// for sessions that began under them.
func TestReloadRules(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	o, echo, proxy := newOrigin(t, false), echoOrigin(t), port(t)
	config := func(verb string) string {
		return fmt.Sprintf("auth iponly\n%s *\ninternal 127.0.0.1\nproxy -p%d\n", verb, proxy)
	}
	d := start(t, config("allow"))
	c := connectVia(t, proxy, echo)
	mustPing(t, c)
	via := []string{"-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), o.URL}
	for i, verb := range []string{"allow", "deny", "allow", "deny"} {
		d.write(config(verb))
		if _, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatalf("reload: %s", stderr)
		}
		want := "200"
		if verb == "deny" {
			want = "403"
		}
		if status, _ := curlStatus(via...); status != want {
			t.Errorf("reload %d: %s instead of %s", i, status, want)
		}
		mustPing(t, c)
	}
}

// TestReloadUnderLoad reloads while clients connect; none may fail.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	echo, ppm, extra := echoOrigin(t), port(t), port(t)
	base := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo)
	d := start(t, base)
	stop, done := make(chan struct{}), make(chan int)
	for range 4 {
		go func() {
			n := 0
			defer func() { done <- n }()
			for ; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := pingOnce(ppm); err != nil {
					t.Errorf("connection %d: %v", n, err)
					return
				}
			}
		}()
	}
	for i := range 20 {
		text := base
		if i%2 == 0 {
			text += fmt.Sprintf("socks -p%d\n", extra)
		}
		d.write(text)
		if _, stderr, code := d.ctl("reload"); code != 0 {
			t.Errorf("reload: %s", stderr)
		}
	}
	close(stop)
	total := 0
	for range 4 {
		total += <-done
	}
	t.Logf("%d connections during 20 reloads", total)
	if n := d.service("tcppm")["accepted"]; n != uint64(total) {
		t.Errorf("%d sessions were counted, %d made", n, total)
	}
}

// TestReloadUnixFileGone removes the file of a service's Unix socket: the next
// reload makes another, also after one that was refused.
func TestReloadUnixFileGone(t *testing.T) {
	t.Parallel()
	echo, other := echoOrigin(t), port(t)
	d := newDaemon(t, "")
	path := d.dir + "/u.sock"
	config := fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm -iunix:%s 1 127.0.0.1 %d\n", path, echo)
	d.write(config)
	d.launch()
	d.await()
	for range 3 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		d.write(config + fmt.Sprintf("log /nonexistent/log\nsocks -p%d\n", other))
		if _, _, code := d.ctl("reload"); code != 1 {
			t.Errorf("a reload without its log: exit code %d", code)
		}
		d.write(config)
		if _, stderr, code := d.ctl("reload"); code != 0 {
			t.Fatal(stderr)
		}
		for range 4 {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			mustPing(t, c)
			c.Close()
		}
	}
	d.fds = d.countFDs()
}
