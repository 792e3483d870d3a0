package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Append1 appends a header of version 1 for a connection from source to
// destination. Without one of them, which is that of a Unix socket, it says
// UNKNOWN.
func Append1(b []byte, source, destination netip.AddrPort) []byte {
	b = append(b, prefix1...)
	if !source.IsValid() || !destination.IsValid() {
		return append(b, unknownAddress+"\r\n"...)
	}
	from, to := sameFamily(source.Addr(), destination.Addr())
	kind := "TCP4 "
	if from.Is6() {
		kind = "TCP6 "
	}
	b = append(b, kind...)
	b = append(from.AppendTo(b), ' ')
	b = append(to.AppendTo(b), ' ')
	b = append(strconv.AppendUint(b, uint64(source.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(destination.Port()), 10)
	return append(b, "\r\n"...)
}

// Append2 is Append1 for version 2; without an address the command is LOCAL.
func Append2(b []byte, source, destination netip.AddrPort) []byte {
	b = append(b, signature...)
	if !source.IsValid() || !destination.IsValid() {
		return append(b, version2|commandLocal, familyUnspec<<4|transportAny, 0, 0)
	}
	from, to := sameFamily(source.Addr(), destination.Addr())
	b = append(b, version2|commandProxy)
	if from.Is4() {
		b = append(b, familyInet<<4|transportTCP, 0, sizeInet)
	} else {
		b = append(b, familyInet6<<4|transportTCP, 0, sizeInet6)
	}
	b = append(b, from.AsSlice()...)
	b = append(b, to.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, source.Port())
	return binary.BigEndian.AppendUint16(b, destination.Port())
}

// sameFamily makes both addresses IPv4, or both IPv6 without zones: a header
// has one family.
func sameFamily(a, b netip.Addr) (netip.Addr, netip.Addr) {
	a, b = a.Unmap(), b.Unmap()
	if a.Is4() && b.Is4() {
		return a, b
	}
	return netip.AddrFrom16(a.As16()), netip.AddrFrom16(b.As16())
}
