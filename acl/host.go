package acl

import (
	"errors"
	"net/netip"
	"strings"

	"3proxyd/config"
)

// maxName is the length in bytes of the longest host name (RFC 1035, 2.3.4,
// in the form without the final dot).
const maxName = 253

// Errors of ParseHost.
var (
	errHostLength  = errors.New("host name is empty or longer than 253 bytes")
	errHostLiteral = errors.New("brackets without an IPv6 address")
	errHostByte    = errors.New("byte that cannot be in a host name")
	errHostNumber  = errors.New("host name that ends in a number but is not an address")
)

// ParseHost reads the host of a request as a client sent it. An IP literal, in
// brackets or not, is an address and never a name: exactly one of name and
// addr is set. A name comes back in lower case and without final dots. Names
// whose last label is a number (127.1, 0x7f.1, 2130706433), which some
// resolvers take for an address, are refused (URL Standard, "ends in a number
// checker"), as are zones and bytes that no host name has.
func ParseHost(s string) (name string, addr netip.Addr, err error) {
	if len(s) > 0 && s[0] == '[' {
		return parseBracketed(s)
	}
	if a, ok := parseLiteral(s); ok {
		if a.Zone() != "" {
			return "", netip.Addr{}, errHostByte
		}
		return "", a, nil
	}
	s = strings.TrimRight(s, ".")
	if a, ok := parseLiteral(s); ok && a.Zone() == "" {
		return "", a, nil
	}
	if len(s) == 0 || len(s) > maxName {
		return "", netip.Addr{}, errHostLength
	}
	for i := range len(s) {
		if !hostByte(s[i]) {
			return "", netip.Addr{}, errHostByte
		}
	}
	s = strings.ToLower(s)
	if endsInNumber(s) {
		return "", netip.Addr{}, errHostNumber
	}
	return s, netip.Addr{}, nil
}

func parseBracketed(s string) (string, netip.Addr, error) {
	inner, ok := strings.CutSuffix(s[1:], "]")
	if !ok {
		return "", netip.Addr{}, errHostLiteral
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return "", netip.Addr{}, errHostLiteral
	}
	return "", a.Unmap(), nil
}

// hostByte excludes what the URL Standard forbids in a host, and bytes outside
// ASCII.
func hostByte(c byte) bool {
	return c > ' ' && c < 0x7f && strings.IndexByte(`#%/:<>?@[\]^|`, c) < 0
}

func endsInNumber(s string) bool {
	label := s[strings.LastIndexByte(s, '.')+1:]
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// parseLiteral parses an IP literal. The guard spares names the error value
// that netip allocates.
func parseLiteral(s string) (netip.Addr, bool) {
	if s == "" || strings.IndexByte(s, ':') < 0 && (!digit(s[0]) || !digit(s[len(s)-1])) {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// lower is the ASCII lower case of c.
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// patternKind is how a host pattern is compared.
type patternKind uint8

const (
	exact    patternKind = iota // the whole name
	suffix                      // the end of the name
	prefix                      // its beginning
	contains                    // anywhere in it
)

// hostPattern is a pattern as it is compared with names. A "*" stands for any
// number of bytes, none included, whatever the labels are.
type hostPattern struct {
	name string
	kind patternKind
}

// newHostPattern converts a pattern; ok is false when it can never match.
func newHostPattern(p config.HostPattern) (h hostPattern, ok bool) {
	h.name = strings.ToLower(p.Name)
	switch {
	case p.AnyPrefix && p.AnySuffix:
		h.kind = contains
	case p.AnyPrefix:
		h.kind = suffix
		h.name = strings.TrimRight(h.name, ".")
	case p.AnySuffix:
		h.kind = prefix
	default:
		h.name = strings.TrimRight(h.name, ".")
		if h.name == "" {
			return h, false
		}
	}
	if h.name == "" {
		h.kind = contains
	}
	return h, len(h.name) <= maxName
}

func newHostPatterns(list []config.HostPattern) []hostPattern {
	var out []hostPattern
	for _, p := range list {
		if h, ok := newHostPattern(p); ok {
			out = append(out, h)
		}
	}
	return out
}

func (p *hostPattern) match(host []byte) bool {
	n := len(p.name)
	if n > len(host) {
		return false
	}
	switch p.kind {
	case exact:
		return string(host) == p.name
	case suffix:
		return string(host[len(host)-n:]) == p.name
	case prefix:
		return string(host[:n]) == p.name
	}
	for i := 0; i+n <= len(host); i++ {
		if string(host[i:i+n]) == p.name {
			return true
		}
	}
	return false
}
