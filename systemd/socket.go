package systemd

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Socket is an inherited descriptor. All but FD and Name is what the kernel
// says.
type Socket struct {
	FD int
	// Name is the socket unit's FileDescriptorName=, or the FDNAME= it was
	// stored with.
	Name string
	// Network is tcp, udp, unix (a stream), unixgram, unixpacket, memfd, or
	// "" for anything else.
	Network string
	// Addr is where an IP socket is bound, Path where a Unix socket is:
	// "@name" for an abstract one, "" for neither.
	Addr netip.AddrPort
	Path string
	// Listening says that the socket accepts connections.
	Listening bool
	// ReusePort and V6Only are SO_REUSEPORT and IPV6_V6ONLY.
	ReusePort bool
	V6Only    bool
	// Cookie tells whether two descriptors are the same: SO_COOKIE of a
	// socket, the inode of a memfd.
	Cookie uint64
}

// DualStack says that the socket takes IPv4 clients on its IPv6 wildcard
// address.
func (s Socket) DualStack() bool {
	return s.Addr.IsValid() && s.Addr.Addr().Is6() && s.Addr.Addr().IsUnspecified() && !s.V6Only
}

// String returns the network and address, for messages.
func (s Socket) String() string {
	switch {
	case s.Addr.IsValid():
		return s.Network + " " + s.Addr.String()
	case s.Path != "":
		return s.Network + " " + s.Path
	case s.Network == "":
		return "neither a TCP, UDP or Unix socket nor a memfd"
	}
	return s.Network
}

// Describe asks the kernel what a descriptor is.
func Describe(fd int, name string) (Socket, error) {
	s := Socket{FD: fd, Name: name}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == unix.ENOTSOCK {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
			s.Network = "memfd"
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return s, os.NewSyscallError("fstat", err)
		}
		s.Cookie = st.Ino
		return s, nil
	}
	if err != nil {
		return s, os.NewSyscallError("getsockopt SO_TYPE", err)
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return s, os.NewSyscallError("getsockopt SO_DOMAIN", err)
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return s, os.NewSyscallError("getsockopt SO_PROTOCOL", err)
	}
	s.Network = network(domain, typ, protocol)
	s.Listening = flag(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if s.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		return s, os.NewSyscallError("getsockopt SO_COOKIE", err)
	}
	if s.Network == "" {
		return s, nil
	}
	return s, s.readAddress(domain)
}

func network(domain, typ, protocol int) string {
	switch {
	case domain == unix.AF_UNIX:
		return map[int]string{
			unix.SOCK_STREAM: "unix", unix.SOCK_DGRAM: "unixgram", unix.SOCK_SEQPACKET: "unixpacket",
		}[typ]
	case domain != unix.AF_INET && domain != unix.AF_INET6:
		return ""
	case typ == unix.SOCK_STREAM && (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_MPTCP):
		return "tcp"
	case typ == unix.SOCK_DGRAM && protocol == unix.IPPROTO_UDP:
		return "udp"
	}
	return ""
}

func flag(fd, level, option int) bool {
	v, err := unix.GetsockoptInt(fd, level, option)
	return err == nil && v != 0
}

func (s *Socket) readAddress(domain int) error {
	address, err := unix.Getsockname(s.FD)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		s.Addr = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(a.Addr)
		if a.ZoneId != 0 {
			addr = addr.WithZone(zoneName(a.ZoneId))
		}
		s.Addr = netip.AddrPortFrom(addr, uint16(a.Port))
	case *unix.SockaddrUnix:
		s.Path = unixPath(a.Name)
	default:
		return fmt.Errorf("unknown address family %d", domain)
	}
	if domain != unix.AF_UNIX {
		s.ReusePort = flag(s.FD, unix.SOL_SOCKET, unix.SO_REUSEPORT)
	}
	if domain == unix.AF_INET6 {
		s.V6Only = flag(s.FD, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	}
	return nil
}

// unixPath returns the path of a socket address; what follows a zero byte in
// the kernel's answer is no part of it.
func unixPath(name string) string {
	if !strings.HasPrefix(name, "@") {
		name, _, _ = strings.Cut(name, "\x00")
	}
	return name
}

func zoneName(index uint32) string {
	if iface, err := net.InterfaceByIndex(int(index)); err == nil {
		return iface.Name
	}
	return strconv.Itoa(int(index))
}
