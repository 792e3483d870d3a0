package sys

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SQE is an entry of the submission queue. Its Prepare methods fill it whole.
type SQE struct {
	opcode   uint8
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	userData uint64
	bufGroup uint16
	_        uint16
	_        int32
	_        [2]uint64
}

// uringParams is struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
		_                                                           uint64
	}
	cq struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
		_                                                           uint64
	}
}

// getEventsArg is struct io_uring_getevents_arg.
type getEventsArg struct {
	sigmask   uint64
	sigmaskSz uint32
	minWait   uint32
	ts        uint64
}

// providedBuf is struct io_uring_buf; the tail of a buffer ring lies in the
// last two bytes of its first entry.
type providedBuf struct {
	addr uint64
	len  uint32
	bid  uint16
	tail uint16
}

// Uring is an io_uring(7) instance for one thread: the first call of Enable
// binds it to its thread, and work of the kernel for it is done when that
// thread enters (IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_DEFER_TASKRUN of
// io_uring_setup(2)).
type Uring struct {
	fd         int32
	enterFD    int32
	enterFlags uintptr
	features   uint32

	ring, sqeMem []byte
	sqHead       *uint32
	sqTail       *uint32
	sqFlags      *uint32
	sqMask       uint32
	sqEntries    uint32
	sqLocal      uint32
	submitted    uint32
	sqes         []SQE
	cqHead       *uint32
	cqTail       *uint32
	cqMask       uint32
	cqes         []CQE

	buffers []*Buffers
	// told is how many sends since the last Reap have a completion for certain.
	told uintptr

	// What the kernel reads during a call must not lie on a stack that moves.
	arg   getEventsArg
	ts    unix.Timespec
	addrs []Sockaddr
}

// NewUring opens a ring of entries submissions and cqEntries completions. The
// error says why the kernel or its settings do not allow one.
func NewUring(entries, cqEntries int) (*Uring, error) {
	p := uringParams{
		flags:     setupCQSize | setupRDisabled | setupSubmitAll | setupSingleIssuer | setupDeferTaskrun,
		cqEntries: uint32(cqEntries),
	}
	fd, _, errno := syscall.RawSyscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, uringRefused(errno)
	}
	u := &Uring{fd: int32(fd), enterFD: int32(fd), features: p.features}
	if err := u.setUp(&p); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

func (u *Uring) setUp(p *uringParams) error {
	unix.CloseOnExec(int(u.fd))
	if p.features&neededFeatures != neededFeatures {
		return errors.New("the kernel's io_uring is too old (Linux 6.1 or newer is needed)")
	}
	if err := u.probeOps(); err != nil {
		return err
	}
	size := max(int(p.sq.array)+int(p.sqEntries)*4, int(p.cq.cqes)+int(p.cqEntries)*int(unsafe.Sizeof(CQE{})))
	var err error
	if u.ring, err = unix.Mmap(int(u.fd), offSQRing, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("mmap of the ring: %w", err)
	}
	if u.sqeMem, err = unix.Mmap(int(u.fd), offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(SQE{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("mmap of the submissions: %w", err)
	}
	u.sqHead, u.sqTail, u.sqFlags = u.at(p.sq.head), u.at(p.sq.tail), u.at(p.sq.flags)
	u.sqMask, u.sqEntries = *u.at(p.sq.ringMask), p.sqEntries
	u.cqHead, u.cqTail, u.cqMask = u.at(p.cq.head), u.at(p.cq.tail), *u.at(p.cq.ringMask)
	u.sqes = unsafe.Slice((*SQE)(unsafe.Pointer(unsafe.SliceData(u.sqeMem))), p.sqEntries)
	u.cqes = unsafe.Slice((*CQE)(unsafe.Pointer(&u.ring[p.cq.cqes])), p.cqEntries)
	// Entry i of the queue is always submission i.
	for i, array := uint32(0), unsafe.Slice(u.at(p.sq.array), p.sqEntries); i < p.sqEntries; i++ {
		array[i] = i
	}
	u.addrs = make([]Sockaddr, p.sqEntries)
	u.arg.ts = uint64(uintptr(unsafe.Pointer(&u.ts)))
	if u.features&featNoIOWait != 0 {
		u.enterFlags |= enterNoIOWait
	}
	return nil
}

func (u *Uring) at(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.ring[off])) }

// probeOps checks that the kernel has every operation that is needed.
func (u *Uring) probeOps() error {
	type op struct {
		op, _ uint8
		flags uint16
		_     uint32
	}
	var probe struct {
		lastOp, opsLen uint8
		_              uint16
		_              [3]uint32
		ops            [64]op
	}
	if errno := u.register(registerProbe, unsafe.Pointer(&probe), len(probe.ops)); errno != 0 {
		return fmt.Errorf("io_uring_register of a probe: %w", errno)
	}
	for _, n := range neededOps {
		if n >= probe.opsLen || probe.ops[n].flags&1 == 0 {
			return fmt.Errorf("the kernel's io_uring lacks operation %d", n)
		}
	}
	return nil
}

func (u *Uring) register(op uintptr, arg unsafe.Pointer, n int) unix.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(u.fd), op, uintptr(arg), uintptr(n), 0, 0)
	return e
}

// Buffers is a group of buffers that the kernel receives into. The memory is
// outside the Go heap.
type Buffers struct {
	group     uint16
	mem, ring []byte
	entries   []providedBuf
	size      int
	tail      uint16
}

// ProvideBuffers gives the kernel n buffers (a power of two) of size bytes as
// group.
func (u *Uring) ProvideBuffers(group uint16, n, size int) (*Buffers, error) {
	b := &Buffers{group: group, size: size}
	u.buffers = append(u.buffers, b)
	var err error
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON
	if b.mem, err = unix.Mmap(-1, 0, n*size, prot, flags); err != nil {
		return nil, fmt.Errorf("mmap of receive buffers: %w", err)
	}
	if b.ring, err = unix.Mmap(-1, 0, n*int(unsafe.Sizeof(providedBuf{})), prot, flags); err != nil {
		return nil, fmt.Errorf("mmap of the ring of buffers: %w", err)
	}
	var reg struct {
		addr         uint64
		entries      uint32
		group, flags uint16
		_            [3]uint64
	}
	base := unsafe.Pointer(unsafe.SliceData(b.ring))
	reg.addr, reg.entries, reg.group = uint64(uintptr(base)), uint32(n), group
	if errno := u.register(registerPbufRing, unsafe.Pointer(&reg), 1); errno != 0 {
		return nil, fmt.Errorf("io_uring_register of receive buffers: %w", errno)
	}
	b.entries = unsafe.Slice((*providedBuf)(base), n)
	for i := range n {
		b.Recycle(uint16(i))
	}
	b.Commit()
	return b, nil
}

// Get returns the buffer id.
func (b *Buffers) Get(id uint16) []byte {
	off := int(id) * b.size
	return b.mem[off : off+b.size : off+b.size]
}

// Recycle gives a buffer back; the kernel sees it after Commit.
func (b *Buffers) Recycle(id uint16) {
	e := &b.entries[int(b.tail)&(len(b.entries)-1)]
	e.addr = uint64(uintptr(unsafe.Pointer(&b.mem[int(id)*b.size])))
	e.len, e.bid = uint32(b.size), id
	b.tail++
}

// Commit shows the kernel the buffers that have been recycled.
func (b *Buffers) Commit() {
	// The tail shares a word with the first entry's number, which only this
	// thread writes. An atomic store of the word orders it after the entries.
	p := (*uint32)(unsafe.Pointer(&b.entries[0].bid))
	atomic.StoreUint32(p, uint32(b.entries[0].bid)|uint32(b.tail)<<16)
}

func (b *Buffers) unmap() {
	for _, m := range [][]byte{b.ring, b.mem} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
}

// Enable binds the ring to the calling thread, which must be the only one to
// use it from now on. Nothing can be submitted before.
func (u *Uring) Enable() unix.Errno {
	if errno := u.register(registerEnableRings, nil, 0); errno != 0 {
		return errno
	}
	// A registered descriptor of the ring itself saves its look-up with every
	// call; it belongs to the thread.
	reg := struct {
		offset, resv uint32
		data         uint64
	}{offset: 1<<32 - 1, data: uint64(u.fd)}
	if u.register(registerRingFDs, unsafe.Pointer(&reg), 1) == 0 {
		u.enterFD = int32(reg.offset)
		u.enterFlags |= enterRegisteredRing
	}
	return 0
}

// Close closes the ring; requests that are under way are cancelled by the
// kernel.
func (u *Uring) Close() {
	Close(u.fd)
	for _, b := range u.buffers {
		b.unmap()
	}
	for _, m := range [][]byte{u.ring, u.sqeMem} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	*u = Uring{fd: -1}
}

// Room returns how many submissions the queue can take before Enter.
func (u *Uring) Room() int {
	return int(u.sqEntries - (u.sqLocal - atomic.LoadUint32(u.sqHead)))
}

// next returns the next free entry of the submission queue. The caller has
// looked at Room.
func (u *Uring) next() *SQE {
	s := &u.sqes[u.sqLocal&u.sqMask]
	u.sqLocal++
	return s
}

// Recv receives at most n bytes into a buffer of b, recv(2); data names the
// completion. The socket is taken to be empty now.
func (u *Uring) Recv(fd int32, n int, b *Buffers, data uint64) {
	u.recv(fd, n, b, recvPollFirst, data)
}

// RecvNow is Recv of a socket that may have input already, whose completion then
// comes before those of what is submitted after it.
func (u *Uring) RecvNow(fd int32, n int, b *Buffers, data uint64) { u.recv(fd, n, b, 0, data) }

func (u *Uring) recv(fd int32, n int, b *Buffers, how uint16, data uint64) {
	*u.next() = SQE{
		opcode: opRecv, flags: sqeBufferSelect, ioprio: how,
		fd: fd, len: uint32(n), bufGroup: b.group, userData: data,
	}
}

// Send sends p, send(2). There is no completion when all of it has been taken
// at once, and one with the number of bytes, or an errno, when not. p must stay
// as it is until Enter has returned.
func (u *Uring) Send(fd int32, p []byte, data uint64) { u.send(fd, p, sqeCQESkip, data) }

// SendTold is Send with a completion in any case, which does not end a wait of
// Enter.
func (u *Uring) SendTold(fd int32, p []byte, data uint64) {
	u.told++
	u.send(fd, p, 0, data)
}

func (u *Uring) send(fd int32, p []byte, flags uint8, data uint64) {
	*u.next() = SQE{
		opcode: opSend, flags: flags, fd: fd, userData: data,
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))), len: uint32(len(p)),
		opFlags: unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT | unix.MSG_WAITALL,
	}
}

// Poll waits once for events of poll(2) on fd, which may have EPOLLEXCLUSIVE.
func (u *Uring) Poll(fd int32, events uint32, data uint64) {
	*u.next() = SQE{opcode: opPollAdd, fd: fd, opFlags: events, userData: data}
}

// PollMulti reports each change of fd that is among events, until a completion
// lacks CQEMore.
func (u *Uring) PollMulti(fd int32, events uint32, data uint64) {
	*u.next() = SQE{opcode: opPollAdd, fd: fd, opFlags: events, len: pollAddMulti, userData: data}
}

// Connect connects fd, connect(2); the completion tells the outcome.
func (u *Uring) Connect(fd int32, sa *Sockaddr, data uint64) {
	a := &u.addrs[u.sqLocal&u.sqMask]
	*a = *sa
	*u.next() = SQE{opcode: opConnect, fd: fd, addr: uint64(uintptr(unsafe.Pointer(&a.raw))), off: uint64(a.len), userData: data}
}

// Cancel cancels the request named target; its own completion is not wanted
// (it has data when it fails).
func (u *Uring) Cancel(target, data uint64) {
	*u.next() = SQE{opcode: opAsyncCancel, flags: sqeCQESkip, fd: -1, addr: target, userData: data}
}

// CloseFD closes fd, close(2).
func (u *Uring) CloseFD(fd int32, data uint64) {
	*u.next() = SQE{opcode: opClose, flags: sqeCQESkip, fd: fd, userData: data}
}

// Unsubmitted returns how many entries the kernel has not taken yet.
func (u *Uring) Unsubmitted() int { return int(u.sqLocal - u.submitted) }

// Enter submits what has been prepared and waits for one completion, at most
// timeout milliseconds (-1: without limit, 0: not at all), as a call that the
// Go scheduler knows to block when block is set. Without it the caller must
// call runtime.Gosched when it was waiting and nothing has come: that is how
// the runtime asks this thread to stop.
func (u *Uring) Enter(timeout int, block bool) unix.Errno {
	atomic.StoreUint32(u.sqTail, u.sqLocal)
	n := u.sqLocal - u.submitted
	flags := u.enterFlags | enterGetEvents
	var wait, arg, size uintptr
	if timeout != 0 {
		wait = 1 + u.told
	}
	if timeout > 0 {
		u.ts = unix.NsecToTimespec(int64(timeout) * 1e6)
		flags |= enterExtArg
		arg, size = uintptr(unsafe.Pointer(&u.arg)), unsafe.Sizeof(u.arg)
	}
	var errno unix.Errno
	var r uintptr
	if block {
		r, _, errno = syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.enterFD), uintptr(n), wait, flags, arg, size)
	} else {
		r, _, errno = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(u.enterFD), uintptr(n), wait, flags, arg, size)
	}
	if errno == 0 {
		u.submitted += uint32(r)
	}
	return errno
}

// Reap appends the completions that have come to list, those that did not fit
// into the queue included.
func (u *Uring) Reap(list []CQE) []CQE {
	for {
		head, tail := *u.cqHead, atomic.LoadUint32(u.cqTail)
		for ; head != tail; head++ {
			list = append(list, u.cqes[head&u.cqMask])
		}
		atomic.StoreUint32(u.cqHead, head)
		u.told = 0
		if atomic.LoadUint32(u.sqFlags)&sqCQOverflow == 0 {
			return list
		}
		u.Enter(0, false)
	}
}
