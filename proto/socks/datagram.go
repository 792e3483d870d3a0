package socks

import "net/netip"

// MaxDatagramHeader is the size in bytes of the longest header that
// AppendDatagramHeader makes.
const MaxDatagramHeader = datagramHead + 1 + 16 + 2

// datagramHead is the part before the destination: two reserved bytes and the
// number of the fragment.
const datagramHead = 3

// Datagram is a datagram of a client (RFC 1928 section 7).
type Datagram struct {
	// Addr is the destination when it is an address, also one written as a
	// name; Host, a slice of the input, when it is a name.
	Addr netip.Addr
	Host []byte
	// Port is the destination port, which may be 0.
	Port uint16
	// Data is the payload, a slice of the input.
	Data []byte
}

// ParseDatagram parses a datagram of a client. Fragments (FailFragment) are not
// put together: an implementation need not, and drops them then.
func ParseDatagram(in []byte) (d Datagram, why Failure) {
	if len(in) < datagramHead+1 || in[0] != 0 || in[1] != 0 {
		return d, FailDatagram
	}
	if in[2] != 0 {
		return d, FailFragment
	}
	size, why := destinationSize(in[datagramHead:])
	end := datagramHead + size
	switch {
	case why != FailNone:
		return d, why
	case size == 0 || len(in) < end:
		return d, FailDatagram
	}
	d.Addr, d.Host, d.Port, why = parseDestination(in[datagramHead:end])
	d.Data = in[end:]
	return d, why
}

// AppendDatagramHeader appends the header of a datagram to a client that came
// from a host.
func AppendDatagramHeader(dst []byte, from netip.AddrPort) []byte {
	return appendDestination(append(dst, 0, 0, 0), from)
}
