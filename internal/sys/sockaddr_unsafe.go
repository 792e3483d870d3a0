package sys

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sockaddrSize = uint32(unix.SizeofSockaddrAny)

// Sockaddr is a socket address in the kernel's form. The zero value is empty;
// a Sockaddr is reused from call to call.
type Sockaddr struct {
	raw unix.RawSockaddrAny
	len uint32
}

// Family returns AF_INET, AF_INET6, AF_UNIX or 0.
func (s *Sockaddr) Family() int { return int(s.raw.Addr.Family) }

// AddrPort returns the address, v4-mapped ones as IPv4, or the zero AddrPort
// for another family.
func (s *Sockaddr) AddrPort() netip.AddrPort {
	switch s.raw.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), ntohs(&in.Port))
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr).Unmap(), ntohs(&in.Port))
	}
	return netip.AddrPort{}
}

// Set stores a TCP address; a must be valid.
func (s *Sockaddr) Set(a netip.AddrPort) {
	s.raw = unix.RawSockaddrAny{}
	if ip := a.Addr(); ip.Is4() || ip.Is4In6() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		in.Family = unix.AF_INET
		in.Addr = ip.As4()
		htons(&in.Port, a.Port())
		s.len = unix.SizeofSockaddrInet4
		return
	}
	in := (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
	in.Family = unix.AF_INET6
	in.Addr = a.Addr().As16()
	htons(&in.Port, a.Port())
	s.len = unix.SizeofSockaddrInet6
}

// SetUnix stores the address of a Unix socket: a path, or "@name" for an
// abstract one. It reports false when the name is empty or too long, unix(7).
func (s *Sockaddr) SetUnix(name string) bool {
	s.raw = unix.RawSockaddrAny{}
	un := (*unix.RawSockaddrUnix)(unsafe.Pointer(&s.raw))
	if name == "" || len(name) >= len(un.Path) {
		return false
	}
	un.Family = unix.AF_UNIX
	for i := range len(name) {
		un.Path[i] = int8(name[i])
	}
	s.len = uint32(2 + len(name) + 1)
	if name[0] == '@' {
		un.Path[0] = 0
		s.len--
	}
	return true
}

func ntohs(p *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:]) }
func htons(p *uint16, v uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], v)
}
