package sys

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxNetlinkReply bounds one packet of a netlink reply, in bytes; the kernel
// sends no larger ones to a reader with this buffer.
const maxNetlinkReply = 64 << 10

// LocalPrefixes returns what the kernel takes for addresses of this host: the
// destinations of type local in the routing table local (ip-route(8)), loopback
// networks included.
func LocalPrefixes() ([]netip.Prefix, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// Without it the kernel sends all tables (netlink(7)).
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt NETLINK_GET_STRICT_CHK", err)
	}
	var list []netip.Prefix
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := unix.Sendto(fd, localRoutesRequest(family), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, os.NewSyscallError("sendto", err)
		}
		if list, err = readLocalRoutes(fd, list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// localRoutesRequest is a request for the table local (rtnetlink(7)).
func localRoutesRequest(family byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.SizeofNlMsghdr] = family
	b[unix.SizeofNlMsghdr+4] = unix.RT_TABLE_LOCAL
	b[unix.SizeofNlMsghdr+7] = unix.RTN_LOCAL
	return b
}

func readLocalRoutes(fd int, list []netip.Prefix) ([]netip.Prefix, error) {
	buf := make([]byte, maxNetlinkReply)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("netlink: %w", err)
		}
		for i := range messages {
			m := &messages[i]
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return list, nil
			case unix.NLMSG_ERROR:
				return nil, netlinkError(m.Data)
			case unix.RTM_NEWROUTE:
				if p, ok := localRoute(m); ok {
					list = append(list, p)
				}
			}
		}
	}
}

func netlinkError(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("netlink: short error message")
	}
	return fmt.Errorf("netlink: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(data))))
}

// localRoute returns the destination of a route of type local.
func localRoute(m *syscall.NetlinkMessage) (netip.Prefix, bool) {
	if len(m.Data) < unix.SizeofRtMsg || m.Data[7] != unix.RTN_LOCAL {
		return netip.Prefix{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return netip.Prefix{}, false
	}
	for _, a := range attrs {
		if a.Attr.Type != unix.RTA_DST {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.Value); ok {
			return netip.PrefixFrom(addr, int(m.Data[1])), true
		}
	}
	return netip.Prefix{}, false
}

// WatchAddresses returns a file from which messages can be read when addresses
// of this host come or go (rtnetlink(7)).
func WatchAddresses() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR,
	})
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "addresses"), nil
}
