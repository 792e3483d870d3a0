package ipc

import (
	"sync"
	"testing"
)

// TestTransferIsOneStep moves places up and down the rows while others ask for
// more: the sum never shows a free one.
func TestTransferIsOneStep(t *testing.T) {
	m := newShm(t)
	const col, max, moves = 3, 10, 20_000
	m.SetRows(4)
	for range max {
		if !m.Acquire(0, col, 4, max) {
			t.Fatal("no place")
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if m.Acquire(3, col, 4, max) {
					t.Error("one too many was let in")
					return
				}
			}
		})
	}
	for i := range moves {
		from, to := 0, 2
		if i%2 == 1 {
			from, to = to, from
		}
		if r := m.Transfer(col, from, 0, to); r != Transferred {
			t.Fatalf("transfer: %d", r)
		}
	}
	close(stop)
	wg.Wait()
	if n := m.OpenSum(col, 4); n != max {
		t.Errorf("%d open, want %d", n, max)
	}
}

func TestTransferFromDeadGiver(t *testing.T) {
	m := newShm(t)
	m.SetRows(2)
	m.Acquire(0, 0, 2, 5)
	before := m.Incarnation(0)
	m.TakeBack(0, 1)
	if r := m.Transfer(0, 0, before, 1); r != GiverGone || m.OpenSum(0, 2) != 0 {
		t.Errorf("result %d, %d open", r, m.OpenSum(0, 2))
	}
}

// TestRefusalDoesNotShow asks for a place again and again while none is free:
// the sum never shows more than there are.
func TestRefusalDoesNotShow(t *testing.T) {
	m := newShm(t)
	m.SetRows(2)
	m.Acquire(0, 0, 2, 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.Acquire(1, 0, 2, 1)
			}
		}
	})
	for range 20_000 {
		if n := m.OpenSum(0, 2); n != 1 {
			t.Errorf("%d open", n)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// TestLedgerOfDeadHolder has a worker die while it changes a column.
func TestLedgerOfDeadHolder(t *testing.T) {
	m := newShm(t)
	m.SetRows(2)
	m.Acquire(0, 0, 2, 5)
	if !m.lockLedger(0, 2) {
		t.Fatal("not free")
	}
	m.Cell(1, 0)[Open].Add(1)
	if m.Acquire(0, 0, 2, 5) {
		t.Error("a place was given while the sum was not known")
	}
	if r := m.Transfer(0, 0, 0, 1); r != LedgerBusy {
		t.Errorf("transfer: %d", r)
	}
	m.TakeBack(1, 1)
	if !m.Acquire(0, 0, 2, 2) || m.OpenSum(0, 2) != 2 {
		t.Errorf("%d open, want 2", m.OpenSum(0, 2))
	}
}
