package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds a Send to a peer that does not read.
const sendTimeout = 10 * time.Second

// Conn is one end of the socket pair between supervisor and worker. Waiting
// parks the goroutine, not a thread. Send and Recv may be called from
// different goroutines at the same time.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	// closed is set before file is closed: the error of a raw call that a
	// close interrupts has no name outside the standard library.
	closed atomic.Bool
	// version is that of the frames.
	version uint8
	// readsAfterReset has Recv go on after ECONNRESET, which says that the
	// peer closed its end with unread packets, not that nothing more is here.
	readsAfterReset bool

	sendMu sync.Mutex
	recvMu sync.Mutex
}

// Message is one received message. Its descriptors are close-on-exec and
// belong to the receiver, who takes each out of FDs or calls CloseFDs.
type Message struct {
	Type Type
	ID   uint32
	Body []byte
	FDs  []int
}

// Decode unmarshals the JSON body into v. Fields v does not have are ignored,
// so that a message can grow.
func (m *Message) Decode(v any) error {
	if err := json.Unmarshal(m.Body, v); err != nil {
		return fmt.Errorf("message type %d: %w", m.Type, err)
	}
	return nil
}

// CloseFDs closes the descriptors still in FDs and forgets them.
func (m *Message) CloseFDs() {
	closeAll(m.FDs)
	m.FDs = nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Pair returns a connected pair: the near end for this process and the far end
// as a file to pass to a child process. Both are close-on-exec.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, err := NewConn(fds[0])
	if err != nil {
		closeAll(fds[:])
		return nil, nil, err
	}
	return near, os.NewFile(uintptr(fds[1]), "worker socket"), nil
}

// NewConn makes a Conn of a SOCK_SEQPACKET Unix socket. On success it owns fd
// and has made it non-blocking and close-on-exec; on failure fd remains the
// caller's.
func NewConn(fd int) (*Conn, error) {
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("getsockopt", err))
	}
	if typ != unix.SOCK_SEQPACKET {
		return nil, fmt.Errorf("descriptor %d is not a SOCK_SEQPACKET socket", fd)
	}
	// A packet must fit into the send buffer; a lower net.core.wmem_max only
	// bounds how great a configuration can be, and Send reports it.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, headerSize+MaxBody)
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "ipc")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Conn{file: file, raw: raw, version: Version}, nil
}

// Close closes the socket and wakes a waiting Recv, which returns
// os.ErrClosed.
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.file.Close()
}

// SetRecvDeadline bounds later calls of Recv, which return an error that is
// os.ErrDeadlineExceeded; the zero time removes the bound.
func (c *Conn) SetRecvDeadline(t time.Time) error { return c.file.SetReadDeadline(t) }

// Send sends one message: body as JSON (nil sends an empty body) and duplicates
// of fds, which remain the caller's. It waits at most 10 seconds for room.
func (c *Conn) Send(t Type, id uint32, body any, fds ...int) error {
	packet, err := encode(c.version, t, id, body, len(fds))
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}

	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if err := c.file.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("send message type %d: %w", t, err)
	}
	var sendErr error
	err = c.raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.SendmsgN(int(fd), packet, rights, nil, unix.MSG_NOSIGNAL)
		return sendErr != unix.EAGAIN && sendErr != unix.EINTR
	})
	if err == nil {
		err = os.NewSyscallError("sendmsg", sendErr)
	}
	if err != nil {
		return fmt.Errorf("send message type %d: %w", t, err)
	}
	return nil
}

// encode makes a packet of a version of the frames.
func encode(version uint8, t Type, id uint32, body any, nfds int) ([]byte, error) {
	if nfds > MaxFDs {
		return nil, fmt.Errorf("message type %d: %d descriptors exceed %d", t, nfds, MaxFDs)
	}
	data, err := marshal(body)
	if err != nil {
		return nil, fmt.Errorf("message type %d: %w", t, err)
	}
	if len(data) > MaxBody {
		return nil, fmt.Errorf("message type %d: a body of %d bytes exceeds %d", t, len(data), MaxBody)
	}
	h := header{typ: t, version: version, id: id, nfds: uint16(nfds)}
	return appendFrame(make([]byte, 0, headerSize+len(data)), h, data), nil
}

func marshal(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case Raw:
		return b, nil
	}
	return json.Marshal(body)
}

// Recv waits for the next message. It returns io.EOF when the peer has closed
// its end or is dead, and an error that is ErrFrame for a packet it cannot
// accept, whose descriptors it has closed; the connection remains usable.
func (c *Conn) Recv() (*Message, error) {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()

	size, err := c.peek()
	if err != nil {
		return nil, err
	}
	// An oversized packet is taken out of the queue, its surplus cut off.
	packet := make([]byte, min(size, headerSize+MaxBody))
	n, flags, fds, err := c.receive(packet)
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(fds)
		return nil, fmt.Errorf("%w: not all of its descriptors could be received: %w", ErrFrame, unix.EMFILE)
	}
	if flags&unix.MSG_TRUNC != 0 {
		closeAll(fds)
		return nil, fmt.Errorf("%w: a packet of %d bytes was cut off (flags %#x)", ErrFrame, size, flags)
	}
	h, body, err := decodeFrame(c.version, packet[:n], len(fds))
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return &Message{Type: h.typ, ID: h.id, Body: body, FDs: fds}, nil
}

// peek waits for a packet and returns its size without taking it, so that no
// buffer of the greatest size has to be kept.
func (c *Conn) peek() (int, error) {
	var n int
	var recvErr error
	err := c.raw.Read(func(fd uintptr) (done bool) {
		recvErr, done = c.attempt(func() (err error) {
			n, _, err = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC)
			return err
		})
		return done
	})
	return n, c.recvResult(n, err, recvErr)
}

func (c *Conn) receive(packet []byte) (n, flags int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFDs))
	var oobn int
	var recvErr error
	err = c.raw.Read(func(fd uintptr) (done bool) {
		recvErr, done = c.attempt(func() (err error) {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), packet, oob, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		return done
	})
	if err := c.recvResult(n, err, recvErr); err != nil {
		return 0, 0, nil, err
	}
	fds, err = receivedFDs(oob[:oobn])
	return n, flags, fds, err
}

// attempt makes a receiving call and reports whether it has an outcome.
func (c *Conn) attempt(call func() error) (error, bool) {
	err := call()
	if err == unix.ECONNRESET && c.readsAfterReset {
		err = call()
	}
	return err, err != unix.EAGAIN && err != unix.EINTR
}

// recvResult turns the outcome of a receiving call into Recv's error. A peer
// that died with unread packets shows as ECONNRESET.
func (c *Conn) recvResult(n int, waitErr, recvErr error) error {
	switch {
	case waitErr != nil && c.closed.Load():
		return fmt.Errorf("receive message: %w", os.ErrClosed)
	case waitErr != nil:
		return fmt.Errorf("receive message: %w", waitErr)
	case errors.Is(recvErr, unix.ECONNRESET):
		return io.EOF
	case recvErr != nil:
		return os.NewSyscallError("recvmsg", recvErr)
	case n == 0:
		return io.EOF
	}
	return nil
}

// receivedFDs returns every descriptor in the control messages; on an error
// none is left open.
func receivedFDs(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrFrame, err)
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		fds = append(fds, got...)
	}
	return fds, nil
}
