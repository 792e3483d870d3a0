package sys

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// PatternSize is the period in bytes of the data both sides send: byte i of
// any body is byte i%PatternSize of the pattern.
const PatternSize = 1 << 20

// Pattern is the test data, in memory and as a file for sendfile(2).
type Pattern struct {
	Data []byte
	FD   int
}

// NewPattern makes the test data. It is the same in every process.
func NewPattern() (*Pattern, error) {
	p := &Pattern{Data: make([]byte, PatternSize)}
	x := uint64(0x9e3779b97f4a7c15)
	for i := range p.Data {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p.Data[i] = byte(x >> 32)
	}
	fd, err := unix.MemfdCreate("pattern", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	for off := 0; off < len(p.Data); {
		n, err := unix.Pwrite(fd, p.Data[off:], int64(off))
		if err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("write pattern: %w", err)
		}
		off += n
	}
	p.FD = fd
	return p, nil
}

// Matches tells whether got is what a body holds from offset off on.
func (p *Pattern) Matches(got []byte, off int64) bool {
	for len(got) > 0 {
		at := int(off % PatternSize)
		n := min(len(got), PatternSize-at)
		if !bytes.Equal(got[:n], p.Data[at:at+n]) {
			return false
		}
		got, off = got[n:], off+int64(n)
	}
	return true
}

// Send sends up to limit bytes of a body from offset off, of which left
// remain, by sendfile(2). It returns how many were sent, and EAGAIN when the
// socket took no more.
func (p *Pattern) Send(fd int, off, left int64, limit int) (int, unix.Errno) {
	total := 0
	for total < limit && left > 0 {
		at := off % PatternSize
		want := int(min(left, PatternSize-at, int64(limit-total)))
		n, e := Sendfile(fd, p.FD, at, want)
		total, off, left = total+n, off+int64(n), left-int64(n)
		if e != 0 {
			return total, e
		}
		if n == 0 {
			return total, unix.EIO
		}
	}
	return total, 0
}
