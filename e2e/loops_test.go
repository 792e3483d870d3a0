package e2e

import (
	"fmt"
	"os/exec"
	"testing"
)

// TestLoops asks the daemon for itself, by every service and at every address
// of the host, also at one that the host gets later. It runs in a network
// namespace of its own.
func TestLoops(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "curl")
	need(t, "ip")
	need(t, "nsenter")
	unshare := need(t, "unshare")
	if out, err := exec.Command(unshare, "--net", "true").CombinedOutput(); err != nil {
		skip(t, "no network namespaces: %s", out)
	}
	d := newDaemon(t, `
workers 2
nsrecord self.test 192.0.2.77
proxy -p3128
proxy -i:: -p3128
socks -p1080
tcppm 7 self.test 3128
`)
	d.launch(unshare, "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh")
	d.await()
	inside := func(name string, args ...string) (string, error) {
		out, err := exec.Command("nsenter", append([]string{"--net", "-t", fmt.Sprint(d.pid()), name}, args...)...).CombinedOutput()
		return string(out), err
	}
	status := func(args ...string) string {
		out, _ := inside("curl", append([]string{"-sq", "--noproxy", "", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code} %{http_connect}"}, args...)...)
		return out
	}
	const proxy = "http://127.0.0.1:3128"
	for url, want := range map[string]string{
		"http://127.0.0.1:3128/": "508 000", "http://127.8.8.8:1080/": "508 000", "http://[::1]:3128/": "508 000",
		"http://[::ffff:127.0.0.1]:3128/": "508 000", "http://[::1]:1080/": "502 000", "http://127.0.0.1:81/": "502 000",
		"https://127.0.0.1:3128/": "000 508",
	} {
		if got := status("-x", proxy, url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	if out, err := inside("curl", "-sSq", "--max-time", "20", "--socks5", "127.0.0.1:1080", "http://127.0.0.1:3128/"); err == nil {
		t.Errorf("SOCKS: %s", out)
	}
	// The address comes after the start.
	if out, err := inside("ip", "addr", "add", "192.0.2.77/32", "dev", "lo"); err != nil {
		t.Fatalf("ip addr add: %v: %s", err, out)
	}
	eventually(t, patience, func() string {
		if got := status("-x", proxy, "http://self.test:3128/"); got != "508 000" {
			return "a name with a later address: " + got
		}
		return ""
	})
	if got := status("http://127.0.0.1:7/"); got != "000 000" {
		t.Errorf("a mapping to a name that is the daemon's: %s", got)
	}
}
