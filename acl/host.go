package acl

import (
	"net/netip"
	"strings"

	"3proxyd/config"
)

// maxName is the length in bytes of the longest host name (RFC 1035, 2.3.4,
// in the form without the final dot).
const maxName = 253

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
