package e2e

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// withFDs returns the command line that runs a daemon with a limit of
// descriptors it cannot raise.
func withFDs(t *testing.T, n int) []string {
	t.Helper()
	limit := []string{need(t, "prlimit"), fmt.Sprintf("--nofile=%d:%d", n, n)}
	if os.Geteuid() != 0 {
		return limit
	}
	// Root may raise hard limits.
	return append([]string{need(t, "setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups"}, limit...)
}

// shared lets the user that withFDs runs the daemon as make files in its
// directory.
func (d *daemon) shared() *daemon {
	d.t.Helper()
	if err := os.Chmod(d.dir, 0o777); err != nil {
		d.t.Fatal(err)
	}
	return d
}

// await waits until the daemon answers.
func (d *daemon) await() {
	d.t.Helper()
	eventually(d.t, patience, func() string {
		if d.hasExited() {
			d.t.Fatalf("the daemon has ended:\n%s", d.out.String())
		}
		if _, _, code := d.ctl("status"); code != 0 {
			return "no answer at the control socket"
		}
		return ""
	})
	d.fds = d.countFDs()
}

// TestShortfall expects the exact numbers of a limit that is too low.
func TestShortfall(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nmaxconn 1000\nsocks -p%d\n", port(t))).shared()
	d.launch(withFDs(t, 256)...)
	d.await()
	text := regexp.MustCompile(`a process needs (\d+) descriptors for (\d+) connections, but only (\d+) are granted, (\d+) too few: set LimitNOFILE=(\d+)`).
		FindStringSubmatch(d.out.String())
	if text == nil {
		t.Fatalf("the shortfall is not named:\n%s", d.out.String())
	}
	n := make([]int, 6)
	for i := range n {
		n[i], _ = strconv.Atoi(text[i])
	}
	if n[1] < 2000 || n[2] != 1000 || n[3] != 256 || n[4] != n[1]-256 || n[5] != n[1] {
		t.Errorf("the numbers do not agree: %s", text[0])
	}
	st := d.status()
	if st.Limits.FDsNeeded != n[1] || st.Limits.FDsGranted != 256 {
		t.Errorf("status: %+v", st.Limits)
	}
	if !strings.Contains(strings.Join(st.Warnings, "\n"), text[0]) {
		t.Errorf("the status has no such warning: %q", st.Warnings)
	}
}

// TestDefaultMaxConn expects the limit that the descriptors allow where none
// is configured.
func TestDefaultMaxConn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t))).shared()
	d.launch(withFDs(t, 1000)...)
	d.await()
	n := d.status().Services[0].MaxConn
	if n < 100 || n > 500 {
		t.Errorf("maxconn is %d with 1000 descriptors", n)
	}
	if !strings.Contains(d.out.String(), fmt.Sprintf("maxconn %d", n)) {
		t.Errorf("the start message does not name it:\n%s", d.out.String())
	}
}

// TestDescriptorsRunOut opens more connections than there are descriptors for:
// accepting pauses without spinning, and goes on when some have closed.
func TestDescriptorsRunOut(t *testing.T) {
	echo, ppm := echoOrigin(t), port(t)
	d := newDaemon(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nmaxconn 1000\ntcppm %d 127.0.0.1 %d\n", ppm, echo)).shared()
	d.launch(withFDs(t, 256)...)
	d.await()
	worker := d.worker(0).PID
	const n = 300
	done := make(chan error, n)
	release := make(chan struct{})
	for range n {
		c := dial(t, ppm)
		go func() {
			err := ping(c)
			if err == nil {
				<-release
			}
			c.Close()
			done <- err
		}()
	}
	eventually(t, patience, func() string {
		if d.stats().Workers[0].Loop["fd_pauses"] == 0 {
			return "no pause was counted"
		}
		return ""
	})
	before := cpuTime(t, worker)
	time.Sleep(time.Second)
	used := cpuTime(t, worker) - before
	open := d.service("tcppm")["open"]
	t.Logf("%d of %d sessions with 256 descriptors; %v of CPU in a second of pause", open, n, used)
	if open < 50 || open > 127 {
		t.Errorf("%d sessions are open", open)
	}
	if used > 10*time.Millisecond {
		t.Errorf("a paused worker used %v of CPU in a second", used)
	}
	close(release)
	for range n {
		if err := <-done; err != nil {
			t.Fatalf("a client that had to wait: %v", err)
		}
	}
	if w := d.worker(0); w.PID != worker || w.Restarts != 0 {
		t.Errorf("the worker was replaced: %+v", w)
	}
}

// TestMaxConnExact offers more connections than maxconn to two workers.
func TestMaxConnExact(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	const limit, n = 10, 60
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nmaxconn %d\ntcppm %d 127.0.0.1 %d\n", limit, ppm, echo))
	served := make(chan net.Conn, n)
	failed := make(chan error, n)
	for range n {
		c := dial(t, ppm)
		go func() {
			if err := ping(c); err != nil {
				failed <- err
				return
			}
			served <- c
		}()
	}
	var open []net.Conn
	for range limit {
		open = append(open, <-served)
	}
	select {
	case <-served:
		t.Errorf("more than %d were served", limit)
	case err := <-failed:
		t.Errorf("a client failed: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if now := d.service("tcppm")["open"]; now != limit {
		t.Errorf("%d sessions are open", now)
	}
	if d.service("tcppm")["maxconn_pauses"] == 0 {
		t.Error("no pause was counted")
	}
	// One in, one out: at no time more than the limit.
	for range n - limit {
		open[0].Close()
		open = open[1:]
		select {
		case c := <-served:
			open = append(open, c)
		case err := <-failed:
			t.Fatalf("a client that had to wait: %v", err)
		}
		if now := d.service("tcppm")["open"]; now > limit {
			t.Fatalf("%d sessions are open", now)
		}
	}
	for _, c := range open {
		c.Close()
	}
}

// TestNetworkLimits makes the kernel's limits of a network namespace too low
// and expects the exact numbers, from check and from the daemon.
func TestNetworkLimits(t *testing.T) {
	if !inNamespace(t, func() string { return "the machine's own limits are not to be changed" }) {
		return
	}
	for path, value := range map[string]string{
		"/proc/sys/net/core/somaxconn":           "128",
		"/proc/sys/net/ipv4/ip_local_port_range": "40000 40099",
	} {
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			skip(t, "%v", err)
		}
	}
	d := newDaemon(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nbacklog 1000\nmaxconn 500\nsocks -p%d\n", port(t)))
	_, checked, code := command(t, daemonBin, "check", "-c", d.config)
	if code != 0 {
		t.Errorf("check ends with %d", code)
	}
	d.launch()
	d.await()
	for _, want := range []string{
		"a backlog of 1000 is cut to 128 by the kernel: set `sysctl net.core.somaxconn=1000`",
		"a maxconn of 500 in all exceeds the 100 local ports there are for connections to one server address and port, by 400",
	} {
		for name, text := range map[string]string{"check": checked, "the daemon": d.out.String(), "status": strings.Join(d.status().Warnings, "\n")} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, text)
			}
		}
	}
	if s := d.status(); s.Services[0].Backlog != 128 || s.Limits.LocalPorts != 100 {
		t.Errorf("status: %+v", s)
	}
}
