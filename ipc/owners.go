package ipc

import (
	"bytes"
	"sync/atomic"
)

// maxOwner is the greatest length of the name of a column in bytes.
const maxOwner = 511

// shmOwners say what columns and rows stand for, so that a supervisor can go on
// with the table of one that has died. Only supervisors read and write them.
type shmOwners struct {
	columns [MaxColumns][maxOwner + 1]byte
	// slots has the slot of each row plus one, 0 for a row never used.
	slots [MaxRows]atomic.Uint64
}

// SetColumnOwner notes the service a column belongs to. A longer id than 511
// bytes is cut.
func (m *Shm) SetColumnOwner(col int, id string) {
	name := &m.table.owners.columns[col]
	n := copy(name[:maxOwner], id)
	clear(name[n:])
}

// ColumnOwner returns the service of a column, "" when it was never used.
func (m *Shm) ColumnOwner(col int) string {
	name := bytes.Clone(m.table.owners.columns[col][:])
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	return string(name)
}

// SetRowSlot notes the slot whose processes use a row.
func (m *Shm) SetRowSlot(row, slot int) { m.table.owners.slots[row].Store(uint64(slot) + 1) }

// RowSlot returns the slot of a row; it is false for a row never used.
func (m *Shm) RowSlot(row int) (int, bool) {
	v := m.table.owners.slots[row].Load()
	if v == 0 || v > MaxRows {
		return 0, false
	}
	return int(v - 1), true
}
