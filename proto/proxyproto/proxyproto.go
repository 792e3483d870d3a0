// Package proxyproto reads and writes the header of the PROXY protocol, versions
// 1 and 2, by which a proxy tells the next host whom it has a connection from
// (proxy-protocol.txt of HAProxy, sections 2.1 and 2.2). It does no I/O.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"3proxyd/internal/ipaddr"
	"3proxyd/proto/hostport"
)

const (
	// maxLine is the longest header of version 1 with its CR LF, in bytes.
	maxLine = 107
	// MaxSize bounds a header in bytes. Version 2 could have 65551; what is in
	// use has less than this.
	MaxSize = 16 << 10

	prefix1   = "PROXY "
	signature = "\r\n\r\n\x00\r\nQUIT\n"
	fixed2    = len(signature) + 4

	version2       = 0x20
	commandLocal   = 0
	commandProxy   = 1
	familyUnspec   = 0
	familyInet     = 1
	familyInet6    = 2
	familyUnix     = 3
	transportAny   = 0
	transportTCP   = 1
	transportUDP   = 2
	sizeInet       = 2 * (4 + 2)
	sizeInet6      = 2 * (16 + 2)
	sizeUnix       = 2 * 108
	tlvHeader      = 3
	unknownAddress = "UNKNOWN"
)

// The errors of Parse.
var (
	ErrNoHeader = errors.New("no PROXY protocol header")
	ErrTooLong  = errors.New("the PROXY protocol header is too long")
	ErrLine     = errors.New("malformed PROXY protocol header, version 1")
	ErrBinary   = errors.New("malformed PROXY protocol header, version 2")
	ErrFamily   = errors.New("PROXY protocol header of another family than TCP")
)

// Header is what a header says.
type Header struct {
	// Known says that the header names the two ends of the connection: those
	// of a LOCAL or UNKNOWN one, which the proxy has made of its own accord or
	// cannot describe, are the connection's own.
	Known bool
	// Source is the client, Destination where it connected to. IPv4 addresses
	// written as IPv6 ones have become IPv4. Both are zero for a Unix socket.
	Source, Destination netip.AddrPort
}

// Parse reads the header at the beginning of in and returns its length, 0
// while it is not complete. What cannot become a header is refused with the
// first byte that shows it.
func Parse(in []byte) (n int, h Header, err error) {
	switch {
	case len(in) == 0:
		return 0, Header{}, nil
	case begins(in, prefix1):
		return parseLine(in)
	case begins(in, signature):
		return parseBinary(in)
	}
	return 0, Header{}, ErrNoHeader
}

// begins reports whether in begins with prefix, as far as it goes.
func begins(in []byte, prefix string) bool {
	n := min(len(in), len(prefix))
	return string(in[:n]) == prefix[:n]
}

// parseLine reads version 1, section 2.1.
func parseLine(in []byte) (int, Header, error) {
	window := in[:min(len(in), maxLine)]
	end := bytes.IndexByte(window, '\n')
	switch {
	case end < 0 && len(window) == maxLine:
		return 0, Header{}, ErrTooLong
	case end < 0:
		return 0, Header{}, nil
	case window[end-1] != '\r':
		return 0, Header{}, ErrLine
	}
	line := string(window[len(prefix1) : end-1])
	kind, rest, _ := strings.Cut(line, " ")
	if kind == unknownAddress {
		return end + 1, Header{}, nil
	}
	h, ok := parseAddresses(kind, rest)
	if !ok {
		return 0, Header{}, ErrLine
	}
	return end + 1, h, nil
}

// parseAddresses reads "SOURCE DESTINATION SOURCEPORT DESTINATIONPORT".
func parseAddresses(kind, text string) (Header, bool) {
	f := strings.Split(text, " ")
	if len(f) != 4 || kind != "TCP4" && kind != "TCP6" {
		return Header{}, false
	}
	from, ok1 := parseAddr(f[0], kind == "TCP6")
	to, ok2 := parseAddr(f[1], kind == "TCP6")
	fromPort, ok3 := parsePort(f[2])
	toPort, ok4 := parsePort(f[3])
	return Header{
		Known:       true,
		Source:      netip.AddrPortFrom(from, fromPort),
		Destination: netip.AddrPortFrom(to, toPort),
	}, ok1 && ok2 && ok3 && ok4
}

func parseAddr(s string, v6 bool) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Is6() != v6 || a.Zone() != "" {
		return netip.Addr{}, false
	}
	return ipaddr.Canonical(a), true
}

// parsePort takes port 0 as well, which section 2.1 allows.
func parsePort(s string) (uint16, bool) {
	if s == "0" {
		return 0, true
	}
	return hostport.ParsePort([]byte(s))
}

// parseBinary reads version 2, section 2.2.
func parseBinary(in []byte) (int, Header, error) {
	if len(in) <= len(signature) {
		return 0, Header{}, nil
	}
	command := in[len(signature)] &^ version2
	if in[len(signature)]&0xf0 != version2 || command != commandLocal && command != commandProxy {
		return 0, Header{}, ErrBinary
	}
	if len(in) < fixed2 {
		return 0, Header{}, nil
	}
	size := int(binary.BigEndian.Uint16(in[fixed2-2:]))
	switch {
	case fixed2+size > MaxSize:
		return 0, Header{}, ErrTooLong
	case len(in) < fixed2+size:
		return 0, Header{}, nil
	case command == commandLocal:
		return fixed2 + size, Header{}, nil
	}
	h, err := parseBody(in[len(signature)+1], in[fixed2:fixed2+size])
	if err != nil {
		return 0, Header{}, err
	}
	return fixed2 + size, h, nil
}

// parseBody reads the addresses of a connection and passes over the vectors
// (TLV) behind them.
func parseBody(kind byte, body []byte) (Header, error) {
	family, transport := kind>>4, kind&0x0f
	switch {
	case family > familyUnix, transport > transportUDP:
		return Header{}, ErrBinary
	case family == familyUnspec:
		// What follows is not defined; the connection is taken as it is.
		return Header{}, nil
	case transport != transportTCP:
		return Header{}, ErrFamily
	}
	size := [...]int{familyInet: sizeInet, familyInet6: sizeInet6, familyUnix: sizeUnix}[family]
	if len(body) < size || !validVectors(body[size:]) {
		return Header{}, ErrBinary
	}
	if family == familyUnix {
		return Header{Known: true}, nil
	}
	n := (size - 4) / 2
	from, _ := netip.AddrFromSlice(body[:n])
	to, _ := netip.AddrFromSlice(body[n : 2*n])
	return Header{
		Known:       true,
		Source:      netip.AddrPortFrom(ipaddr.Canonical(from), binary.BigEndian.Uint16(body[2*n:])),
		Destination: netip.AddrPortFrom(ipaddr.Canonical(to), binary.BigEndian.Uint16(body[2*n+2:])),
	}, nil
}

// validVectors reports whether vectors fill b exactly, section 2.2.
func validVectors(b []byte) bool {
	for len(b) > 0 {
		if len(b) < tlvHeader {
			return false
		}
		n := tlvHeader + int(binary.BigEndian.Uint16(b[1:]))
		if n > len(b) {
			return false
		}
		b = b[n:]
	}
	return true
}
