package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"3proxyd/ipc"
)

// columns gives each service its column in the shared memory. A service keeps
// its column as long as it is configured; the column of a service that is gone
// is given away only when no worker has a connection of it any more.
type columns struct {
	shm *ipc.Shm
	// mu keeps byID and past from changing while the counters are read.
	mu sync.Mutex
	// used is the number of columns ever given; any goroutine may read it.
	used atomic.Int32
	byID map[string]int
	// past keeps, for each row, the totals of services whose column has been
	// given away.
	past map[int]*totals
	// frozen keeps columns from being given away.
	frozen bool
}

func newColumns(shm *ipc.Shm) *columns {
	c := &columns{shm: shm, byID: map[string]int{}, past: map[int]*totals{}}
	c.restore()
	return c
}

// restore goes on with the columns of an earlier supervisor, or with those a
// successor has given to services of its own.
func (c *columns) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for col := int(c.used.Load()); col < ipc.MaxColumns; col++ {
		id := c.shm.ColumnOwner(col)
		if id == "" {
			return
		}
		c.byID[id] = col
		c.used.Store(int32(col) + 1)
	}
}

// assign returns the column of each service; services of inForce keep theirs
// even when they are not among ids.
func (c *columns) assign(ids []string, inForce map[string]bool) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	cols := make([]int, len(ids))
	for i, id := range ids {
		if col, ok := c.byID[id]; ok {
			cols[i] = col
			continue
		}
		col, err := c.free(func(id string) bool { return wanted[id] || inForce[id] })
		if err != nil {
			return nil, err
		}
		c.byID[id] = col
		c.shm.SetColumnOwner(col, id)
		cols[i] = col
	}
	return cols, nil
}

// free returns a column for a new service: one never used before, or else that
// of a service that is gone and idle.
func (c *columns) free(keep func(id string) bool) (int, error) {
	if used := c.used.Load(); used < ipc.MaxColumns {
		c.used.Store(used + 1)
		return int(used), nil
	}
	for id, col := range c.byID {
		if c.frozen || keep(id) || c.shm.OpenSum(col, c.shm.Rows()) > 0 {
			continue
		}
		delete(c.byID, id)
		c.retire(col)
		return col, nil
	}
	return 0, fmt.Errorf("no room for another service's counters: %d services are configured or still have sessions", ipc.MaxColumns)
}

// retire moves the totals of a column to past and zeroes it.
func (c *columns) retire(col int) {
	for row := range c.shm.Rows() {
		cell := c.shm.Cell(row, col)
		if c.past[row] == nil {
			c.past[row] = new(totals)
		}
		c.past[row].add(cell)
		for k := range ipc.NumCounters {
			cell[k].Store(0)
		}
	}
}

// ids returns the services that have a column.
func (c *columns) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.byID))
}

// export returns the state for a successor: the column of each service, the
// number of columns ever given, and the totals of services that are gone, by
// row.
func (c *columns) export() (byID map[string]int, used int, past map[int][]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	past = map[int][]uint64{}
	for row, t := range c.past {
		past[row] = slices.Clone(t[:])
	}
	return maps.Clone(c.byID), int(c.used.Load()), past
}

// succeed takes over the state of a predecessor. While it is still there no
// column may be given to another service.
func (c *columns) succeed(byID map[string]int, used int, past map[int][]uint64) error {
	if used < 0 || used > ipc.MaxColumns {
		return fmt.Errorf("%d columns of counters", used)
	}
	for id, col := range byID {
		if col < 0 || col >= used {
			return fmt.Errorf("column %d of %d for %s", col, used, id)
		}
	}
	for row, values := range past {
		if row < 0 || row >= ipc.MaxRows {
			return fmt.Errorf("row %d of counters", row)
		}
		t := new(totals)
		copy(t[:], values)
		c.past[row] = t
	}
	c.used.Store(int32(used))
	if byID != nil {
		c.byID = byID
	}
	c.frozen = true
	return nil
}

// thaw says that the predecessor is gone.
func (c *columns) thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = false
}

// forget zeroes, in the first rows rows, the columns up to used that a successor
// which has failed had given to its services.
func (c *columns) forget(rows, used int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for row := range rows {
		for col := int(c.used.Load()); col < used; col++ {
			cell := c.shm.Cell(row, col)
			for k := range ipc.NumCounters {
				cell[k].Store(0)
			}
			c.shm.SetColumnOwner(col, "")
		}
	}
}
