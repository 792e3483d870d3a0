package socks

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"3proxyd/proto/hostport"
)

// Step says what Next has found.
type Step uint8

// The steps. SOCKS 5 goes Methods, UserPass when Select chose it, Request;
// SOCKS 4 has only Request.
const (
	// More asks for more input; nothing was consumed.
	More Step = iota
	// Methods brings the methods offered; the caller answers with Select.
	Methods
	// UserPass brings User and Pass.
	UserPass
	// Request brings Command, the destination and, in SOCKS 4, User.
	Request
	// Fail ends the handshake; Err says why.
	Fail
)

// MaxMessage is the size in bytes of the longest message: SOCKS 4a with user
// id and host name. A caller's buffer needs no more.
const MaxMessage = head4 + maxString + 1 + maxString + 1

const (
	head4     = 8 // version, command, port, address
	maxString = 255
)

type state uint8

const (
	stateStart state = iota
	stateSelect
	stateUserPass
	stateRequest
	stateDone
)

// Handshake reads the client's side of a handshake. The zero value is ready.
type Handshake struct {
	// Version is 4 or 5 after the first step; 0 when the client speaks
	// neither.
	Version byte
	// HasNoAuth and HasUserPass tell which methods the client offers.
	HasNoAuth, HasUserPass bool
	// User is the name of RFC 1929 or the user id of SOCKS 4, Pass the
	// password. They may hold any byte, are slices of the input and are nil
	// before they have been read.
	User, Pass []byte
	// Command is one of Connect, Bind, UDPAssociate.
	Command byte
	// Addr is the destination when it is an address, also one written as a
	// name; Host, a slice of the input, when it is a name. Both are of one
	// spelling, see hostport.ParseHost.
	Addr netip.Addr
	Host []byte
	// Port is the destination port. It is 0 only for Bind and UDPAssociate.
	Port uint16
	// Err is the reason of Fail.
	Err Failure

	state state
}

// Next reads one message from in, which holds everything received and not yet
// consumed, and returns the number of bytes it took. After More the caller
// calls again with the same bytes and those that follow. What follows the
// request is not consumed: it belongs to the destination.
func (h *Handshake) Next(in []byte) (n int, step Step) {
	switch h.state {
	case stateStart:
		return h.start(in)
	case stateUserPass:
		return h.userPass(in)
	case stateRequest:
		return h.request5(in)
	}
	return h.fail(FailSequence)
}

// Select tells which method the caller has answered with. NoAcceptable, or a
// method that was not offered, ends the handshake.
func (h *Handshake) Select(method byte) {
	switch {
	case h.state != stateSelect:
		h.state = stateDone
	case method == NoAuth && h.HasNoAuth:
		h.state = stateRequest
	case method == UserPassAuth && h.HasUserPass:
		h.state = stateUserPass
	default:
		h.state, h.Err = stateDone, FailMethod
	}
}

func (h *Handshake) fail(why Failure) (int, Step) {
	h.state = stateDone
	if h.Err == FailNone {
		h.Err = why
	}
	return 0, Fail
}

func (h *Handshake) start(in []byte) (int, Step) {
	if len(in) == 0 {
		return 0, More
	}
	switch in[0] {
	case Version4:
		h.Version = Version4
		return h.request4(in)
	case Version5:
		h.Version = Version5
		return h.methods(in)
	}
	return h.fail(FailVersion)
}

func (h *Handshake) methods(in []byte) (int, Step) {
	if len(in) < 2 || len(in) < 2+int(in[1]) {
		return 0, More
	}
	n := 2 + int(in[1])
	offered := in[2:n]
	h.HasNoAuth = bytes.IndexByte(offered, NoAuth) >= 0
	h.HasUserPass = bytes.IndexByte(offered, UserPassAuth) >= 0
	h.state = stateSelect
	return n, Methods
}

func (h *Handshake) userPass(in []byte) (int, Step) {
	if len(in) == 0 {
		return 0, More
	}
	if in[0] != authVersion {
		return h.fail(FailAuthVersion)
	}
	if len(in) < 2 || len(in) < 3+int(in[1]) {
		return 0, More
	}
	userEnd := 2 + int(in[1])
	n := userEnd + 1 + int(in[userEnd])
	if len(in) < n {
		return 0, More
	}
	h.User, h.Pass = in[2:userEnd:userEnd], in[userEnd+1:n:n]
	h.state = stateRequest
	return n, UserPass
}

func (h *Handshake) request5(in []byte) (int, Step) {
	if len(in) > 0 && in[0] != Version5 {
		return h.fail(FailVersion)
	}
	if len(in) > 1 && (in[1] < Connect || in[1] > UDPAssociate) {
		return h.fail(FailCommand)
	}
	if len(in) < 4 {
		return 0, More
	}
	size, why := destinationSize(in[3:])
	n := 3 + size
	switch {
	case why != FailNone:
		return h.fail(why)
	case size == 0 || len(in) < n:
		return 0, More
	}
	h.Command = in[1]
	h.Addr, h.Host, h.Port, why = parseDestination(in[3:n])
	if string(h.Host) == anyName && h.Command != Connect {
		h.Addr, h.Host = netip.IPv4Unspecified(), nil
	}
	if why != FailNone {
		return h.fail(why)
	}
	return h.finish(n)
}

// anyName is how some clients write 0.0.0.0 when they know no address to expect.
const anyName = "0"

func (h *Handshake) request4(in []byte) (int, Step) {
	if len(in) > 1 && in[1] != Connect && in[1] != Bind {
		return h.fail(FailCommand)
	}
	if len(in) < head4 {
		return 0, More
	}
	user, step := cString(in[head4:])
	if step != Request {
		return h.unfinished(step)
	}
	n := head4 + len(user) + 1
	ip := [4]byte(in[4:8])
	h.Addr = netip.AddrFrom4(ip)
	if ip[0] == 0 && ip[1] == 0 && ip[2] == 0 && ip[3] != 0 {
		name, step := cString(in[n:])
		if step != Request {
			return h.unfinished(step)
		}
		n += len(name) + 1
		var ok bool
		if h.Addr, h.Host, ok = hostport.ParseHost(name); !ok {
			return h.fail(FailHost)
		}
	}
	h.Command, h.User = in[1], user
	h.Port = binary.BigEndian.Uint16(in[2:])
	return h.finish(n)
}

func (h *Handshake) unfinished(step Step) (int, Step) {
	if step == Fail {
		return h.fail(FailTooLong)
	}
	return 0, More
}

// finish ends the handshake with a request of n bytes.
func (h *Handshake) finish(n int) (int, Step) {
	if h.Port == 0 && h.Command == Connect {
		return h.fail(FailPort)
	}
	h.state = stateDone
	return n, Request
}

// cString returns the bytes before the first NUL with Request, More when there
// is none yet, or Fail when there are too many.
func cString(in []byte) ([]byte, Step) {
	window := in[:min(len(in), maxString+1)]
	end := bytes.IndexByte(window, 0)
	switch {
	case end >= 0:
		return in[:end:end], Request
	case len(window) > maxString:
		return nil, Fail
	}
	return nil, More
}
