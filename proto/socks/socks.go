// Package socks is the server side of SOCKS 4, 4a and 5 as a state machine:
// bytes in, decisions and bytes out. It does no I/O.
//
// SOCKS 5 is RFC 1928 with the user/password method of RFC 1929; SOCKS 4 and
// 4a are the notes "SOCKS: A protocol for TCP proxy across firewalls" and
// "SOCKS 4A: A Simple Extension to SOCKS 4 Protocol".
package socks

import (
	"encoding/binary"
	"net/netip"
)

// The protocol versions in Handshake.Version.
const (
	Version4 = 4
	Version5 = 5
)

// The authentication methods (RFC 1928 section 3).
const (
	NoAuth       byte = 0x00
	UserPassAuth byte = 0x02
	NoAcceptable byte = 0xFF
)

// The commands (RFC 1928 section 4). SOCKS 4 has the first two.
const (
	Connect      byte = 1
	Bind         byte = 2
	UDPAssociate byte = 3
)

// The reply codes (RFC 1928 section 6).
const (
	ReplySucceeded          byte = 0
	ReplyGeneralFailure     byte = 1
	ReplyNotAllowed         byte = 2
	ReplyNetworkUnreachable byte = 3
	ReplyHostUnreachable    byte = 4
	ReplyConnectionRefused  byte = 5
	ReplyTTLExpired         byte = 6
	ReplyCommandUnsupported byte = 7
	ReplyAddressUnsupported byte = 8
)

// The reply codes of SOCKS 4.
const (
	Reply4Granted      byte = 90
	Reply4Rejected     byte = 91
	Reply4UserMismatch byte = 93
)

const (
	addrIPv4 = 1
	addrName = 3
	addrIPv6 = 4

	authVersion = 1 // of the RFC 1929 sub-negotiation
)

// Failure says why a handshake failed.
type Failure uint8

// The failures. FailVersion and FailSequence are not answered: the client does
// not speak SOCKS, or the caller went on after the end.
const (
	FailNone Failure = iota
	FailVersion
	FailAuthVersion
	FailMethod
	FailCommand
	FailAddressType
	FailHost
	FailPort
	FailTooLong
	FailSequence
	// FailDatagram and FailFragment are of datagrams.
	FailDatagram
	FailFragment
)

var failureTexts = [...]string{
	"no failure",
	"not a SOCKS version",
	"wrong version of the user/password negotiation",
	"no acceptable authentication method",
	"unknown command",
	"unknown address type",
	"invalid host name",
	"invalid port",
	"user id or host name too long",
	"handshake continued after its end",
	"bad header of a datagram",
	"fragment of a datagram",
}

// Error returns the failure in words.
func (f Failure) Error() string {
	if int(f) >= len(failureTexts) {
		return "unknown failure"
	}
	return failureTexts[f]
}

// Reply returns the SOCKS 5 reply code that tells a client of the failure.
func (f Failure) Reply() byte {
	switch f {
	case FailNone:
		return ReplySucceeded
	case FailCommand:
		return ReplyCommandUnsupported
	case FailAddressType:
		return ReplyAddressUnsupported
	case FailHost:
		return ReplyHostUnreachable
	}
	return ReplyGeneralFailure
}

// Reply4 turns a SOCKS 5 reply code into one of SOCKS 4; codes of SOCKS 4 stay
// as they are.
func Reply4(code byte) byte {
	switch {
	case code == ReplySucceeded:
		return Reply4Granted
	case Reply4Granted <= code && code <= Reply4UserMismatch:
		return code
	}
	return Reply4Rejected
}

// AppendMethod appends the server's choice of method (RFC 1928 section 3).
func AppendMethod(dst []byte, method byte) []byte { return append(dst, Version5, method) }

// AppendAuthStatus appends the answer to user and password (RFC 1929
// section 2).
func AppendAuthStatus(dst []byte, ok bool) []byte {
	if ok {
		return append(dst, authVersion, 0)
	}
	return append(dst, authVersion, 1)
}

// AppendReply appends the reply to a request in the given version. The code is
// one of SOCKS 5, mapped by Reply4 for version 4. An addr that is not valid, or
// that version 4 cannot express, is sent as zeros.
func AppendReply(dst []byte, version, code byte, addr netip.AddrPort) []byte {
	if version == Version4 {
		dst = binary.BigEndian.AppendUint16(append(dst, 0, Reply4(code)), addr.Port())
		return appendIPv4(dst, addr.Addr().Unmap())
	}
	return appendDestination(append(dst, Version5, code, 0), addr)
}
