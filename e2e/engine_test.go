package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"3proxyd/internal/sys"
	"3proxyd/ipc"
)

// engines returns the engine of each worker, as status shows it.
func (d *daemon) engines() []string {
	d.t.Helper()
	out, stderr, code := d.ctl("-o", "json", "status")
	if code != 0 {
		d.t.Fatalf("status: %s", stderr)
	}
	var s ipc.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for _, w := range s.Workers {
		names = append(names, w.Engine)
	}
	return names
}

// Each worker has the engine that the configuration names, and status shows it.
func TestEngine(t *testing.T) {
	for _, name := range []string{"epoll", "io_uring"} {
		t.Run(name, func(t *testing.T) {
			if err := sys.ProbeUring(); name == "io_uring" && err != nil {
				skip(t, "%v", err)
			}
			echo, ppm := echoOrigin(t), port(t)
			d := start(t, fmt.Sprintf("workers 2\nauth none\ninternal 127.0.0.1\ntcppm %d 127.0.0.1 %d\nengine %s\n", ppm, echo, name))
			if err := pingOnce(ppm); err != nil {
				t.Error(err)
			}
			if got := d.engines(); len(got) != 2 || got[0] != name || got[1] != name {
				t.Errorf("engines %q", got)
			}
			if out, _, _ := d.ctl("status"); !strings.Contains(out, name) {
				t.Errorf("status does not name the engine:\n%s", out)
			}
		})
	}
}

// Where io_uring is forbidden, demanding it is an error that says so, and auto
// takes epoll.
func TestEngineForbidden(t *testing.T) {
	strace := need(t, "strace")
	forbid := []string{strace, "-D", "-qq", "-f", "-o", "/dev/null", "-e", "trace=io_uring_setup", "-e", "inject=io_uring_setup:error=EPERM"}
	config := fmt.Sprintf("workers 1\nauth none\ninternal 127.0.0.1\nsocks -p%d\n", port(t))
	d := newDaemon(t, config+"engine io_uring\n")
	out, err := exec.Command(strace, append(forbid[1:], daemonBin, "check", "-c", d.config)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), ":6:1: error: engine io_uring: io_uring_setup: operation not permitted (forbidden by seccomp or a security module)") {
		t.Errorf("check: %v\n%s", err, out)
	}
	auto := start(t, config+"engine auto\n", forbid...)
	if got := auto.engines(); len(got) != 1 || got[0] != "epoll" {
		t.Errorf("engines %q", got)
	}
}
