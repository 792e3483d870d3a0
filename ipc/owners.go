package ipc

import (
	"bytes"
	"os"
	"sync/atomic"
)

// maxOwner is the greatest length of the name of a column in bytes.
const maxOwner = 511

// shmOwners say what columns and rows stand for, so that a supervisor can go on
// with the table of one that has died. Only supervisors read and write them.
type shmOwners struct {
	columns [MaxColumns][maxOwner + 1]byte
	rows    [MaxRows]rowOwner
}

// rowOwner is the slot of a row plus one, 0 for a row never used, and the
// process that writes it, 0 for none, with the one that supervises it in the
// upper half.
type rowOwner struct{ slot, pid atomic.Uint64 }

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

// SetRowOwner notes the slot whose processes use a row, and the one that does,
// 0 for none, which this process supervises.
func (m *Shm) SetRowOwner(row, slot, pid int) {
	owner := &m.table.owners.rows[row]
	owner.slot.Store(uint64(slot) + 1)
	v := uint64(pid)
	if pid > 0 {
		v |= uint64(os.Getpid()) << 32
	}
	owner.pid.Store(v)
}

// RowSlot returns the slot of a row, 0 for a row never used.
func (m *Shm) RowSlot(row int) int {
	v := m.table.owners.rows[row].slot.Load()
	if v == 0 || v > MaxRows {
		return 0
	}
	return int(v - 1)
}

// RowPID returns the process that was last known to use a row, 0 for none.
func (m *Shm) RowPID(row int) int {
	return validPID(m.table.owners.rows[row].pid.Load() & (1<<32 - 1))
}

// RowSupervisor returns the process that was last known to supervise RowPID, 0
// for none.
func (m *Shm) RowSupervisor(row int) int {
	return validPID(m.table.owners.rows[row].pid.Load() >> 32)
}

func validPID(v uint64) int {
	if v > 1<<22 { // PID_MAX_LIMIT, proc(5)
		return 0
	}
	return int(v)
}
