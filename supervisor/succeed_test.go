package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"3proxyd/config"
	"3proxyd/ipc"
)

// orphanNamed starts a process without a living parent, with a command line
// that begins with name.
func orphanNamed(t *testing.T, name string) int {
	t.Helper()
	out, err := exec.Command("bash", "-c", `exec -a "$0" sleep 60 >&- 2>&- & echo $!`, name).Output()
	if err != nil {
		t.Skip("no bash: ", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	for range 1000 {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), name) {
			return pid
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the process does not start")
	return 0
}

// TestLateOrphan has a worker in the table of an earlier supervisor that does
// not answer, and a process that only has the number of one.
func TestLateOrphan(t *testing.T) {
	worker, stranger := orphanNamed(t, workerName+"0"), orphanNamed(t, "stranger")
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetRows(3)
	shm.SetRowOwner(0, 0, worker)
	shm.SetRowOwner(1, 1, stranger)
	shm.SetRowOwner(2, 0, 1<<22)
	d := &daemon{
		startConfig: &config.Config{Control: config.Control{Path: filepath.Join(t.TempDir(), "c")}},
		messages:    &messages{lines: make(chan message, 4)},
		legacy:      legacy{shm: shm},
	}
	d.findLegacy()
	for tries := 0; isWorker(worker); tries++ {
		if tries == 1000 {
			t.Fatal("the worker goes on")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := syscall.Kill(stranger, 0); err != nil {
		t.Errorf("the stranger: %v", err)
	}
	select {
	case m := <-d.lines:
		if !strings.Contains(m.text, "does not answer; killing it") {
			t.Errorf("message %q", m.text)
		}
	default:
		t.Error("no message")
	}
}

// TestRestoreSlots goes on with the table of a supervisor that had three
// workers, of which one is left, and whose counters are someone else's.
func TestRestoreSlots(t *testing.T) {
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetRows(3)
	shm.SetColumnOwner(0, "proxy@127.0.0.1:1")
	shm.SetColumnOwner(1, "socks@127.0.0.1:2")
	for row := range 3 {
		shm.SetRowOwner(row, row, 1<<22)
		shm.Cell(row, 1).Add(ipc.Accepted, 10)
		shm.Cell(row, 1).Add(ipc.Open, 2)
	}
	memory := identity(shm.FD())
	left := &orphan{Orphan: ipc.Orphan{Slot: 2, Row: 2, Gen: 7}, memory: memory}
	other := &orphan{Orphan: ipc.Orphan{Slot: 0, Row: 0, Gen: 3}, memory: memory + 1}
	wrong := &orphan{Orphan: ipc.Orphan{Slot: 0, Row: 99}, memory: memory}
	d := &daemon{
		startConfig: &config.Config{Control: config.Control{Path: filepath.Join(t.TempDir(), "c")}},
		shm:         shm, columns: newColumns(shm), slots: []*slot{newSlot(0, 0), newSlot(1, 0)},
		legacy: legacy{shm: shm, orphans: []*orphan{left, other, wrong}},
	}
	d.restoreSlots()
	if left.Row != 2 || other.Row != noRow || wrong.Row != noRow || d.lastGen != 7 {
		t.Errorf("rows %d, %d, %d, generation %d", left.Row, other.Row, wrong.Row, d.lastGen)
	}
	if open := d.openSessions(); open != 2 {
		t.Errorf("%d sessions are open", open)
	}
	if s := d.slots[0]; len(s.rows) != 2 || !s.busy[2] || s.busy[0] {
		t.Errorf("slot 0 has rows %v, busy %v", s.rows, s.busy)
	}
	cols, err := d.columns.assign([]string{"new@", "socks@127.0.0.1:2"}, nil)
	if err != nil || cols[0] != 2 || cols[1] != 1 {
		t.Errorf("columns %v, %v", cols, err)
	}
	if n := shm.Cell(0, 1).Get(ipc.Accepted); n != 10 {
		t.Errorf("%d connections are counted", n)
	}
}

// TestOddOrphan has an orphan of another version: it is left alone.
func TestOddOrphan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	socket, err := ipc.ListenOrphan(ipc.Family(path))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int)
	go func() {
		n := 0
		defer func() { accepted <- n }()
		for {
			conn, _, err := socket.Accept()
			if err != nil {
				return
			}
			n++
			_ = conn.Send(ipc.MsgOrphan, 0, ipc.Orphan{Version: ipc.Version + 1})
			_ = conn.Close()
		}
	}()
	shm, err := ipc.CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	shm.SetRows(1)
	shm.SetRowOwner(0, 0, os.Getpid())
	d := &daemon{
		startConfig: &config.Config{Control: config.Control{Path: path}},
		messages:    &messages{lines: make(chan message, 4)},
		legacy:      legacy{shm: shm},
	}
	d.findLegacy()
	_ = socket.Close()
	if n := <-accepted; n != 1 || len(d.legacy.orphans) > 0 || !d.hasAnswered(os.Getpid()) {
		t.Errorf("%d connections, %d orphans, failed %v", n, len(d.legacy.orphans), d.legacy.failed)
	}
	select {
	case m := <-d.lines:
		if !strings.Contains(m.text, "cannot be taken over") {
			t.Errorf("message %q", m.text)
		}
	default:
		t.Error("no message")
	}
}
