package ipc

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	shmMagic   = 0x336d68736d797870
	shmVersion = 2
	// shmHeaderSize keeps the loop counters page aligned.
	shmHeaderSize = 4096
)

// shmHeader is the first page of the shared memory. All but rows is written
// once, before any other process has the memory.
type shmHeader struct {
	magic        uint64
	version      uint64
	maxRows      uint64
	maxColumns   uint64
	cellWords    uint64
	counters     uint64
	loopCounters uint64
	rows         atomic.Uint64
}

// shmTable is the layout of the whole file.
type shmTable struct {
	header shmHeader
	_      [shmHeaderSize - unsafe.Sizeof(shmHeader{})]byte
	loops  [MaxRows]LoopCell
	cells  [MaxRows][MaxColumns]Cell
	owners shmOwners
}

const shmSize = int(unsafe.Sizeof(shmTable{}))

// Shm is a mapping of the shared memory. Its methods may be used by any number
// of goroutines and processes at once, but not after Close.
type Shm struct {
	fd    int
	mem   []byte
	table *shmTable
}

// CreateShm creates and maps an empty table. Its size is sealed, so that no
// process can shrink it under another.
func CreateShm() (*Shm, error) {
	fd, err := unix.MemfdCreate("3proxyd-counters", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	m, err := initShm(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	return m, nil
}

func initShm(fd int) (*Shm, error) {
	if err := unix.Ftruncate(fd, int64(shmSize)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	m, err := mapTable(fd)
	if err != nil {
		return nil, err
	}
	m.fd = fd
	h := &m.table.header
	h.magic, h.version = shmMagic, shmVersion
	h.maxRows, h.maxColumns, h.cellWords = MaxRows, MaxColumns, cellWords
	h.counters, h.loopCounters = uint64(NumCounters), uint64(NumLoopCounters)
	return m, nil
}

// MapShm maps the table that another process created, after checking that its
// layout is the one of this binary. The descriptor remains the caller's and is
// not needed any more afterwards; FD of the result is -1.
func MapShm(fd int) (*Shm, error) {
	if err := checkSeals(fd); err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shared memory: %w", os.NewSyscallError("fstat", err))
	}
	if st.Size != int64(shmSize) {
		return nil, fmt.Errorf("shared memory has %d bytes instead of %d", st.Size, shmSize)
	}
	m, err := mapTable(fd)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	if h := &m.table.header; !h.valid() {
		err := fmt.Errorf("shared memory has layout %d, this binary needs %d", h.version, shmVersion)
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// AdoptShm maps the table that another daemon created and takes it over: on
// success the result owns fd.
func AdoptShm(fd int) (*Shm, error) {
	m, err := MapShm(fd)
	if err != nil {
		return nil, err
	}
	m.fd = fd
	return m, nil
}

func mapTable(fd int) (*Shm, error) {
	mem, err := unix.Mmap(fd, 0, shmSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Shm{fd: -1, mem: mem, table: (*shmTable)(unsafe.Pointer(unsafe.SliceData(mem)))}, nil
}

// valid says whether the layout is the one of this binary. A newer or older one
// may have another number of counters: they are only ever added at the end, so
// that those both have are in the same place.
func (h *shmHeader) valid() bool {
	return h.magic == shmMagic && h.version == shmVersion &&
		h.maxRows == MaxRows && h.maxColumns == MaxColumns && h.cellWords == cellWords &&
		h.counters < cellWords && h.loopCounters < cellWords
}

// FD returns the descriptor of a table made by CreateShm or AdoptShm, which own
// it.
func (m *Shm) FD() int { return m.fd }

// Cell returns the counters of a service (column) in a worker (row). It panics
// if either is out of range.
func (m *Shm) Cell(row, col int) *Cell { return &m.table.cells[row][col] }

// Loop returns the loop counters of a worker.
func (m *Shm) Loop(row int) *LoopCell { return &m.table.loops[row] }

// Rows returns the number of rows in use: every worker, running or draining,
// has a row below it. It is the rows argument of Acquire.
func (m *Shm) Rows() int { return min(int(m.table.header.rows.Load()), MaxRows) }

// SetRows raises or lowers the number of rows in use; only the supervisor may.
// It must be raised before the worker of a new row is started.
func (m *Shm) SetRows(n int) { m.table.header.rows.Store(uint64(n)) }

// Close unmaps the table and closes the descriptor of a created one.
func (m *Shm) Close() error {
	err := unix.Munmap(m.mem)
	m.mem, m.table = nil, nil
	if m.fd >= 0 {
		_ = unix.Close(m.fd)
		m.fd = -1
	}
	return os.NewSyscallError("munmap", err)
}
