package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"
)

// files writes files into a new directory and returns it.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCheckErrors expects every error at its place, also in included files.
func TestCheckErrors(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{
		"main.cfg": "internal 127.0.0.1\nmaxcon 5\ninclude sub.cfg\n  not a command\nproxy -p99999\n" +
			"allow * example.com\nusers $users.txt\nparent 1000 tcp 0.0.0.0 0\n",
		"sub.cfg":   "# included\ntimeouts 1 2 x\n",
		"users.txt": "alice:CL:secret\nbob:XX:topsecret\n",
	})
	cfg := filepath.Join(dir, "main.cfg")
	out, stderr, code := command(t, daemonBin, "check", "-c", cfg)
	if code != 1 || out != "" {
		t.Errorf("exit code %d, printed %q", code, out)
	}
	for _, want := range []string{
		`main.cfg:2:1: error: unknown command "maxcon"; did you mean "maxconn"?`,
		`sub.cfg:2:14: error: timeouts`,
		`main.cfg:5:9: error: proxy: -p`,
		`main.cfg:6:9: error: allow: "example.com"`,
		`users.txt:2:1: error: users: "bob"`,
		`main.cfg:8:1: error: parent: not supported yet`,
	} {
		if !strings.Contains(stderr, filepath.Join(dir, want)) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "secret") {
		t.Errorf("a password is shown:\n%s", stderr)
	}
	if n := strings.Count(stderr, ": error: "); n != 6 {
		t.Errorf("%d errors instead of 6:\n%s", n, stderr)
	}
	// The daemon says the same and does not start.
	_, again, code := command(t, daemonBin, "-c", cfg)
	if code != 1 || !strings.Contains(again, "main.cfg:2:1: error: unknown command") {
		t.Errorf("the daemon ends with %d: %s", code, again)
	}
}

// TestCheckWarnings expects exit code 0 and a word about each surprise.
func TestCheckWarnings(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"w.cfg": `auth none
allow * 10.0.0.0/8
proxy -p3128
auth iponly
deny *
allow * 10.0.0.1
internal 127.0.0.1
socks
maxconn 5
`})
	out, stderr, code := command(t, daemonBin, "-c", filepath.Join(dir, "w.cfg"), "check")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"w.cfg:3:1: warning: proxy: auth none lets everybody in",
		"w.cfg:3:1: warning: proxy: this is an open proxy",
		"w.cfg:6:1: warning: allow: this rule can never match",
		"w.cfg:9:1: warning: maxconn: has no effect: no service follows",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in\n%s", want, stderr)
		}
	}
	for _, want := range []string{"2 services", "0.0.0.0:3128", "127.0.0.1:1080", "maxconn "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestCheckDump expects the effective configuration as JSON, without secrets.
func TestCheckDump(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{"d.cfg": `users alice:CL:wonderland
auth strong
internal 127.0.0.1
maxconn 77
timeouts 2
proxy -p4444 -s3 -olTCP_NODELAY=0
tcppm 5555 example.com 80
`})
	out, _, code := command(t, daemonBin, "check", "--dump", "-c", filepath.Join(dir, "d.cfg"))
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if strings.Contains(out, "wonderland") {
		t.Error("the dump holds a password")
	}
	var cfg config.Config
	if err := json.Unmarshal([]byte(out), &cfg); err != nil {
		t.Fatal(err)
	}
	if len(cfg.Services) != 2 {
		t.Fatalf("%d services", len(cfg.Services))
	}
	p, m := cfg.Services[0], cfg.Services[1]
	if p.ID != "proxy@127.0.0.1:4444" || p.MaxConn != 77 || p.Splice.Mode != 3 || p.Timeouts.ByteShort != 2 || len(p.ListenOptions) != 1 {
		t.Errorf("proxy: %+v", p)
	}
	if m.Target == nil || m.Target.Host != "example.com" || m.Target.Port != 80 {
		t.Errorf("tcppm: %+v", m)
	}
}

// TestCommandLine covers version, help and usage errors of both commands.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{daemonBin, []string{"version"}, 0, "3proxyd "},
		{daemonBin, []string{"help"}, 0, "usage:"},
		{daemonBin, []string{"--help"}, 0, "usage:"},
		{daemonBin, []string{"start"}, 2, `unknown command "start"`},
		{daemonBin, []string{"--nope"}, 2, "usage:"},
		{daemonBin, []string{"--dump"}, 2, "--dump belongs to check"},
		{daemonBin, []string{"check", "-c", "/nonexistent.cfg"}, 1, "/nonexistent.cfg:1:1: error: cannot read"},
		{daemonBin, []string{"check"}, 0, "good"},
		{ctlBin, []string{"help"}, 0, "usage:"},
		{ctlBin, []string{}, 2, "usage: 3proxyctl"},
		{ctlBin, []string{"restart"}, 2, `unknown command "restart"`},
		{ctlBin, []string{"status", "-o", "xml"}, 2, "the formats are text and json"},
		{ctlBin, []string{"-s", "/nonexistent.sock", "status"}, 3, "/nonexistent.sock: no daemon answers"},
	} {
		out, stderr, code := command(t, c.name, c.args...)
		if code != c.code || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%s %v: exit code %d instead of %d, printed %q, expected %q",
				filepath.Base(c.name), c.args, code, c.code, out+stderr, c.want)
		}
	}
}
