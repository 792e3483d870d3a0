package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"
)

func TestControlPathOfAService(t *testing.T) {
	cfg := testConfig(t, freePorts(t, 1)...)
	cfg.Services = append(cfg.Services, config.Service{
		ID: "socks@x", Kind: config.Socks, Pos: config.Pos{File: "test.cfg", Line: 2, Column: 1},
		Listen: config.Endpoint{Unix: filepath.Dir(cfg.Control.Path) + "//control.sock"},
	})
	b := &bed{t: t, stderr: os.Stderr, timing: quick()}
	err := Run(t.Context(), b.options(cfg))
	refused, ok := IsRefused(err)
	if !ok || len(refused.Diagnostics) != 1 || !strings.Contains(refused.Diagnostics[0].Text, "is the path of the control socket") {
		t.Errorf("error %v", err)
	}
}

func TestControlDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := controlDir(filepath.Join(dir, "missing", "3proxy")); !errors.Is(err, errNoDirectory) {
		t.Errorf("a missing parent: %v", err)
	}
	if err := controlDir(filepath.Join(dir, "3proxy")); err != nil {
		t.Errorf("a new directory: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "3proxy"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := controlDir(filepath.Join(dir, "3proxy")); err == nil || errors.Is(err, errNoDirectory) {
		t.Errorf("a directory others may write to: %v", err)
	}
}

// TestControlFallsBack names a runtime directory that does not exist.
func TestControlFallsBack(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root's default path does not depend on the environment")
	}
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(t.TempDir(), "missing"))
	s, err := listenControl(config.Control{}, new(inheritance))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if !strings.HasPrefix(s.path, "/tmp/3proxy-") {
		t.Errorf("the socket is at %s", s.path)
	}
}
