package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"
	"3proxyd/ipc"
)

// startDaemon answers at a control socket as a daemon would.
func startDaemon(t *testing.T, answers map[string]any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := answers[r.Method+" "+r.URL.Path]
		if e, ok := v.(ipc.APIError); ok {
			w.WriteHeader(http.StatusUnprocessableEntity)
			v = e
		}
		if list, ok := v.([]ipc.Session); ok {
			for _, s := range list {
				_ = json.NewEncoder(w).Encode(s)
			}
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return path
}

func ctl(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCommands(t *testing.T) {
	socket := startDaemon(t, map[string]any{
		"GET /v1/status": ipc.Status{
			Version: "9", PID: 42, State: "running", UptimeSec: 3700, Config: "x.cfg", Generation: 3,
			Workers: []ipc.WorkerStatus{
				{Slot: 0, PID: 43, State: "running", Sessions: 5},
				{Slot: 1, State: "backoff", RetryInSec: 4, Restarts: 7, LastExit: "killed by signal 11 (segmentation fault)"},
			},
			Services: []ipc.ServiceStatus{{ID: "proxy@1.2.3.4:5", Kind: "proxy", Address: "1.2.3.4:5", MaxConn: 100}},
			Limits:   ipc.LimitStatus{PidsMax: -1},
			Warnings: []string{"too few descriptors"},
		},
		"GET /v1/stats": ipc.Stats{
			Services: []ipc.ServiceStats{{ID: "proxy@1.2.3.4:5", Counters: ipc.CounterValues{"open": 2, "bytes_in": 5 << 20, "denied": 4}}},
			Workers:  []ipc.WorkerStats{{Slot: 0, Loop: map[string]uint64{"turns": 123}}},
		},
		"GET /v1/conns": []ipc.Session{
			{ID: 1, Service: "auto@1.2.3.4:5", Protocol: "http", Client: "10.0.0.1:99", Op: "BIND", Target: "evil\x1b[2J:80", AgeSec: 61, BytesIn: 2048},
		},
		"POST /v1/reload": ipc.ReloadResult{Generation: 4, Changed: true, Added: []string{"socks@1.2.3.4:6"}},
		"POST /v1/drain":  ipc.DrainResult{Draining: []int{1}},
	})
	for command, wants := range map[string][]string{
		"status":                         {"pid 42, running for 1h01m", "backoff, next in 4s", "killed by signal 11", "1.2.3.4:5", "warning: too few descriptors", "unlimited"},
		"stats":                          {"5.0 MiB", "denied 4", "123"},
		"conns":                          {"auto/http@1.2.3.4:5", "10.0.0.1:99", "BIND", "evil?[2J:80", "1m01s", "2.0 KiB"},
		"reload":                         {"generation 4 is in force: 0 services kept, 1 added", "added socks@1.2.3.4:6"},
		"drain --worker 1 --timeout 2.5": {"worker 1 drains"},
	} {
		code, out, errs := ctl(append([]string{"-s", socket}, strings.Fields(command)...)...)
		if code != exitOK || errs != "" {
			t.Errorf("%s: exit %d\n%s", command, code, errs)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", command, want, out)
			}
		}
		code, out, _ = ctl(append(strings.Fields(command), "--socket", socket, "-o", "json")...)
		if code != exitOK || !json.Valid([]byte(out)) {
			t.Errorf("%s as JSON: exit %d\n%s", command, code, out)
		}
	}
}

func TestRefusedReload(t *testing.T) {
	socket := startDaemon(t, map[string]any{
		"POST /v1/reload": ipc.APIError{Error: "the configuration has errors", Diagnostics: []config.Diagnostic{
			{Pos: config.Pos{File: "x.cfg", Line: 3, Column: 7}, Severity: config.Error, Text: "unknown command"},
		}},
	})
	code, out, errs := ctl("-s", socket, "reload")
	want := "x.cfg:3:7: error: unknown command\n3proxyctl: reload: the configuration has errors\n"
	if code != exitFailure || out != "" || errs != want {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestNoDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	code, _, errs := ctl("-s", path, "status")
	if code != exitNoDaemon || !strings.Contains(errs, path) || !strings.Contains(errs, "-s PATH") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"", "frob", "status extra", "-o xml status", "status --worker 1", "drain --worker x", "drain --timeout", "-s"} {
		if code, _, errs := ctl(strings.Fields(args)...); code != exitUsage || !strings.Contains(errs, "usage:") {
			t.Errorf("%q: exit %d\n%s", args, code, errs)
		}
	}
	for args, want := range map[string]string{
		"check":             `unknown command "check"; 3proxyd check FILE does it`,
		"drain --worker x":  `invalid value "x" for --worker: it must be the number of a worker`,
		"status --verbose":  "unknown option --verbose",
		"upgrade --binary=": "for --binary: the path is empty",
	} {
		if _, _, errs := ctl(strings.Fields(args)...); !strings.Contains(errs, want) {
			t.Errorf("%q: no %q in\n%s", args, want, errs)
		}
	}
	if code, out, _ := ctl("--help"); code != exitOK || !strings.Contains(out, "usage:") {
		t.Errorf("help: exit %d\n%s", code, out)
	}
}

func TestFormat(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0.0s", 59.94: "59.9s", 187: "3m07s", 18720: "5h12m", 100 * 3600: "4d4h"} {
		if got := duration(seconds); got != want {
			t.Errorf("%v seconds: %q, want %q", seconds, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 30: "1.0 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}
