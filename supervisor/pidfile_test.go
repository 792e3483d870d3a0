package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"3proxyd/config"
)

func TestPIDFileOfAnother(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	path := filepath.Join(t.TempDir(), "pid")
	d := &daemon{
		startConfig: &config.Config{PIDFile: path},
		messages:    &messages{lines: make(chan message, 4)},
	}
	for name, c := range map[string]struct {
		content string
		warns   bool
	}{
		"another program": {fmt.Sprintln(other.Process.Pid), true},
		"itself":          {fmt.Sprintln(os.Getpid()), false},
		"nobody":          {"999999999\n", false},
		"garbage":         {"x\n", false},
		"negative":        {"-1\n", false},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.checkPIDFile(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		warned := ""
		select {
		case m := <-d.lines:
			warned = m.text
		default:
		}
		if c.warns != strings.Contains(warned, "is not a 3proxyd") {
			t.Errorf("%s: warning %q", name, warned)
		}
	}
}

// TestPIDFileOfADaemon has a worker, which runs the same program, for another
// daemon.
func TestPIDFileOfADaemon(t *testing.T) {
	b := startBed(t, testConfig(t, freePorts(t, 1)...))
	cfg := testConfig(t, freePorts(t, 1)...)
	cfg.PIDFile = filepath.Join(t.TempDir(), "pid")
	pid := b.workerOf(0).PID
	if err := os.WriteFile(cfg.PIDFile, fmt.Appendln(nil, pid), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), b.options(cfg))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another daemon runs, process %d", pid)) {
		t.Errorf("error %v", err)
	}
	if got := readPID(cfg.PIDFile); got != pid {
		t.Errorf("the file now names %d", got)
	}
}

func TestProgramName(t *testing.T) {
	for exe, want := range map[string]string{"/usr/bin/3proxyd": "3proxyd", "/usr/bin/3proxyd (deleted)": "3proxyd"} {
		if got := programName(exe); got != want {
			t.Errorf("%s: %s", exe, got)
		}
	}
}
