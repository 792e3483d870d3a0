package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

func TestSilentDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, command := range []string{"status", "conns", "reload"} {
		code, out, errs := ctl("-s", path, "--wait", "0.05", command)
		if code != exitNoDaemon || out != "" || !strings.Contains(errs, "the daemon does not answer (waited 50ms") {
			t.Errorf("%s: exit %d\n%s%s", command, code, out, errs)
		}
	}
}

// TestSilentWithinAnswer has a daemon that stops after the header.
func TestSilentWithinAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 4096))
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"id\":1}\n")
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	code, out, errs := ctl("-s", path, "--wait", "200ms", "conns")
	if code != exitNoDaemon || !strings.Contains(out, "WORKER") || !strings.Contains(errs, "does not answer") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}

func TestFailuresAsJSON(t *testing.T) {
	diag := config.Diagnostic{Pos: config.Pos{File: "x.cfg", Line: 3, Column: 7}, Severity: config.Error, Text: "unknown command"}
	socket := startDaemon(t, map[string]any{
		"POST /v1/reload": ipc.APIError{Error: "the configuration has errors", Diagnostics: []config.Diagnostic{diag}},
		"GET /v1/conns":   ipc.APIError{Error: "refused"},
	})
	for _, c := range []struct {
		args  string
		code  int
		want  string
		diags int
	}{
		{"-s " + socket + " reload", exitFailure, "the configuration has errors", 1},
		{"-s " + socket + " conns", exitFailure, "refused", 0},
		{"-s " + socket + "x status", exitNoDaemon, "no daemon answers", 0},
	} {
		code, out, errs := ctl(append(strings.Fields(c.args), "-o", "json")...)
		var e ipc.APIError
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != c.code || !strings.Contains(e.Error, c.want) || len(e.Diagnostics) != c.diags || errs == "" {
			t.Errorf("%s: exit %d, %v\n%s%s", c.args, code, err, out, errs)
		}
	}
	if _, out, _ := ctl("-s", socket, "conns"); out != "" {
		t.Errorf("a header without an answer: %s", out)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputCannotBeWritten(t *testing.T) {
	socket := startDaemon(t, map[string]any{
		"GET /v1/status": ipc.Status{}, "GET /v1/stats": ipc.Stats{}, "GET /v1/conns": []ipc.Session{{ID: 1}},
		"POST /v1/reload": ipc.ReloadResult{}, "POST /v1/drain": ipc.DrainResult{},
	})
	for command := range commands {
		var errs strings.Builder
		code := run(context.Background(), []string{"-s", socket, command}, fullDisk{}, &errs)
		if code != exitFailure || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s: exit %d\n%s", command, code, errs.String())
		}
	}
}

func TestParseSeconds(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "2.5": 2500 * time.Millisecond, "90s": 90 * time.Second, "1h": time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := parseSeconds(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "-1s", "NaN", "Inf", "1e300", "99999h"} {
		if d, err := parseSeconds(s); err == nil {
			t.Errorf("%q: %v", s, d)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	s := &session{client: ipc.NewClient(filepath.Join(t.TempDir(), "none")), line: commandLine{command: "status"}}
	var errs strings.Builder
	err := fmt.Errorf("%w: %w", ipc.ErrNotAllowed, syscall.EACCES)
	if code := report(s, err, &errs); code != exitNoDaemon || !strings.Contains(errs.String(), "you may not connect to "+s.client.Path()+"; run as root") {
		t.Errorf("exit %d\n%s", code, errs.String())
	}
}

func TestIsSocketOf(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !isSocketOf(path, os.Geteuid()) || isSocketOf(path, os.Geteuid()+1) || isSocketOf(path+"x", os.Geteuid()) {
		t.Error("the owner of the directory is not looked at")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if isSocketOf(path, os.Geteuid()) {
		t.Error("a directory others may write to is trusted")
	}
}
