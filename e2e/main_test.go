package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The binaries under test. binDir can be read by every user.
var binDir, daemonBin, ctlBin string

// reuseEnv names the directory of binaries that are built already; a test that
// runs itself again in a namespace sets it.
const reuseEnv = "E2E_BIN"

func TestMain(m *testing.M) {
	if isFake() {
		os.Exit(runFake())
	}
	flag.Parse()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	binDir = os.Getenv(reuseEnv)
	if binDir == "" {
		dir, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binDir = dir
		defer os.RemoveAll(dir)
	}
	daemonBin, ctlBin = filepath.Join(binDir, "3proxyd"), filepath.Join(binDir, "3proxyctl")
	code := m.Run()
	if os.Getenv(reuseEnv) == "" && endLeftovers() > 0 {
		code = 1
	}
	reportSkips()
	return code
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "3proxyd-e2e-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir, "3proxyd/cmd/3proxyd", "3proxyd/cmd/3proxyctl").CombinedOutput()
	if err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
}

// endLeftovers ends the processes of the binaries under test that no test has
// ended, and returns how many there were.
func endLeftovers() int {
	n := 0
	for _, pid := range processes() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !strings.HasPrefix(exe, binDir+"/") {
			continue
		}
		n++
		fmt.Fprintf(os.Stderr, "process %d (%s) was left behind\n", pid, exe)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return n
}

var skips struct {
	sync.Mutex
	lines []string
}

// skip skips the test and keeps the reason for the list at the end.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	reason := fmt.Sprintf(format, args...)
	skips.Lock()
	skips.lines = append(skips.lines, t.Name()+": "+reason)
	skips.Unlock()
	t.Skip(reason)
}

func reportSkips() {
	if len(skips.lines) == 0 {
		return
	}
	fmt.Printf("%d tests were skipped:\n", len(skips.lines))
	for _, line := range skips.lines {
		fmt.Println("  " + line)
	}
}

// need skips the test unless the program is installed.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		skip(t, "%s is not installed", program)
	}
	return path
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "needs root")
	}
}
