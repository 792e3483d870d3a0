package wire

import "encoding/binary"

// flowKey is what tells the packets of one connection's one way: protocol,
// addresses and ports, the last four being 0 where there are none.
type flowKey struct {
	src, dst [4]byte
	ports    uint32
	protocol uint8
}

// protocols with ports at the beginning of their header, of IANA's protocol
// numbers.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// ipv4Header is the length of a header without options (RFC 791, section 3.1).
const ipv4Header = 20

// parseKey reads the IPv4 packet p; ok is false for anything else.
func parseKey(p []byte) (k flowKey, ok bool) {
	if len(p) < ipv4Header || p[0]>>4 != 4 {
		return k, false
	}
	header := int(p[0]&15) * 4
	if header < ipv4Header || len(p) < header {
		return k, false
	}
	k.protocol = p[9]
	k.src, k.dst = [4]byte(p[12:16]), [4]byte(p[16:20])
	// Only the first fragment has ports.
	fragment := binary.BigEndian.Uint16(p[6:8])&0x1fff != 0
	if (k.protocol == protocolTCP || k.protocol == protocolUDP) && !fragment && len(p) >= header+4 {
		k.ports = binary.BigEndian.Uint32(p[header:])
	}
	return k, true
}
