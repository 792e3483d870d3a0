package socks

import (
	"encoding/binary"
	"net/netip"

	"3proxyd/internal/ipaddr"
	"3proxyd/proto/hostport"
)

// A destination is written as its type, an address or a name, and a port (RFC
// 1928 sections 4 to 7).

// destinationSize returns how many bytes the destination at the beginning of in
// has, 0 while that cannot be told.
func destinationSize(in []byte) (int, Failure) {
	if len(in) == 0 {
		return 0, FailNone
	}
	switch in[0] {
	case addrIPv4:
		return 1 + 4 + 2, FailNone
	case addrIPv6:
		return 1 + 16 + 2, FailNone
	case addrName:
		if len(in) < 2 {
			return 0, FailNone
		}
		return 2 + int(in[1]) + 2, FailNone
	}
	return 0, FailAddressType
}

// parseDestination parses a whole destination. Either addr is valid, or host is
// a slice of in.
func parseDestination(in []byte) (addr netip.Addr, host []byte, port uint16, why Failure) {
	portAt := len(in) - 2
	port = binary.BigEndian.Uint16(in[portAt:])
	if in[0] != addrName {
		addr, _ = netip.AddrFromSlice(in[1:portAt])
		return ipaddr.Canonical(addr), nil, port, FailNone
	}
	addr, host, ok := hostport.ParseHost(in[2:portAt:portAt])
	if !ok {
		return addr, nil, port, FailHost
	}
	return addr, host, port, FailNone
}

// appendDestination appends an address and a port. One that is not valid is
// written as zeros.
func appendDestination(dst []byte, a netip.AddrPort) []byte {
	if ip := a.Addr().Unmap(); ip.Is6() {
		b := ip.As16()
		dst = append(append(dst, addrIPv6), b[:]...)
	} else {
		dst = appendIPv4(append(dst, addrIPv4), ip)
	}
	return binary.BigEndian.AppendUint16(dst, a.Port())
}

func appendIPv4(dst []byte, ip netip.Addr) []byte {
	if !ip.Is4() {
		return append(dst, 0, 0, 0, 0)
	}
	b := ip.As4()
	return append(dst, b[:]...)
}
