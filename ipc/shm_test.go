package ipc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const shmChildEnv = "IPC_TEST_SHM_CHILD"

func TestMain(m *testing.M) {
	if n := os.Getenv(shmChildEnv); n != "" {
		shmChild(n)
	}
	os.Exit(m.Run())
}

// shmChild takes n connections in row 1 and waits to be killed.
func shmChild(count string) {
	n, _ := strconv.Atoi(count)
	m, err := MapShm(3)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for range n {
		if !m.Acquire(1, 5, m.Rows(), 100) {
			fmt.Println("refused")
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func newShm(t *testing.T) *Shm {
	t.Helper()
	m, err := CreateShm()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func TestShmIsShared(t *testing.T) {
	a := newShm(t)
	b, err := MapShm(a.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a.Cell(MaxRows-1, MaxColumns-1).Add(BytesIn, 7)
	a.Loop(3).Set(Heartbeat, 9)
	a.SetRows(4)
	if got := b.Cell(MaxRows-1, MaxColumns-1).Get(BytesIn); got != 7 {
		t.Errorf("counter %d", got)
	}
	if got := b.Loop(3).Get(Heartbeat); got != 9 {
		t.Errorf("loop counter %d", got)
	}
	if b.Rows() != 4 {
		t.Errorf("%d rows", b.Rows())
	}
}

func TestMapShmRefusesOtherLayouts(t *testing.T) {
	small, err := WriteMemfd("small", make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if _, err := MapShm(int(small.Fd())); err == nil {
		t.Error("a memfd of another size was mapped")
	}
	m := newShm(t)
	m.table.header.maxColumns++
	if _, err := MapShm(m.FD()); err == nil {
		t.Error("another layout was mapped")
	}
}

// TestAcquireIsExact lets many rows compete: the sum must never exceed the
// limit, and every refused or released connection must be given back.
func TestAcquireIsExact(t *testing.T) {
	const rows, limit, turns = 8, 5, 4000
	m := newShm(t)
	m.SetRows(rows)
	var held, granted atomic.Int64
	var wg sync.WaitGroup
	for row := range rows {
		wg.Go(func() {
			for range turns {
				if !m.Acquire(row, 0, m.Rows(), limit) {
					continue
				}
				if now := held.Add(1); now > limit {
					t.Errorf("%d connections held at once", now)
				}
				granted.Add(1)
				held.Add(-1)
				m.Release(row, 0)
			}
		})
	}
	wg.Wait()
	if granted.Load() == 0 {
		t.Error("nothing was granted")
	}
	if sum := m.OpenSum(0, rows); sum != 0 {
		t.Errorf("%d connections remain", sum)
	}
	for range limit {
		if !m.Acquire(1, 0, rows, limit) {
			t.Fatal("a free place was refused")
		}
	}
	if m.Acquire(2, 0, rows, limit) {
		t.Error("a place too many was granted")
	}
}

func TestKilledWorkersShareIsTakenBack(t *testing.T) {
	m := newShm(t)
	m.SetRows(2)
	m.Acquire(0, 5, 2, 100)
	m.Loop(1).Set(PipesOpen, 3)
	m.Cell(1, 5).Add(Accepted, 11)

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), shmChildEnv+"=17")
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, m.FD())), "shm")}
	stdin, _ := child.StdinPipe()
	defer stdin.Close()
	stdout, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = child.ExtraFiles[0].Close()
	line := make([]byte, 6)
	if _, err := io.ReadFull(stdout, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()

	if sum := m.OpenSum(5, 2); sum != 18 {
		t.Errorf("%d connections before taking back", sum)
	}
	m.TakeBack(1, 6)
	if sum := m.OpenSum(5, 2); sum != 1 {
		t.Errorf("%d connections after taking back", sum)
	}
	if m.Loop(1).Get(PipesOpen) != 0 {
		t.Error("pipes were not taken back")
	}
	if m.Cell(1, 5).Get(Accepted) != 11 {
		t.Error("a total was lost")
	}
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
