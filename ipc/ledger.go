package ipc

import (
	"sync/atomic"
	"time"
)

// The ledger of a column makes one step of what changes two rows: the place of
// a session that moves from one worker to another. It is a word that lies in
// row 0 and counts the steps; while one is under way it names the row of the
// worker that takes it. A sum over the rows is a number of open connections
// only if the word is the same before and after, and names nobody.
const (
	ledgerWord      = cellWords - 1
	incarnationWord = cellWords - 1

	ledgerHolder     = 1<<16 - 1
	ledgerStep       = 1 << 16
	ledgerSupervisor = ledgerHolder
)

// ledgerTries bounds the attempts to read or change a column while others
// change it: a holder is at it for some nanoseconds, unless it is preempted or
// killed; the supervisor frees the ledger of a dead one. The first tries are
// made at once, the others after a millisecond each.
const (
	ledgerTries     = 220
	ledgerFastTries = 200
)

func (m *Shm) ledger(col int) *atomic.Uint64 { return &m.table.cells[0][col][ledgerWord] }

func (m *Shm) incarnation(row int) *atomic.Uint64 { return &m.table.loops[row][incarnationWord] }

// Incarnation returns a number that changes when the worker of a row has ended
// and its gauges have been taken back.
func (m *Shm) Incarnation(row int) uint64 { return m.incarnation(row).Load() }

// lockLedger makes holder the only one to change the column in more than its
// own row; it is false when another one stays at it.
func (m *Shm) lockLedger(col int, holder uint64) bool {
	word := m.ledger(col)
	for try := range ledgerTries {
		v := word.Load()
		if v&ledgerHolder == 0 && word.CompareAndSwap(v, v|holder) {
			return true
		}
		if try >= ledgerFastTries {
			time.Sleep(time.Millisecond)
		}
	}
	return false
}

func (m *Shm) unlockLedger(col int) {
	word := m.ledger(col)
	word.Store(word.Load()&^ledgerHolder + ledgerStep)
}

// breakLedger frees the ledger that a dead worker holds.
func (m *Shm) breakLedger(col, row int) {
	word := m.ledger(col)
	if v := word.Load(); v&ledgerHolder == uint64(row)+1 {
		word.CompareAndSwap(v, v&^ledgerHolder+ledgerStep)
	}
}

// TransferResult is the outcome of Transfer.
type TransferResult uint8

// The outcomes of Transfer.
const (
	// Transferred: the place is the taker's.
	Transferred TransferResult = iota
	// GiverGone: the giver has ended, and its places with it. The taker needs
	// a new one.
	GiverGone
	// LedgerBusy: nothing has changed; it may be tried again later.
	LedgerBusy
)

// Transfer moves one connection's place from row from, in the given
// incarnation, to row to. Only the worker of row to may call it. At no time
// does a sum over the rows show one more or one less.
func (m *Shm) Transfer(col, from int, incarnation uint64, to int) TransferResult {
	if !m.lockLedger(col, uint64(to)+1) {
		return LedgerBusy
	}
	defer m.unlockLedger(col)
	if m.Incarnation(from) != incarnation {
		return GiverGone
	}
	m.Cell(to, col)[Open].Add(1)
	m.Cell(from, col)[Open].Add(^uint64(0))
	return Transferred
}

// Settle corrects the number of open connections of a worker's own row after
// one that took sessions over may have died in the middle of it. Transfers from
// the row that are still to come find the giver gone.
func (m *Shm) Settle(row, col int, n uint64) {
	m.incarnation(row).Add(1)
	m.lockedStore(row, col, n, uint64(row)+1)
}

// lockedStore sets a count of open connections when no transfer is under way
// that has seen an older incarnation.
func (m *Shm) lockedStore(row, col int, n, holder uint64) {
	locked := m.lockLedger(col, holder)
	m.Cell(row, col)[Open].Store(n)
	if locked {
		m.unlockLedger(col)
	}
}

// openSum adds up the first rows rows of a column; it is false when the column
// has been changing all the time.
func (m *Shm) openSum(col, rows int) (uint64, bool) {
	word := m.ledger(col)
	var sum uint64
	for range ledgerFastTries {
		before := word.Load()
		sum = 0
		for row := range rows {
			sum += m.Cell(row, col)[Open].Load()
		}
		if before&ledgerHolder == 0 && word.Load() == before {
			return sum, true
		}
	}
	return sum, false
}
