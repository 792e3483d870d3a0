package hostport

import (
	"net/netip"

	"3proxyd/internal/ipaddr"
)

// The parsers below accept exactly what netip.ParseAddr does, zones excepted;
// that one takes a string, which would have to be allocated.

// parseIPv4 parses four decimal numbers without leading zeros.
func parseIPv4(b []byte) (ip [4]byte, ok bool) {
	field, digits, value := 0, 0, 0
	for _, c := range b {
		if c == '.' {
			if digits == 0 || field == 3 {
				return ip, false
			}
			ip[field] = byte(value)
			field++
			digits, value = 0, 0
			continue
		}
		if c < '0' || c > '9' || digits > 0 && value == 0 {
			return ip, false
		}
		digits++
		value = value*10 + int(c-'0')
		if value > 255 {
			return ip, false
		}
	}
	if field != 3 || digits == 0 {
		return ip, false
	}
	ip[3] = byte(value)
	return ip, true
}

// parseIPv6 parses the text form of RFC 4291 section 2.2.
func parseIPv6(b []byte) (netip.Addr, bool) {
	var ip [16]byte
	filled, gap := 0, -1
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		gap = 0
		b = b[2:]
	}
	for filled < 16 && len(b) > 0 {
		group, digits := hexGroup(b)
		if digits == 0 || digits > 4 {
			return netip.Addr{}, false
		}
		if digits < len(b) && b[digits] == '.' {
			v4, ok := parseIPv4(b)
			if !ok || filled > 12 || gap < 0 && filled != 12 {
				return netip.Addr{}, false
			}
			copy(ip[filled:], v4[:])
			filled += 4
			b = nil
			break
		}
		ip[filled], ip[filled+1] = byte(group>>8), byte(group)
		filled += 2
		var ok bool
		if b, gap, ok = separator(b[digits:], filled, gap); !ok {
			return netip.Addr{}, false
		}
	}
	if len(b) > 0 || filled == 16 && gap >= 0 || filled < 16 && gap < 0 {
		return netip.Addr{}, false
	}
	if gap >= 0 {
		tail := copy(ip[16-(filled-gap):], ip[gap:filled])
		clear(ip[gap : 16-tail])
	}
	return ipaddr.Canonical(netip.AddrFrom16(ip)), true
}

// separator takes the colons after a group; a double one is the gap.
func separator(b []byte, filled, gap int) (rest []byte, newGap int, ok bool) {
	if len(b) == 0 {
		return b, gap, true
	}
	if b[0] != ':' || len(b) == 1 {
		return nil, gap, false
	}
	if b[1] != ':' {
		return b[1:], gap, true
	}
	if gap >= 0 {
		return nil, gap, false
	}
	return b[2:], filled, true
}

// hexGroup reads up to five hexadecimal digits; five are one too many.
func hexGroup(b []byte) (value, digits int) {
	for digits < len(b) && digits < 5 {
		d := HexDigit(b[digits])
		if d < 0 {
			break
		}
		value = value<<4 | d
		digits++
	}
	return value, digits
}

// HexDigit is the value of a hexadecimal digit, -1 of another byte.
func HexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
