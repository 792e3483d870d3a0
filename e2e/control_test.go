package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"3proxyd/ipc"
)

// TestStatusAndStats compares text and JSON of the commands that ask.
func TestStatusAndStats(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	o := newOrigin(t, false)
	proxy, socks := port(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nmaxconn 33\nproxy -p%d\nsocks -p%d\n", proxy, socks))
	curl(t, "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), o.URL+"/bytes/100000")
	curl(t, "--socks5", fmt.Sprintf("127.0.0.1:%d", socks), o.URL)

	st := d.status()
	if st.API != ipc.APIVersion || st.PID != d.pid() || st.Generation != 1 || st.State != "running" || st.Config != d.config {
		t.Errorf("status: %+v", st)
	}
	if len(st.Workers) != 2 || len(st.Services) != 2 || st.Services[0].MaxConn != 33 {
		t.Errorf("status: %+v", st)
	}
	for _, w := range st.Workers {
		if w.State != "running" || !alive(w.PID) {
			t.Errorf("worker %+v", w)
		}
		if got := affinity(t, w.PID); got != fmt.Sprint(w.CPU) {
			t.Errorf("worker %d may run on CPUs %s, not only on %d", w.Slot, got, w.CPU)
		}
	}
	text, _, code := d.ctl("status")
	for _, want := range []string{fmt.Sprint(d.pid()), d.config, fmt.Sprintf("127.0.0.1:%d", proxy), "33", "running"} {
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("no %q in the status:\n%s", want, text)
		}
	}

	eventually(t, patience, func() string {
		c := d.service("proxy")
		if c["accepted"] != 1 || c["requests"] != 1 || c["bytes_in"] < 100000 || c["bytes_out"] == 0 || c["open"] != 0 {
			return fmt.Sprintf("proxy: %v", c)
		}
		return ""
	})
	stats := d.stats()
	var sum uint64
	for _, w := range stats.Workers {
		sum += w.Counters["bytes_in"]
	}
	if sum != stats.Total["bytes_in"] || sum == 0 {
		t.Errorf("the workers' bytes are %d, the total %d", sum, stats.Total["bytes_in"])
	}
	text, _, code = d.ctl("stats")
	if code != 0 || !strings.Contains(text, fmt.Sprintf("proxy@127.0.0.1:%d", proxy)) || !strings.Contains(text, "KiB") {
		t.Errorf("stats:\n%s", text)
	}
}

// affinity is the list of CPUs a process may run on.
func affinity(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestConns lists live sessions of every service.
func TestConns(t *testing.T) {
	t.Parallel()
	echo := echoOrigin(t)
	proxy, ppm := port(t), port(t)
	d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\nproxy -p%d\ntcppm %d 127.0.0.1 %d\n", proxy, ppm, echo))
	a, b := connectVia(t, proxy, echo), dial(t, ppm)
	mustPing(t, a)
	mustPing(t, b)
	mustPing(t, b)
	list := d.conns()
	if len(list) != 2 {
		t.Fatalf("%d sessions: %+v", len(list), list)
	}
	slices.SortFunc(list, func(x, y ipc.Session) int { return strings.Compare(x.Service, y.Service) })
	for i, want := range []struct {
		service, client string
		bytes           uint64
	}{
		{fmt.Sprintf("proxy@127.0.0.1:%d", proxy), a.LocalAddr().String(), 4},
		{fmt.Sprintf("tcppm@127.0.0.1:%d", ppm), b.LocalAddr().String(), 8},
	} {
		s := list[i]
		target := fmt.Sprintf("127.0.0.1:%d", echo)
		if s.Service != want.service || s.Client != want.client || s.Target != target || s.Server != target ||
			s.State != "relay" || s.BytesIn != want.bytes || s.BytesOut != want.bytes || s.AgeSec < 0 {
			t.Errorf("%+v", s)
		}
	}
	text, _, code := d.ctl("conns")
	if code != 0 || strings.Count(text, "relay") != 2 || !strings.Contains(text, a.LocalAddr().String()) {
		t.Errorf("conns:\n%s", text)
	}
	a.Close()
	b.Close()
	eventually(t, patience, func() string {
		if n := len(d.conns()); n != 0 {
			return fmt.Sprintf("%d sessions are left", n)
		}
		return ""
	})
}

// TestControlAPI asks without 3proxyctl.
func TestControlAPI(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	d := start(t, fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t)))
	for _, c := range []struct {
		method, path, body string
		status             string
	}{
		{"GET", "/v1/status", "", "200"},
		{"GET", "/v1/stats", "", "200"},
		{"GET", "/v1/conns", "", "200"},
		{"GET", "/v2/status", "", "404"},
		{"GET", "/", "", "404"},
		{"POST", "/v1/status", "", "405"},
		{"GET", "/v1/reload", "", "405"},
		{"POST", "/v1/drain", "nonsense", "400"},
		{"POST", "/v1/drain", `{"worker":99}`, "409"},
		{"POST", "/v1/drain", `{"timeout_seconds":-1}`, "400"},
		{"POST", "/v1/reload", "", "200"},
	} {
		args := []string{"--unix-socket", d.socket, "-X", c.method, "http://3proxyd" + c.path}
		if c.body != "" {
			args = append(args, "-d", c.body)
		}
		if status, _ := curlStatus(args...); status != c.status {
			t.Errorf("%s %s %s: %s instead of %s", c.method, c.path, c.body, status, c.status)
		}
	}
}

// TestControlAccess expects the file's mode and the peer's user to count.
func TestControlAccess(t *testing.T) {
	t.Parallel()
	needRoot(t)
	setpriv := need(t, "setpriv")
	d := newDaemon(t, "")
	other := func(args ...string) (string, int) {
		args = append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", ctlBin, "-s", d.socket}, args...)
		out, stderr, code := command(t, setpriv, args...)
		return out + stderr, code
	}
	if err := os.Chmod(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := port(t)
	d.write(fmt.Sprintf("auth none\ninternal 127.0.0.1\nsocks -p%d\n", p))
	d.launch()
	d.await()
	if info, err := os.Stat(d.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket has mode %v, %v", info.Mode(), err)
	}
	if out, code := other("status"); code == 0 {
		t.Errorf("another user may ask: %s", out)
	}
	d.stop(syscall.SIGTERM)

	open := newDaemon(t, "")
	if err := os.Chmod(open.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("control %s 0666\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", open.socket, p)
	if err := os.WriteFile(open.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d = open
	d.launch()
	d.await()
	if out, code := other("status"); code != 0 {
		t.Errorf("mode 0666, but another user may not ask: %s", out)
	}
	for _, change := range []string{"reload", "drain"} {
		if out, code := other(change); code != 1 || !strings.Contains(out, "only root") {
			t.Errorf("another user's %s ends with %d: %s", change, code, out)
		}
	}
	if g := d.status().Generation; g != 1 {
		t.Errorf("generation %d", g)
	}
}

// TestDrainWorker replaces one worker: its tunnel goes on in the successor, a
// handshake that is not complete where it is.
func TestDrainWorker(t *testing.T) {
	t.Parallel()
	echo, ppm, socks := echoOrigin(t), port(t), port(t)
	d := start(t, fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nsocks -p%d\n", ppm, echo, socks))
	c := dial(t, ppm)
	mustPing(t, c)
	half := func() net.Conn {
		h := dial(t, socks)
		if _, err := h.Write([]byte{5}); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, func() string {
			if n := d.service("socks")["open"]; n != 1 {
				return fmt.Sprintf("%d sessions of socks", n)
			}
			return ""
		})
		return h
	}
	h := half()
	old := d.worker(0).PID
	if out, stderr, code := d.ctl("drain", "--worker", "0"); code != 0 {
		t.Fatalf("drain: %d %s%s", code, out, stderr)
	}
	if now := d.worker(0); now.PID == old || now.State != "running" {
		t.Errorf("worker 0 is %+v", now)
	}
	mustPing(t, c)
	mustPing(t, dial(t, ppm))
	if !alive(old) {
		t.Fatal("the drained worker ended with a session open")
	}
	if n := d.service("tcppm")["open"]; n != 2 {
		t.Errorf("%d sessions are open", n)
	}
	h.Close()
	gone := func(what string) {
		t.Helper()
		eventually(t, patience, func() string {
			if alive(old) {
				return "the drained worker goes on after " + what
			}
			return ""
		})
	}
	gone("its last session")
	// A timeout bounds it.
	h = half()
	old = d.worker(0).PID
	if out, stderr, code := d.ctl("-o", "json", "drain", "--worker", "0", "--timeout", "0.2"); code != 0 {
		t.Fatalf("drain: %d %s%s", code, out, stderr)
	}
	gone("its time")
	if n, err := h.Read(make([]byte, 1)); err == nil {
		t.Errorf("the session outlived its worker: %d bytes", n)
	}
	mustPing(t, c)
	if n := d.service("tcppm")["accepted"]; n != 2 {
		t.Errorf("%d sessions were counted", n)
	}
}

// TestAccessLog expects a line for each request, in the format asked for.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	o := newOrigin(t, false)
	proxy := port(t)
	d := newDaemon(t, "")
	path := d.dir + "/access.log"
	d.write(fmt.Sprintf("log %s\nlogformat \"G%%N %%E %%C %%Q:%%q %%I %%T\"\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", path, proxy))
	d.launch()
	d.await()
	url := o.URL + "/bytes/1234"
	curl(t, "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), url)
	eventually(t, patience, func() string {
		data, _ := os.ReadFile(path)
		fields := strings.Fields(string(data))
		if len(fields) != 8 || fields[0] != "PROXY" || fields[1] != "00000" || fields[2] != "127.0.0.1" ||
			fields[3] != o.Listener.Addr().String() || fields[6] != url {
			return fmt.Sprintf("the log holds %q", data)
		}
		return ""
	})
	// A reload after the file was renamed opens a new one.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := d.ctl("reload"); code != 0 {
		t.Fatalf("reload: %s", stderr)
	}
	curl(t, "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), url)
	eventually(t, patience, func() string {
		data, _ := os.ReadFile(path)
		if bytes.Count(data, []byte("\n")) != 1 {
			return fmt.Sprintf("the new log holds %q", data)
		}
		return ""
	})
}

// TestStdoutLog expects the log of the default configuration on standard
// output.
func TestStdoutLog(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	o := newOrigin(t, false)
	proxy := port(t)
	d := start(t, fmt.Sprintf("log\nauth none\ninternal 127.0.0.1\nproxy -p%d\n", proxy))
	curl(t, "-x", fmt.Sprintf("http://127.0.0.1:%d", proxy), o.URL+"/logged")
	eventually(t, patience, func() string {
		if !strings.Contains(d.out.String(), "GET "+o.URL+"/logged HTTP/1.1") {
			return "no line in the log"
		}
		return ""
	})
}
