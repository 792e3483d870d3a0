package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bedEnv is set for the tests that run inside a systemd of their own.
const bedEnv = "E2E_BED"

// TestSystemd boots a systemd in namespaces, installs the daemon there, and
// runs TestBed inside. BED_ROOT may name the root directory of another release,
// BED_RUN the tests by a regular expression.
func TestSystemd(t *testing.T) {
	if os.Getenv(bedEnv) != "" {
		return
	}
	t.Parallel()
	needRoot(t)
	for _, program := range []string{"systemctl", "dbus-daemon", "pgrep", "ip", "make", "unshare", "nsenter"} {
		need(t, program)
	}
	if out, err := exec.Command("unshare", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--pid", "--fork",
		"mount", "-t", "tmpfs", "tmpfs", "/mnt").CombinedOutput(); err != nil {
		skip(t, "no namespaces with mounts: %s", strings.TrimSpace(string(out)))
	}
	dir, tree := t.TempDir(), t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.Command(name, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out.String())
		}
		return out.String()
	}
	run("make", "-C", "..", "install-files", "DESTDIR="+tree, "BIN="+binDir)
	const binary = "/usr/local/lib/3proxyd-e2e.test"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run("cp", self, filepath.Join(tree, binary))
	t.Cleanup(func() { run("bed/bed", "stop", dir) })
	run("bed/bed", "start", dir, tree)

	args := []string{"exec", dir, "env", bedEnv + "=1", reuseEnv + "=/usr/local/bin",
		binary, "-test.run", "^TestBed$/" + os.Getenv("BED_RUN"), "-test.v", "-test.timeout", "8m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	out, err := exec.Command("bed/bed", args...).CombinedOutput()
	if err != nil {
		journal, _ := exec.Command("bed/bed", "exec", dir, "journalctl", "--no-pager", "-o", "short-precise").CombinedOutput()
		t.Errorf("%v\n%s\njournal:\n%s", err, out, journal)
		return
	}
	t.Logf("%s", out)
}

// TestBed holds the tests that need a service manager; TestSystemd runs it.
func TestBed(t *testing.T) {
	if os.Getenv(bedEnv) == "" {
		t.Skip("TestSystemd runs it inside a systemd of its own")
	}
	systemctl(t, "--version")
	if out, err := exec.Command("systemd-sysusers").CombinedOutput(); err != nil {
		t.Fatalf("systemd-sysusers: %v: %s", err, out)
	}
	if out, err := exec.Command("systemd-tmpfiles", "--create", "3proxyd.conf").CombinedOutput(); err != nil {
		t.Fatalf("systemd-tmpfiles: %v: %s", err, out)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Units", bedUnits},
		{"Installed", bedInstalled},
		{"Hardening", bedHardening},
		{"Reload", bedReload},
		{"Stop", bedStop},
		{"Activation", bedActivation},
		{"ReusePort", bedReusePort},
		{"Restart", bedRestart},
		{"KillSupervisor", bedKillSupervisor},
		{"KillMode", bedKillMode},
		{"Watchdog", bedWatchdog},
		{"StopEndsOrphans", bedStopEndsOrphans},
		{"BrokenConfiguration", bedBrokenConfiguration},
		{"Upgrade", bedUpgrade},
		{"UpgradeStop", bedUpgradeStop},
		{"UpgradeOldKilled", bedUpgradeOldKilled},
		{"TrialRestart", bedTrialRestart},
		{"TrialStop", bedTrialStop},
		{"TrialHangs", bedTrialHangs},
		{"KillAll", bedKillAll},
		{"Datagrams", bedDatagrams},
		{"ReusePortLife", bedReusePortLife},
		{"Tasks", bedTasks},
		{"RuntimeDirectoryGone", bedRuntimeDirectoryGone},
	} {
		t.Run(test.name, test.run)
	}
}

const (
	unitDir    = "/etc/systemd/system"
	bedService = "3proxyd.service"
	bedSocket  = "3proxyd.socket"
	bedConfig  = "/etc/3proxy/3proxy.cfg"
)

// systemctl runs systemctl, which must succeed.
func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// property is a property of the service.
func property(t *testing.T, name string) string {
	t.Helper()
	return systemctl(t, "show", "--value", "--property", name, bedService)
}

func mainPID(t *testing.T) int {
	t.Helper()
	pid := 0
	if _, err := fmt.Sscan(property(t, "MainPID"), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// stoppedService stops what an earlier test has left and installs a
// configuration and files below /etc/systemd/system for one test.
func stoppedService(t *testing.T, config string, units map[string]string) {
	t.Helper()
	systemctl(t, "stop", bedSocket, bedService)
	_ = exec.Command("systemctl", "reset-failed", bedService, bedSocket).Run()
	writeConfig(t, config)
	for name, text := range units {
		path := filepath.Join(unitDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	systemctl(t, "daemon-reload")
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("journalctl", "--no-pager", "-n", "60", "-u", bedService, "-u", bedSocket).CombinedOutput()
			t.Logf("journal:\n%s", out)
		}
		systemctl(t, "stop", bedSocket, bedService)
		for name := range units {
			_ = os.Remove(filepath.Join(unitDir, name))
		}
		systemctl(t, "daemon-reload")
		awaitNoProcesses(t)
	})
}

func writeConfig(t *testing.T, config string) {
	t.Helper()
	if err := os.WriteFile(bedConfig, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
}

// serviceProcesses lists the processes of the daemon's user.
func serviceProcesses(t *testing.T) []int {
	t.Helper()
	out, _ := exec.Command("pgrep", "-u", "proxyd").Output()
	var pids []int
	for _, text := range strings.Fields(string(out)) {
		pid := 0
		if _, err := fmt.Sscan(text, &pid); err == nil && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func awaitNoProcesses(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() string {
		if pids := serviceProcesses(t); len(pids) > 0 {
			return fmt.Sprintf("processes %v are left", pids)
		}
		return ""
	})
}

func awaitState(t *testing.T, want string) {
	t.Helper()
	eventually(t, 2*patience, func() string {
		if got := property(t, "ActiveState"); got != want {
			return fmt.Sprintf("the service is %s, not %s", got, want)
		}
		return ""
	})
}

// awaitSuccessor waits until the service has another main process than pid and
// is up.
func awaitSuccessor(t *testing.T, pid int) {
	t.Helper()
	eventually(t, 3*patience, func() string {
		if now, state := mainPID(t), property(t, "ActiveState"); now == pid || now == 0 || state != "active" {
			return fmt.Sprintf("the service is %s, main process %d", state, now)
		}
		return ""
	})
}

// logged returns the service's messages that contain a text.
func logged(t *testing.T, text string) string {
	t.Helper()
	out, err := exec.Command("journalctl", "--no-pager", "-o", "cat", "-u", bedService).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, text) {
			found.WriteString(line)
		}
	}
	return found.String()
}

func awaitLogged(t *testing.T, text string) {
	t.Helper()
	eventually(t, patience, func() string {
		if logged(t, text) == "" {
			return fmt.Sprintf("%q is not in the journal", text)
		}
		return ""
	})
}
