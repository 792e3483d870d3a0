package worker

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// anywhere returns an address that the default route leads to, of the family of
// addr: one for documentation (RFC 5737, RFC 3849), which nothing is sent to.
func anywhere(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1})
}

// sourceTo returns the local address from which the kernel would send to target:
// that of a datagram socket that is connected to it, which sends nothing.
func sourceTo(target netip.Addr) (netip.Addr, bool) {
	var to unix.Sockaddr
	family := unix.AF_INET6
	if target.Is4() {
		family = unix.AF_INET
		to = &unix.SockaddrInet4{Port: 9, Addr: target.As4()}
	} else {
		to = &unix.SockaddrInet6{Port: 9, Addr: target.As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}, false
	}
	defer unix.Close(fd)
	if unix.Connect(fd, to) != nil {
		return netip.Addr{}, false
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, false
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr), true
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr).Unmap(), true
	}
	return netip.Addr{}, false
}
