package ipc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame is one packet: a header of 16 bytes, little-endian, and the body.
//
//	0  type     uint16
//	2  flags    uint8   zero
//	3  version  uint8   Version, or that of another protocol
//	4  length   uint32  of the body in bytes
//	8  id       uint32  chosen by the asker, repeated in the answer
//	12 nfds     uint16  descriptors that travel with the packet
//	14 reserved uint16  zero
const headerSize = 16

// MaxBody is the greatest length of a body in bytes. It holds the greatest
// Prepare: MaxColumns services.
const MaxBody = 256 << 10

// MaxFDs is the greatest number of descriptors in one message. The kernel's
// own limit is 253 (SCM_MAX_FD).
const MaxFDs = 64

// ErrFrame is the error of a packet that is no valid frame.
var ErrFrame = errors.New("malformed frame")

type header struct {
	typ     Type
	version uint8
	len     uint32
	id      uint32
	nfds    uint16
}

// appendFrame appends the header and body to b.
func appendFrame(b []byte, h header, body []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(h.typ))
	b = append(b, 0, h.version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = binary.LittleEndian.AppendUint32(b, h.id)
	b = binary.LittleEndian.AppendUint16(b, h.nfds)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return append(b, body...)
}

// decodeFrame checks a packet, whose frame must have that version and which came
// with nfds descriptors, and returns its header and body. The body shares memory
// with packet.
func decodeFrame(want uint8, packet []byte, nfds int) (header, []byte, error) {
	if len(packet) < headerSize {
		return header{}, nil, fmt.Errorf("%w: %d bytes are less than a header", ErrFrame, len(packet))
	}
	h := header{
		typ:     Type(binary.LittleEndian.Uint16(packet)),
		version: packet[3],
		len:     binary.LittleEndian.Uint32(packet[4:]),
		id:      binary.LittleEndian.Uint32(packet[8:]),
		nfds:    binary.LittleEndian.Uint16(packet[12:]),
	}
	flags := packet[2]
	reserved := binary.LittleEndian.Uint16(packet[14:])
	body := packet[headerSize:]
	switch {
	case h.version != want:
		return header{}, nil, fmt.Errorf("%w: version %d instead of %d", ErrFrame, h.version, want)
	case flags != 0 || reserved != 0:
		return header{}, nil, fmt.Errorf("%w: reserved bits are set", ErrFrame)
	case h.len > MaxBody:
		return header{}, nil, fmt.Errorf("%w: a body of %d bytes exceeds %d", ErrFrame, h.len, MaxBody)
	case int(h.len) != len(body):
		return header{}, nil, fmt.Errorf("%w: length %d, but %d bytes follow", ErrFrame, h.len, len(body))
	case int(h.nfds) != nfds:
		return header{}, nil, fmt.Errorf("%w: %d descriptors announced, %d received", ErrFrame, h.nfds, nfds)
	case nfds > MaxFDs:
		return header{}, nil, fmt.Errorf("%w: %d descriptors exceed %d", ErrFrame, nfds, MaxFDs)
	}
	return h, body, nil
}
