package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"

	"3proxyd/internal/version"
)

func TestParseArgs(t *testing.T) {
	for text, want := range map[string]commandLine{
		"":                  {command: "run"},
		"-c f":              {command: "run", config: "f"},
		"-c f check":        {command: "check", config: "f"},
		"check -c f":        {command: "check", config: "f"},
		"check --dump -c f": {command: "check", config: "f", dump: true},
		"-dump check":       {command: "check", dump: true},
		"version":           {command: "version"},
		"--version":         {command: "version"},
		"-V":                {command: "version"},
		"-h":                {command: "help"},
		"check --help":      {command: "help"},
		"/etc/f":            {command: "run", config: "/etc/f"},
		"f.cfg":             {command: "run", config: "f.cfg"},
		"run f":             {command: "run", config: "f"},
		"check f":           {command: "check", config: "f"},
		"check f --dump":    {command: "check", config: "f", dump: true},
	} {
		got, err := parseArgs(strings.Fields(text))
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-c", "frob", "check f g", "-c f g.cfg", "-c f check g", "f.cfg check", "--dump", "-x", "version 1"} {
		if got, err := parseArgs(strings.Fields(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, args := range [][]string{{"-c", ""}, {"check", "-c", ""}, {"-c="}} {
		if _, err := parseArgs(args); err == nil || err.Error() != "-c: a file name is missing" {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func runCheck(t *testing.T, text string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "3proxy.cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code = run(append([]string{"check", "-c", path}, args...), &out, &errs)
	return code, out.String(), strings.ReplaceAll(errs.String(), path, "FILE")
}

func TestCheck(t *testing.T) {
	const good = "internal 127.0.0.1\nmaxconn 77\nproxy -p3128\n"
	code, out, errs := runCheck(t, good)
	if code != exitOK || !strings.Contains(out, "maxconn 77 (set)") || errs != "" {
		t.Errorf("good: exit %d\n%s%s", code, out, errs)
	}
	code, out, errs = runCheck(t, "proxi\nmaxconn x\n")
	if code != exitFailure || out != "" || !strings.HasPrefix(errs, "FILE:1:1: error: ") || !strings.Contains(errs, "FILE:2:9: error: ") {
		t.Errorf("bad: exit %d\n%s%s", code, out, errs)
	}
	if code, _, errs = runCheck(t, "internal 127.0.0.1\nproxy\ncpus 1000\n"); code != exitFailure || !strings.Contains(errs, "FILE:3:1: error: cpus: CPU 1000") {
		t.Errorf("cpus: exit %d\n%s", code, errs)
	}
	var missing bytes.Buffer
	if code := run([]string{"-c", "/nonexistent/3proxy.cfg"}, &missing, &missing); code != exitFailure || !strings.Contains(missing.String(), "/nonexistent/3proxy.cfg") {
		t.Errorf("missing: exit %d\n%s", code, &missing)
	}
}

func TestDumpHidesSecrets(t *testing.T) {
	code, out, _ := runCheck(t, "internal 127.0.0.1\nauth strong\nusers joe:CL:hunter2\nsocks\n", "--dump")
	var cfg config.Config
	if err := json.Unmarshal([]byte(out), &cfg); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if len(cfg.Users) != 1 || strings.Contains(out, "hunter2") {
		t.Errorf("dump\n%s", out)
	}
}

func TestVersionHelpUsage(t *testing.T) {
	for _, c := range []struct {
		arg  string
		code int
		want string
	}{
		{"version", exitOK, "3proxyd " + version.Release},
		{"help", exitOK, "usage:"},
		{"frob", exitUsage, `unknown command "frob"; a configuration whose name has no "." or "/" is given as -c frob` + "\n"},
	} {
		var out bytes.Buffer
		if code := run([]string{c.arg}, &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit %d\n%s", c.arg, code, &out)
		}
	}
}
