package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/ipc"
)

// bedUnits checks the unit files as systemd does.
func bedUnits(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "verify", bedService, bedSocket).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err = exec.Command("systemd-analyze", "security", bedService).CombinedOutput()
	m := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	level, _ := strconv.ParseFloat(string(m[1]), 64)
	t.Logf("exposure level %.1f", level)
	if level >= 2 {
		t.Errorf("exposure level %.1f\n%s", level, out)
	}
}

// serviceStatus asks the daemon as root.
func serviceStatus(t *testing.T) ipc.Status {
	t.Helper()
	out, err := exec.Command(ctlBin, "-o", "json", "status").Output()
	if err != nil {
		t.Fatalf("3proxyctl status: %v: %s", err, out)
	}
	var s ipc.Status
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// bedInstalled runs the configuration that is installed.
func bedInstalled(t *testing.T) {
	config, err := os.ReadFile(bedConfig)
	if err != nil {
		t.Fatal(err)
	}
	stoppedService(t, string(config), nil)
	systemctl(t, "start", bedService)
	awaitState(t, "active")
	origin := newOrigin(t, false)
	for _, proxy := range []string{"http://127.0.0.1:3128", "socks5://127.0.0.1:1080"} {
		if got := curl(t, "-x", proxy, origin.URL+"/hello"); !strings.Contains(got, "hello") {
			t.Errorf("%s: %q", proxy, got)
		}
	}
	eventually(t, patience, func() string {
		log, _ := os.ReadFile("/var/log/3proxy/access.log")
		if strings.Count(string(log), "\n") < 2 {
			return fmt.Sprintf("log: %q", log)
		}
		return ""
	})
	if text := property(t, "StatusText"); !regexp.MustCompile(`^\d+ sessions?, \d+ workers?, generation \d+$`).MatchString(text) {
		t.Errorf("status %q", text)
	}
	if s := serviceStatus(t); s.PID != mainPID(t) {
		t.Errorf("process %d answers, %d is the main process", s.PID, mainPID(t))
	}
}

const bedHead = "workers 2\nauth none\ninternal 127.0.0.1\ndrain_timeout 60\n"

// bedHardening looks at what the processes of the unit may do.
func bedHardening(t *testing.T) {
	stoppedService(t, bedHead+"proxy -p80\n", nil)
	systemctl(t, "start", bedService)
	processes := serviceProcesses(t)
	if len(processes) != 3 {
		t.Errorf("processes %v", processes)
	}
	for _, pid := range processes {
		for field, want := range map[string]string{
			"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000400", "CapBnd": "0000000000000400",
		} {
			if got := identity(t, pid, field); got != want {
				t.Errorf("process %d: %s is %s, not %s", pid, field, got, want)
			}
		}
	}
	if !listens(80) {
		t.Error("nobody listens on port 80")
	}
	for _, w := range serviceStatus(t).Workers {
		if got := affinity(t, w.PID); got != fmt.Sprint(w.CPU) {
			t.Errorf("worker %d runs on CPU %s, not %d", w.Slot, got, w.CPU)
		}
	}
}

// stored is the number of descriptors in the service's store.
func stored(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(property(t, "NFileDescriptorStore"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func awaitStored(t *testing.T, want int) {
	t.Helper()
	eventually(t, patience, func() string {
		if got := stored(t); got != want {
			return fmt.Sprintf("%d descriptors are stored, not %d", got, want)
		}
		return ""
	})
}

// bedReload reloads by the manager; the store follows the services.
func bedReload(t *testing.T) {
	const first, second = 4001, 4002
	base := bedHead + fmt.Sprintf("proxy -p%d\n", first)
	stoppedService(t, base, nil)
	systemctl(t, "start", bedService)
	const own = 2 // the control socket and the counters
	awaitStored(t, own+2)
	writeConfig(t, base+fmt.Sprintf("socks -p%d\nsocks -iunix:/run/3proxy/s.sock\n", second))
	systemctl(t, "reload", bedService)
	awaitStored(t, own+2+2+1)
	if !listens(second) {
		t.Error("the new service does not listen")
	}
	writeConfig(t, base+"nonsense\n")
	if out, err := exec.Command("systemctl", "reload", bedService).CombinedOutput(); err == nil {
		t.Errorf("a bad configuration is loaded: %s", out)
	}
	awaitState(t, "active")
	awaitStored(t, own+2+2+1)
	awaitLogged(t, bedConfig+":6:1: error: ")
	fields, err := exec.Command("journalctl", "--no-pager", "-u", bedService, "-o", "cat", "--output-fields=MESSAGE",
		"THREEPROXYD_FILE="+bedConfig, "THREEPROXYD_LINE=6", "PRIORITY=3").Output()
	if err != nil || !strings.Contains(string(fields), ":6:1: error: ") {
		t.Errorf("journal: %v: %s", err, fields)
	}
	writeConfig(t, base)
	systemctl(t, "reload", bedService)
	awaitStored(t, own+2)
	if _, err := os.Lstat("/run/3proxy/s.sock"); err == nil || listens(second) {
		t.Error("a service that is gone still listens")
	}
}

// tunnelService installs a port mapping to an echo server and starts it.
func tunnelService(t *testing.T, port int, drainTimeout int, units map[string]string) {
	t.Helper()
	config := strings.Replace(bedHead, "60", fmt.Sprint(drainTimeout), 1)
	stoppedService(t, config+fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", port, echoOrigin(t)), units)
	systemctl(t, "start", bedService)
}

// bedStop stops the service while a session is open: it drains.
func bedStop(t *testing.T) {
	const port = 4003
	// The drain takes longer than the manager waits for a stop by itself.
	tunnelService(t, port, 60, map[string]string{"3proxyd.service.d/stop.conf": "[Service]\nTimeoutStopSec=2\n"})
	c := dial(t, port)
	mustPing(t, c)
	systemctl(t, "stop", "--no-block", bedService)
	eventually(t, patience, func() string {
		if listens(port) {
			return "the port is still open"
		}
		if text := property(t, "StatusText"); !strings.HasPrefix(text, "draining: 1 session left, ") {
			return fmt.Sprintf("status %q", text)
		}
		return ""
	})
	time.Sleep(4 * time.Second)
	if state := property(t, "ActiveState"); state != "deactivating" {
		t.Errorf("the service is %s", state)
	}
	mustPing(t, c)
	c.Close()
	awaitState(t, "inactive")
	if result := property(t, "Result"); result != "success" {
		t.Errorf("result %s", result)
	}
	awaitNoProcesses(t)
	awaitStored(t, 0)
}

// bedActivation has the first connection start the service.
func bedActivation(t *testing.T) {
	const first, second, third, datagram = 4004, 4005, 4006, 4007
	echo := echoOrigin(t)
	stoppedService(t, bedHead+
		fmt.Sprintf("tcppm %d 127.0.0.1 %d\n", first, echo)+
		fmt.Sprintf("tcppm -isystemd:extra 1 127.0.0.1 %d\n", echo), map[string]string{
		bedSocket: fmt.Sprintf("[Socket]\nFileDescriptorName=main\nListenStream=127.0.0.1:%d\nListenStream=127.0.0.1:%d\nListenDatagram=127.0.0.1:%d\n", first, third, datagram),
		"3proxyd-extra.socket": fmt.Sprintf(
			"[Socket]\nFileDescriptorName=extra\nService=3proxyd.service\nListenStream=[::1]:%d\nListenStream=/run/3proxyd-extra.sock\n", second),
	})
	t.Cleanup(func() { systemctl(t, "stop", "3proxyd-extra.socket") })
	systemctl(t, "start", bedSocket, "3proxyd-extra.socket")
	if state := property(t, "ActiveState"); state != "inactive" {
		t.Fatalf("the service is %s", state)
	}
	c := dial(t, first)
	mustPing(t, c)
	awaitState(t, "active")
	for _, address := range []string{fmt.Sprintf("tcp [::1]:%d", second), "unix /run/3proxyd-extra.sock"} {
		network, at, _ := strings.Cut(address, " ")
		other, err := net.DialTimeout(network, at, patience)
		if err != nil {
			t.Fatal(err)
		}
		_ = other.SetDeadline(time.Now().Add(patience))
		if err := ping(other); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		other.Close()
	}
	awaitLogged(t, fmt.Sprintf(`warning: no service wants the inherited socket "main" (tcp 127.0.0.1:%d): it is closed`, third))
	awaitLogged(t, fmt.Sprintf(`warning: no service wants the inherited socket "main" (udp 127.0.0.1:%d): it is closed`, datagram))

	// A service that a reload takes away and brings back gets its socket again.
	text, _ := os.ReadFile(bedConfig)
	writeConfig(t, bedHead+fmt.Sprintf("tcppm -isystemd:extra 1 127.0.0.1 %d\n", echo))
	systemctl(t, "reload", bedService)
	writeConfig(t, string(text))
	systemctl(t, "reload", bedService)
	mustPing(t, c)
	if err := pingOnce(first); err != nil {
		t.Error(err)
	}

	// The socket goes on listening when the service stops, and starts it again.
	c.Close()
	systemctl(t, "stop", bedService)
	if !listens(first) {
		t.Fatal("the socket of the socket unit is closed")
	}
	if err := pingOnce(first); err != nil {
		t.Error(err)
	}
	awaitState(t, "active")
}

// bedReusePort gives each worker a socket of its own, and shares one among them.
func bedReusePort(t *testing.T) {
	const grouped, single = 4008, 4009
	echo := echoOrigin(t)
	stoppedService(t, bedHead+fmt.Sprintf("tcppm %d 127.0.0.1 %d\ntcppm %d 127.0.0.1 %d\n", grouped, echo, single, echo), map[string]string{
		bedSocket:              fmt.Sprintf("[Socket]\nReusePort=yes\nListenStream=127.0.0.1:%d\nListenStream=127.0.0.1:%d\n", grouped, grouped),
		"3proxyd-extra.socket": fmt.Sprintf("[Socket]\nService=3proxyd.service\nListenStream=127.0.0.1:%d\n", single),
	})
	t.Cleanup(func() { systemctl(t, "stop", "3proxyd-extra.socket") })
	systemctl(t, "start", bedSocket, "3proxyd-extra.socket", bedService)
	if n := len(listeners(grouped)); n != 2 {
		t.Errorf("%d sockets of the group", n)
	}
	if n := len(listeners(single)); n != 1 {
		t.Errorf("%d single sockets", n)
	}
	for _, p := range []int{grouped, single} {
		l := newLoad(p, 4)
		eventually(t, patience, func() string {
			if l.served.Load() < 400 {
				return "the load is not served"
			}
			return ""
		})
		l.mustBeServed(t)
	}
	for _, w := range serviceStats(t).Workers {
		if w.Counters["accepted"] == 0 {
			t.Errorf("worker %d has accepted nothing", w.Slot)
		}
	}
}

func serviceStats(t *testing.T) ipc.Stats {
	t.Helper()
	out, err := exec.Command(ctlBin, "-o", "json", "stats").Output()
	var s ipc.Stats
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatalf("3proxyctl stats: %v: %s", err, out)
	}
	return s
}

// mustBeServed ends the load; nothing may have been refused or have failed.
func (l *load) mustBeServed(t *testing.T) {
	t.Helper()
	err := l.stop()
	t.Logf("%d served, %d refused, %d failed", l.served.Load(), l.refused.Load(), l.failed.Load())
	if err != nil || l.refused.Load() > 0 || l.served.Load() == 0 {
		t.Errorf("%d connections failed (%v), %d were refused", l.failed.Load(), err, l.refused.Load())
	}
}

// streaming sends bytes through a tunnel to an echo server and checks what
// comes back, until stop.
type streaming struct {
	conn net.Conn
	quit chan struct{}
	done chan error
	sent int64
}

func stream(t *testing.T, port int) *streaming {
	t.Helper()
	s := &streaming{conn: dial(t, port), quit: make(chan struct{}), done: make(chan error, 1)}
	_ = s.conn.SetDeadline(time.Now().Add(5 * time.Minute))
	go func() { s.done <- s.run() }()
	return s
}

func (s *streaming) run() error {
	out, back := make([]byte, 1<<15), make([]byte, 1<<15)
	for round := uint32(0); ; round++ {
		select {
		case <-s.quit:
			return nil
		default:
		}
		for i := range out {
			out[i] = byte(uint32(i) * (2*round + 1) >> 3)
		}
		if _, err := s.conn.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(s.conn, back); err != nil {
			return err
		}
		if string(out) != string(back) {
			return errors.New("other bytes come back")
		}
		s.sent += int64(len(out))
	}
}

func (s *streaming) mustBeWhole(t *testing.T) {
	t.Helper()
	close(s.quit)
	if err := <-s.done; err != nil {
		t.Errorf("the long session, after %d bytes: %v", s.sent, err)
	}
	t.Logf("%d bytes came back in the long session", s.sent)
	s.conn.Close()
}

// bedRestart restarts the service under load.
func bedRestart(t *testing.T) {
	const port = 4010
	tunnelService(t, port, 60, nil)
	long, l := stream(t, port), newLoad(port, 4)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		pid := mainPID(t)
		began := time.Now()
		systemctl(t, "restart", bedService)
		t.Logf("restart: %v", time.Since(began).Round(time.Millisecond))
		awaitSuccessor(t, pid)
	}
	l.mustBeServed(t)
	if total := serviceStats(t).Total; total["accepted"] < uint64(l.served.Load()) {
		t.Errorf("%d connections are counted, %d were served", total["accepted"], l.served.Load())
	}
	long.mustBeWhole(t)
}

// bedKillSupervisor kills the supervisor under load.
func bedKillSupervisor(t *testing.T) {
	const port = 4011
	tunnelService(t, port, 60, nil)
	before := stored(t)
	long, l := stream(t, port), newLoad(port, 4)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		pid := mainPID(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitSuccessor(t, pid)
	}
	time.Sleep(200 * time.Millisecond)
	l.mustBeServed(t)
	if now := stored(t); now != before {
		t.Errorf("%d descriptors are stored, %d before", now, before)
	}
	if n := len(listeners(port)); n != 2 {
		t.Errorf("%d listening sockets", n)
	}
	long.mustBeWhole(t)
	// The workers of all the supervisors before end with the last session.
	eventually(t, patience, func() string {
		if pids := serviceProcesses(t); len(pids) != 3 {
			return fmt.Sprintf("processes %v", pids)
		}
		return ""
	})
}

// bedKillMode kills the supervisor of a unit with the default KillMode=: systemd
// tells the workers to end as well, and what comes meanwhile waits in the store.
func bedKillMode(t *testing.T) {
	const port = 4017
	tunnelService(t, port, 60, map[string]string{"3proxyd.service.d/kill.conf": "[Service]\nKillMode=control-group\n"})
	l := newLoad(port, 4)
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		pid := mainPID(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitSuccessor(t, pid)
	}
	l.mustBeServed(t)
}

// bedWatchdog stops the supervisor: the manager replaces it.
func bedWatchdog(t *testing.T) {
	const port = 4012
	tunnelService(t, port, 60, map[string]string{
		"3proxyd.service.d/watchdog.conf": "[Service]\nWatchdogSec=2\nTimeoutAbortSec=2\n",
	})
	long, l := stream(t, port), newLoad(port, 4)
	time.Sleep(3 * time.Second)
	pid := mainPID(t)
	if n := property(t, "NRestarts"); n != "0" {
		t.Errorf("%s restarts of a supervisor that lives", n)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	awaitSuccessor(t, pid)
	awaitLogged(t, "Watchdog timeout")
	l.mustBeServed(t)
	long.mustBeWhole(t)
}

// halfHandshake begins a SOCKS session, which cannot move to another worker.
func halfHandshake(t *testing.T, c net.Conn) {
	t.Helper()
	answer := make([]byte, 2)
	_, err := c.Write([]byte{5, 1, 0})
	if err == nil {
		_, err = io.ReadFull(c, answer)
	}
	if err != nil || answer[1] != 0 {
		t.Fatalf("SOCKS greeting: %v, %v", answer, err)
	}
}

// bedStopEndsOrphans stops the service while workers of an earlier supervisor
// have a session.
func bedStopEndsOrphans(t *testing.T) {
	const port = 4013
	stoppedService(t, strings.Replace(bedHead, "60", "600", 1)+fmt.Sprintf("timeouts 1 5 600 600\nsocks -p%d\n", port), nil)
	systemctl(t, "start", bedService)
	c := dial(t, port)
	halfHandshake(t, c)
	pid := mainPID(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitSuccessor(t, pid)
	awaitLogged(t, "warning: the supervisor is gone: ")
	eventually(t, patience, func() string {
		if n := len(serviceProcesses(t)); n != 4 {
			return fmt.Sprintf("%d processes", n)
		}
		return ""
	})
	writeConfig(t, strings.Replace(readFile(t, bedConfig), "drain_timeout 600", "drain_timeout 1", 1))
	systemctl(t, "reload", bedService)
	systemctl(t, "stop", bedService)
	awaitNoProcesses(t)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bedBrokenConfiguration kills the supervisor when the next cannot start: the
// workers serve until it can.
func bedBrokenConfiguration(t *testing.T) {
	const port = 4014
	tunnelService(t, port, 60, nil)
	l := newLoad(port, 4)
	good := readFile(t, bedConfig)
	// One that cannot be read, one that cannot be put in force.
	for _, line := range []string{"nonsense\n", fmt.Sprintf("proxy -p%d\n", tcpOrigin(t, func(net.Conn) {}))} {
		breakConfiguration(t, good, line)
	}
	l.mustBeServed(t)
}

func breakConfiguration(t *testing.T, good, line string) {
	t.Helper()
	restarts, _ := strconv.Atoi(property(t, "NRestarts"))
	writeConfig(t, good+line)
	pid := mainPID(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() string {
		if n, _ := strconv.Atoi(property(t, "NRestarts")); n < restarts+3 {
			return fmt.Sprintf("%d restarts", n)
		}
		return ""
	})
	writeConfig(t, good)
	awaitSuccessor(t, pid)
}

// bedUpgrade upgrades under load, kills the supervisor that has taken over while
// the one before still drains, and stops the service.
func bedUpgrade(t *testing.T) {
	const port, socks = 4015, 4016
	stoppedService(t, bedHead+fmt.Sprintf("timeouts 1 5 600 600\ntcppm %d 127.0.0.1 %d\nsocks -p%d\n", port, echoOrigin(t), socks),
		map[string]string{"3proxyd.service.d/watchdog.conf": "[Service]\nWatchdogSec=2\n"})
	systemctl(t, "start", bedService)
	half := dial(t, socks)
	halfHandshake(t, half)
	long, l := stream(t, port), newLoad(port, 4)
	before := stored(t)
	first := mainPID(t)
	if out, err := exec.Command(ctlBin, "upgrade").CombinedOutput(); err != nil {
		t.Fatalf("3proxyctl upgrade: %v: %s", err, out)
	}
	awaitSuccessor(t, first)
	second := mainPID(t)
	// The watchdog watches the new one.
	time.Sleep(4 * time.Second)
	if now := mainPID(t); now != second {
		t.Fatalf("process %d is the main one, not %d", now, second)
	}
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitSuccessor(t, second)
	l.mustBeServed(t)
	long.mustBeWhole(t)
	awaitStored(t, before)
	if !alive(first) {
		t.Errorf("the first supervisor is gone with a session open")
	}
	if old := serviceStatus(t).OldGenerations; len(old) != 1 || old[0].PID != first || old[0].Sessions != 1 {
		t.Errorf("old generations: %+v", old)
	}
	if _, err := half.Write([]byte{5, 1, 0, 1, 127, 0, 0, 1, 0, 1}); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 10)
	if _, err := io.ReadFull(half, answer); err != nil {
		t.Errorf("the session of the first generation: %v", err)
	}
	half.Close()
	eventually(t, patience, func() string {
		if alive(first) {
			return "the first supervisor outlives its sessions"
		}
		return ""
	})
	systemctl(t, "stop", bedService)
	awaitNoProcesses(t)
}
