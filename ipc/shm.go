package ipc

import "sync/atomic"

// The shared memory is one memfd, created by the supervisor and mapped by
// every process. It is a table: a row for each worker process (slot and
// incarnation share a row, so that totals survive a crash), a column for each
// service. The file is sparse; only pages in use cost memory.
//
// Writers: a worker writes its own row only, but for the place of a session
// that it takes from another worker (ledger.go). The supervisor writes the row of
// a worker only when that worker is dead (to take back its gauges) and when it
// gives a column to another service. All accesses are atomic.
const (
	// MaxRows is the number of worker rows.
	MaxRows = 256
	// MaxColumns is the number of services (config.MaxServices).
	MaxColumns = 4096
	// cellWords is the size of a cell in 64-bit words; a power of two that
	// leaves room for more counters.
	cellWords = 32
)

// Cell is one service's counters in one worker.
type Cell [cellWords]atomic.Uint64

// Add adds n to a counter.
func (c *Cell) Add(k Counter, n uint64) { c[k].Add(n) }

// Get returns the value of a counter.
func (c *Cell) Get(k Counter) uint64 { return c[k].Load() }

// LoopCell is one worker's loop counters.
type LoopCell [cellWords]atomic.Uint64

// Add adds n to a counter.
func (c *LoopCell) Add(k LoopCounter, n uint64) { c[k].Add(n) }

// Set sets a gauge.
func (c *LoopCell) Set(k LoopCounter, v uint64) { c[k].Store(v) }

// Get returns the value of a counter.
func (c *LoopCell) Get(k LoopCounter) uint64 { return c[k].Load() }

// Acquire takes one connection of the service in column col for the worker in
// row row, unless the sum over the first rows rows would exceed max. The own
// count is raised first and the sum taken after, so that two workers may both
// be refused the last place for a moment, but never both get it; and a killed
// worker's share is exactly its own count, which the supervisor takes back.
func (m *Shm) Acquire(row, col, rows int, max uint64) bool {
	// While all places are taken nothing is raised that would show in the sum.
	if sum, exact := m.openSum(col, rows); sum >= max || !exact {
		return false
	}
	own := &m.Cell(row, col)[Open]
	own.Add(1)
	sum, exact := m.openSum(col, rows)
	if sum > max || !exact {
		own.Add(^uint64(0))
		return false
	}
	return true
}

// Release gives a connection back.
func (m *Shm) Release(row, col int) { m.Cell(row, col)[Open].Add(^uint64(0)) }

// TakeBack zeroes the gauges of a dead worker's row in the first cols columns:
// its open connections and pipes. Only the supervisor may call it.
func (m *Shm) TakeBack(row, cols int) {
	m.incarnation(row).Add(1)
	for col := range cols {
		m.breakLedger(col, row)
		m.lockedStore(row, col, 0, ledgerSupervisor)
	}
	m.Loop(row)[PipesOpen].Store(0)
}

// OpenSum returns the number of open connections of a column in the first rows
// rows.
func (m *Shm) OpenSum(col, rows int) uint64 {
	sum, _ := m.openSum(col, rows)
	return sum
}
