package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"3proxyd/config"
)

// TestPreflight checks each finding with its place on a made-up host.
func TestPreflight(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := host{
		euid: 1000, egid: 1000, control: filepath.Join(dir, "default.sock"), congestion: []string{"reno", "cubic"},
		addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}
	cases := []struct{ text, want string }{
		{"proxy -i192.0.2.1 -e2001:db8::1", ""},
		{"proxy -i127.9.9.9", ""},
		{"log DIR\nproxy", `1:5: error: log: "DIR" is a directory`},
		{"log DIR/none/x\nproxy\nproxy -p1", `1:5: error: log: "DIR/none/x": there is no directory "DIR/none"`},
		{"log DIR/file/x\nproxy", `1:5: error: log: "DIR/file/x": "DIR/file" is not a directory`},
		{"log DIR/new\nproxy", ""},
		{"pidfile DIR/none/p\nproxy", `1:1: error: pidfile: "DIR/none/p": there is no directory "DIR/none"`},
		{"proxy\ncontrol DIR/none/c", `2:1: error: control: "DIR/none/c": there is no directory "DIR/none"`},
		{"proxy\ncontrol DIR/file", `2:1: error: control: "DIR/file" exists and is not a socket`},
		{"proxy\nsocks -iunix:DIR/./c\ncontrol DIR/c", `2:1: error: socks: unix:DIR/./c is the control socket`},
		{"socks -iunix:DIR/default.sock", `1:1: error: socks: unix:DIR/default.sock is the control socket`},
		{"socks -iunix:DIR/none/s", `1:1: error: socks: unix: "DIR/none/s": there is no directory "DIR/none"`},
		{"socks -iunix:DIR/file", `1:1: error: socks: unix: "DIR/file" exists and is not a socket`},
		{"proxy\nsetuid 65534\nsetgid 65534", "2:1: warning: setuid: the start needs root\n3:1: warning: setgid: the start needs root"},
		{"setuid 1000\nsetgid 1000\nproxy", ""},
		{"proxy -osTCP_CONGESTION=cubic", ""},
		{"proxy -osTCP_CONGESTION=nope", "1:1: warning: proxy: -osTCP_CONGESTION=nope: the kernel does not have this algorithm loaded; it has reno, cubic"},
		{"proxy -i192.0.2.9", "1:1: warning: proxy: the listening address 192.0.2.9 is not an address of this host"},
		{"proxy -i192.0.2.9 -olIP_FREEBIND", ""},
		{"proxy -e2001:db8::9", "1:1: warning: proxy: the external address 2001:db8::9 is not an address of this host"},
		{"tcppm 7 192.0.2.1 7", "1:1: error: tcppm: it would connect to itself: 192.0.2.1:7 is an address of this host, and it listens on all of them"},
		{"tcppm 7 192.0.2.1 8\ntcppm -i127.0.0.1 9 192.0.2.1 9\ntcppm 10 192.0.2.2 10\ntcppm 11 2001:db8::1 11", ""},
		{"proxy\ncpus 4000-4003", "2:1: error: cpus: CPU 4000 does not exist or the process may not use it"},
	}
	for _, c := range cases {
		cfg, diags := config.LoadBytes("F", []byte(strings.ReplaceAll(c.text, "DIR", dir)))
		if cfg == nil {
			t.Fatalf("%s: %v", c.text, diags)
		}
		p := examine(cfg, h)
		var got []string
		for _, d := range append(p.warnings, p.errors...) {
			got = append(got, strings.TrimPrefix(d.String(), "F:"))
		}
		if text := strings.ReplaceAll(strings.Join(got, "\n"), dir, "DIR"); text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, text, c.want)
		}
	}
}

func TestCheckMachine(t *testing.T) {
	code, out, errs := runCheck(t, fmt.Sprintf("internal 127.0.0.1\nworkers %d\nproxy\n", min(128, runtime.NumCPU()+1)))
	if code != exitOK || !strings.Contains(errs, "FILE:2:1: warning: workers: ") || !strings.Contains(out, " 1 service, ") {
		t.Errorf("workers: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = runCheck(t, "internal 127.0.0.1\nlog /\nproxy\n")
	if code != exitFailure || out != "" {
		t.Errorf("log: exit %d\n%s%s", code, out, errs)
	}
	var msg strings.Builder
	path := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(path, []byte("internal 127.0.0.1\ncpus 4095\nproxy\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"-c", path}, &msg, &msg); code != exitFailure || !strings.Contains(msg.String(), path+":2:1: error: cpus: CPU 4095") {
		t.Errorf("start: exit %d\n%s", code, &msg)
	}
}

func TestDumpEffective(t *testing.T) {
	code, out, _ := runCheck(t, "internal 127.0.0.1\nworkers 2\ncontrol /tmp/x.sock\nmaxconn 7\nbacklog 1\nproxy\nmaxconn 9\nbacklog 0\nsocks\n", "--dump")
	var got dumped
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	e := got.Effective
	if e.Workers != 2 || len(e.CPUs) != 2 || e.Control != "/tmp/x.sock" || len(e.Services) != 2 ||
		e.Services[0] != (effectiveService{"proxy@127.0.0.1:3128", 7, 1}) || e.Services[1].Backlog < 1 || e.Services[1].MaxConn != 9 {
		t.Errorf("%+v", e)
	}
}
