package resolver

import (
	"net/netip"
	"strings"

	"3proxyd/internal/ipaddr"
)

// maxName and maxLabel are the longest name, without final dot, and label in
// bytes (RFC 1035, 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// literal parses an IP address, in brackets or not. Zones are refused.
func literal(s string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		s = inner
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return ipaddr.Canonical(a), true
}

// hostName checks a host name and returns it in lower case without final dot;
// rooted tells whether it had one.
func hostName(s string) (host string, rooted, ok bool) {
	host, rooted = strings.CutSuffix(s, ".")
	if len(host) == 0 || len(host) > maxName {
		return "", false, false
	}
	start := 0
	for i := 0; i <= len(host); i++ {
		if i < len(host) && host[i] != '.' {
			if !nameByte(host[i]) {
				return "", false, false
			}
			continue
		}
		if i == start || i-start > maxLabel {
			return "", false, false
		}
		start = i + 1
	}
	return strings.ToLower(host), rooted, true
}

// nameByte allows letters, digits, hyphen and underscore.
func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}
