// Package hostport parses the host names, addresses and ports that clients
// write into requests. It accepts one spelling of each address only, so that
// what an access list checks is what is connected to.
package hostport

import (
	"bytes"
	"net/netip"
)

// MaxName is the longest host name in bytes, without a final dot: the 255
// octets of RFC 1035 section 2.3.4 less the first length and the root label.
const MaxName = 253

const (
	maxLabel = 63
	maxPort  = 65535
)

// ParseHost parses a host: an IPv4 address of four decimal numbers, an IPv6
// address with or without brackets, or a name. It returns either a valid addr
// or a host that is a slice of b. One final dot of a name is dropped. An IPv4
// address mapped into IPv6, or written as an IPv4-compatible one, is returned as
// IPv4.
//
// What some programs take for an IPv4 address besides (inet_aton(3): "127.1",
// "0x7f.1", "2130706433", "127.0.0.1.") is a name. The last of these keeps its
// dot, by which it differs from the address.
//
// Refused are zone ids, names in brackets, percent escapes, characters other
// than letters, digits, hyphen and underscore, and empty or over-long labels.
func ParseHost(b []byte) (addr netip.Addr, host []byte, ok bool) {
	if len(b) == 0 {
		return netip.Addr{}, nil, false
	}
	if b[0] == '[' {
		if b[len(b)-1] != ']' {
			return netip.Addr{}, nil, false
		}
		addr, ok = parseIPv6(b[1 : len(b)-1])
		return addr, nil, ok
	}
	if bytes.IndexByte(b, ':') >= 0 {
		addr, ok = parseIPv6(b)
		return addr, nil, ok
	}
	if ip, ok := parseIPv4(b); ok {
		return netip.AddrFrom4(ip), nil, true
	}
	name := b
	if b[len(b)-1] == '.' {
		name = b[:len(b)-1]
	}
	if !validName(name) {
		return netip.Addr{}, nil, false
	}
	if _, dotted := parseIPv4(name); dotted {
		return netip.Addr{}, b, true
	}
	return netip.Addr{}, name, true
}

// ParsePort parses a decimal port, 1 to 65535, without sign, blank or leading
// zero.
func ParsePort(b []byte) (port uint16, ok bool) {
	if len(b) == 0 || len(b) > 5 || b[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if n > maxPort {
		return 0, false
	}
	return uint16(n), true
}

// ParseAuthority parses host[:port] (RFC 3986 section 3.2) without user
// information. An IPv6 address must be in brackets. The port is 0 when there
// is none or when nothing follows the colon, which RFC 3986 section 3.2.3
// makes the same.
func ParseAuthority(b []byte) (addr netip.Addr, host []byte, port uint16, ok bool) {
	end, ok := hostEnd(b)
	if !ok {
		return netip.Addr{}, nil, 0, false
	}
	if addr, host, ok = ParseHost(b[:end]); !ok {
		return netip.Addr{}, nil, 0, false
	}
	if len(b) <= end+1 {
		return addr, host, 0, true
	}
	port, ok = ParsePort(b[end+1:])
	return addr, host, port, ok
}

// hostEnd returns where the host of an authority ends: at its end or at the
// colon before the port.
func hostEnd(b []byte) (int, bool) {
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']') + 1
		if end == 0 || end < len(b) && b[end] != ':' {
			return 0, false
		}
		return end, true
	}
	if end := bytes.IndexByte(b, ':'); end >= 0 {
		return end, true
	}
	return len(b), true
}

// AppendLower appends b with the ASCII letters in lower case.
func AppendLower(dst, b []byte) []byte {
	for _, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

func validName(b []byte) bool {
	if len(b) == 0 || len(b) > MaxName {
		return false
	}
	label := 0
	for _, c := range b {
		if c == '.' {
			if label == 0 {
				return false
			}
			label = 0
			continue
		}
		label++
		if label > maxLabel || !nameByte(c) {
			return false
		}
	}
	return label > 0
}

func nameByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}
