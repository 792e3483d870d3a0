package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inNamespace runs the calling test once more in network and mount namespaces
// of its own, where the default ports and paths are free, and returns true
// there. Elsewhere it passes the outcome on and returns false. Where there are
// no namespaces the test goes on in the machine's, if free.
func inNamespace(t *testing.T, free func() string) bool {
	t.Helper()
	const marker = "E2E_NAMESPACE"
	if os.Getenv(marker) != "" {
		return true
	}
	const setup = `ip link set lo up && mount -t tmpfs tmpfs /run && `
	unshare := []string{"-n", "-m"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "-r")
	}
	script := func(then string) *exec.Cmd {
		return exec.Command("unshare", append(unshare, "sh", "-c", setup+then)...)
	}
	if out, err := script("true").CombinedOutput(); err != nil {
		if taken := free(); taken != "" {
			skip(t, "no namespaces (%s), and %s", strings.TrimSpace(string(out)), taken)
		}
		return true
	}
	cmd := script(`exec "$0" -test.run "^$1\$" -test.v`)
	cmd.Args = append(cmd.Args, os.Args[0], t.Name())
	cmd.Env = append(os.Environ(), marker+"=1", reuseEnv+"="+binDir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a namespace: %v\n%s", err, out)
	}
	t.Logf("in a namespace:\n%s", out)
	return false
}

// TestDefaultStart starts the daemon without a configuration, as a new user
// does, and tries the line it prints.
func TestDefaultStart(t *testing.T) {
	need(t, "curl")
	if _, err := os.Stat("/etc/3proxy/3proxy.cfg"); err == nil {
		skip(t, "/etc/3proxy/3proxy.cfg exists")
	}
	free := func() string {
		for _, p := range []string{"3128", "1080"} {
			l, err := net.Listen("tcp4", "127.0.0.1:"+p)
			if err != nil {
				return err.Error()
			}
			l.Close()
		}
		return ""
	}
	if !inNamespace(t, free) {
		return
	}
	d := &daemon{t: t, exited: make(chan struct{})}
	d.run(exec.Command(daemonBin))
	eventually(t, patience, func() string {
		if !strings.Contains(d.out.String(), "\nTry: ") {
			return "the daemon has not said what to try"
		}
		return ""
	})
	text := d.out.String()
	for _, want := range []string{
		`built-in default`, `proxy +127\.0\.0\.1:3128`, `socks +127\.0\.0\.1:1080`, `control socket: /`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the start message has no %s:\n%s", want, text)
		}
	}
	d.socket = regexp.MustCompile(`control socket: (.*)`).FindStringSubmatch(text)[1]

	o := newOrigin(t, false)
	try := regexp.MustCompile(`Try: curl (.*) http://example.com/`).FindStringSubmatch(text)
	if try == nil {
		t.Fatalf("there is no line to try:\n%s", text)
	}
	if got := curl(t, append(strings.Fields(try[1]), o.URL)...); got != "hello\n" {
		t.Errorf("%s: %q", try[0], got)
	}
	if got := curl(t, "--socks5", "127.0.0.1:1080", o.URL); got != "hello\n" {
		t.Errorf("socks: %q", got)
	}
	// Without -s the control command finds the daemon.
	if out, stderr, code := command(t, ctlBin, "status"); code != 0 || !strings.Contains(out, "running") {
		t.Errorf("3proxyctl status: %d %s%s", code, out, stderr)
	}
	// A terminal's Ctrl-C goes to the whole group.
	_ = syscall.Kill(-d.pid(), syscall.SIGINT)
	if !d.waitExit(patience) {
		t.Fatal("Ctrl-C does not end the daemon")
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestPortTaken expects a message that names service, place and address.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	taken, free := port(t), port(t)
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", taken))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDaemon(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nproxy -p%d\nsocks -p%d\n", free, taken))
	out, code := d.fails()
	want := fmt.Sprintf("%s:5:1: error: socks: 127.0.0.1:%d is already in use", d.config, taken)
	if code != 1 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, printed %q, expected %q", code, out, want)
	}
	if listens(free) {
		t.Errorf("port %d is left open", free)
	}
	if _, err := os.Lstat(d.socket); err == nil {
		t.Error("the control socket is left behind")
	}
}

// fails runs a daemon that is expected not to start.
func (d *daemon) fails(wrap ...string) (out string, code int) {
	d.t.Helper()
	d.launch(wrap...)
	if !d.waitExit(patience) {
		d.t.Fatalf("the daemon goes on")
	}
	return d.out.String(), d.cmd.ProcessState.ExitCode()
}

// TestSecondInstance expects that a second daemon neither shares the ports nor
// takes the control socket of the first.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	p := port(t)
	config := fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", p)
	d := start(t, config)
	other := newDaemon(t, config)
	if out, code := other.fails(); code != 1 || !strings.Contains(out, fmt.Sprintf("127.0.0.1:%d is already in use", p)) {
		t.Errorf("same port: exit code %d: %s", code, out)
	}
	third := newDaemon(t, "")
	third.socket = d.socket
	third.write(fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t)))
	third.socket = third.dir + "/none"
	if out, code := third.fails(); code != 1 || !strings.Contains(out, d.socket) || !strings.Contains(out, "in use") {
		t.Errorf("same control socket: exit code %d: %s", code, out)
	}
	if st := d.status(); st.State != "running" {
		t.Errorf("the first daemon is %s", st.State)
	}
}

// TestCtrlC drains with a live session; a second Ctrl-C ends at once.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	_ = syscall.Kill(-d.pid(), syscall.SIGINT)
	eventually(t, patience, func() string {
		if !strings.Contains(d.out.String(), "Ctrl-C") {
			return "the daemon does not say that it drains"
		}
		return ""
	})
	mustPing(t, c)
	eventually(t, patience, func() string {
		if listens(ppm) {
			return "the port is still open"
		}
		return ""
	})
	if d.waitExit(700 * time.Millisecond) {
		t.Fatal("the daemon ended before its session")
	}
	_ = syscall.Kill(-d.pid(), syscall.SIGINT)
	if !d.waitExit(patience) {
		t.Fatal("a second Ctrl-C does not end the daemon")
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestDrainEnds drains a daemon whose last session ends by itself.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	if out, stderr, code := d.ctl("drain"); code != 0 {
		t.Fatalf("drain: %d %s%s", code, out, stderr)
	}
	if st := d.status(); st.State != "draining" {
		t.Errorf("the daemon is %s", st.State)
	}
	mustPing(t, c)
	c.Close()
	if !d.waitExit(patience) {
		t.Fatal("the daemon does not end with its last session")
	}
}

// TestDrainTimeout expects drain_timeout to bound a drain.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	echo, ppm := echoOrigin(t), port(t)
	d := start(t, fmt.Sprintf("drain_timeout 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\n", ppm, echo))
	c := dial(t, ppm)
	mustPing(t, c)
	begun := time.Now()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	if !d.waitExit(patience) {
		t.Fatal("the daemon goes on")
	}
	if took := time.Since(begun); took < 900*time.Millisecond || took > 4*time.Second {
		t.Errorf("the drain took %v", took)
	}
	// An end in order would look like that of the stream.
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the tunnel ended with %v", err)
	}
}

// TestPIDFile expects the file while the daemon runs, and only then.
func TestPIDFile(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "")
	path := d.dir + "/pid"
	d.write(fmt.Sprintf("pidfile %s\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", path, port(t)))
	d.launch()
	eventually(t, patience, func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		if got := strings.TrimSpace(string(data)); got != fmt.Sprint(d.pid()) {
			return "the file holds " + got
		}
		return ""
	})
	d.stop(syscall.SIGTERM)
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is left behind")
	}
}
