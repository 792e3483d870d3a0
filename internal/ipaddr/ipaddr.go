// Package ipaddr knows the IPv6 addresses that stand for IPv4 addresses, so
// that no spelling of an address evades the rules about it.
package ipaddr

import "net/netip"

// The prefixes of addresses that carry an IPv4 address.
var (
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291 section 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765 section 2.1
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052 section 2.1
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056 section 2
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380 section 4
)

// Prefixes are those of the addresses that Embedded knows.
func Prefixes() []netip.Prefix {
	return []netip.Prefix{compatible, translated, nat64, nat64Local, sixToFour, teredo}
}

// Canonical returns the IPv4 address for an IPv4-mapped or IPv4-compatible
// address (RFC 4291 section 2.5.5), which are other spellings of it, and any
// other address as it is. The unspecified address and the loopback address are
// not IPv4-compatible ones.
func Canonical(a netip.Addr) netip.Addr {
	if a.Is4() || !a.IsValid() {
		return a
	}
	if a.Is4In6() {
		return a.Unmap()
	}
	if isCompatible(a) {
		return last4(a)
	}
	return a
}

func isCompatible(a netip.Addr) bool {
	return compatible.Contains(a) && !a.IsUnspecified() && !a.IsLoopback()
}

// Embedded returns the IPv4 address through which, or to which, packets for an
// IPv6 address go: that of a translator's prefix (NAT64, the last 32 bits), of a
// 6to4 router, of a Teredo client, or of another spelling of an IPv4 address.
func Embedded(a netip.Addr) (v4 netip.Addr, ok bool) {
	if !a.Is6() || a.As16()[0] > 0x20 {
		return netip.Addr{}, false
	}
	a = a.WithZone("")
	b := a.As16()
	switch {
	case a.Is4In6():
		return a.Unmap(), true
	case isCompatible(a), translated.Contains(a), nat64.Contains(a), nat64Local.Contains(a):
		return last4(a), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(a):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	return netip.Addr{}, false
}

func last4(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
