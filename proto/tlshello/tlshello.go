// Package tlshello reads the ClientHello that a TLS client begins with, and
// recognises the ServerHello that answers it. It does no I/O and decrypts
// nothing: what it sees is what every host on the way sees.
package tlshello

import (
	"fmt"
	"net/netip"

	"3proxyd/proto/hostport"
)

// RecordHandshake is the first byte of a TLS connection: the content type of a
// handshake record (RFC 8446 section 5.1).
const RecordHandshake = 22

// MaxSize bounds a hello with its record headers, in bytes.
const MaxSize = 64 << 10

const (
	recordAlert      = 21
	recordHeader     = 5
	maxRecord        = 1 << 14
	handshakeHeader  = 4
	msgClientHello   = 1
	msgServerHello   = 2
	randomSize       = 32
	maxSessionID     = 32
	minHello         = 2 + randomSize + 1
	extServerName    = 0
	extALPN          = 16
	extVersions      = 43
	extECH           = 0xfe0d
	nameTypeHostName = 0
)

// Version numbers as they are on the wire (RFC 8446 section 4.1.2).
const (
	SSL30 = 0x0300
	TLS10 = 0x0301
	TLS13 = 0x0304
)

// Alert is the description of a fatal alert (RFC 8446 section 6).
type Alert uint8

// The alerts a hello is refused with.
const (
	UnexpectedMessage Alert = 10
	RecordOverflow    Alert = 22
	HandshakeFailure  Alert = 40
	IllegalParameter  Alert = 47
	DecodeError       Alert = 50
	AccessDenied      Alert = 49
	InternalError     Alert = 80
	UnrecognizedName  Alert = 112
)

// Error is why a hello is refused.
type Error struct {
	Reason string
	// Alert is what to tell the client; 0 when it does not speak TLS.
	Alert Alert
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

// The reasons.
var (
	ErrNotTLS  = &Error{"not a TLS handshake", 0}
	ErrRecord  = &Error{"bad TLS record", DecodeError}
	ErrTooLong = &Error{fmt.Sprintf("the hello is longer than %d bytes", MaxSize), RecordOverflow}
	ErrMessage = &Error{"the first handshake message is not a hello", UnexpectedMessage}
	ErrDecode  = &Error{"the hello is malformed", DecodeError}
	ErrTwice   = &Error{"an extension comes twice", IllegalParameter}
	// ErrName is that of a server name that is an address, which RFC 6066
	// section 3 forbids, or that cannot be a name.
	ErrName = &Error{"the server name is not a host name", IllegalParameter}
)

// Hello is a ClientHello as far as it is of interest here. A Hello is reused:
// Parse overwrites it, and its slices are valid as long as the input is.
type Hello struct {
	// Name is the server name (RFC 6066 section 3) in lower case and without a
	// final dot, nil when there is none. With encrypted ClientHello it is the
	// name of the outer hello, which is where the connection has to go.
	Name []byte
	// ALPN is the first protocol offered (RFC 7301), nil without any.
	ALPN []byte
	// Version is the highest version offered.
	Version uint16
	// ECH says that the hello carries an encrypted one (RFC 9849).
	ECH bool

	name    []byte
	message []byte
}

// Scan is how far the records of a hello have been looked at, so that input
// which comes in small pieces is gone over once. The zero value is ready; one
// Scan is for one connection.
type Scan struct {
	next int // where the next record begins
	have int // bytes of the message in the records before it
}

// Parse looks for a whole ClientHello at the beginning of in, which must begin
// with what earlier calls with the same Scan were given. It returns false while
// the hello is not complete; in may hold more than it. The error is an *Error.
func (h *Hello) Parse(s *Scan, in []byte) (done bool, err error) {
	done, e := h.parse(s, in)
	if e != nil {
		return false, e
	}
	return done, nil
}

func (h *Hello) parse(s *Scan, in []byte) (bool, *Error) {
	want, e := s.records(in, msgClientHello)
	if e != nil || want == 0 || s.have < want {
		return false, e
	}
	return true, h.decode(h.gather(in, want))
}

// records walks the records in in and returns the length of the first
// handshake message with its header, 0 while that is not known. A record counts
// when it has come whole.
func (s *Scan) records(in []byte, msgType byte) (want int, e *Error) {
	for {
		if want, e = messageSize(in, msgType); e != nil || want > 0 && s.have >= want {
			return want, e
		}
		rest := in[min(s.next, len(in)):]
		if e = checkRecordHeader(rest); e != nil {
			return 0, e
		}
		if len(rest) < recordHeader {
			return want, nil
		}
		size := int(rest[3])<<8 | int(rest[4])
		// What is still missing must fit as well.
		if s.next+recordHeader+max(size, want-s.have) > MaxSize {
			return 0, ErrTooLong
		}
		if len(rest) < recordHeader+size {
			return want, nil
		}
		s.next += recordHeader + size
		s.have += size
	}
}

// checkRecordHeader checks as much of a record's header as there is.
func checkRecordHeader(b []byte) *Error {
	if len(b) > 0 && b[0] != RecordHandshake || len(b) > 1 && b[1] != 3 {
		return ErrNotTLS
	}
	if len(b) < recordHeader {
		return nil
	}
	// Handshake records are not empty (RFC 8446 section 5.1).
	if size := int(b[3])<<8 | int(b[4]); size == 0 || size > maxRecord {
		return ErrRecord
	}
	return nil
}

// messageSize returns the length of the first handshake message with its
// header, as soon as that has come; it may be spread over records.
func messageSize(in []byte, msgType byte) (int, *Error) {
	var header [handshakeHeader]byte
	n, off := 0, 0
	for n < handshakeHeader {
		if len(in)-off <= recordHeader {
			break
		}
		if e := checkRecordHeader(in[off:]); e != nil {
			return 0, e
		}
		size := int(in[off+3])<<8 | int(in[off+4])
		off += recordHeader
		n += copy(header[n:], in[off:min(off+size, len(in))])
		off += size
		if off >= len(in) {
			break
		}
	}
	if n > 0 && header[0] != msgType {
		return 0, ErrMessage
	}
	if n < handshakeHeader {
		return 0, nil
	}
	size := int(header[1])<<16 | int(header[2])<<8 | int(header[3])
	switch {
	case size < minHello:
		return 0, ErrDecode
	case size+handshakeHeader+recordHeader > MaxSize:
		return 0, ErrTooLong
	}
	return size + handshakeHeader, nil
}

// gather returns the message of want bytes without its header. It is a part of
// in when one record holds it.
func (h *Hello) gather(in []byte, want int) []byte {
	first := int(in[3])<<8 | int(in[4])
	if first >= want {
		return in[recordHeader+handshakeHeader : recordHeader+want]
	}
	h.message = h.message[:0]
	for off := 0; len(h.message) < want; {
		size := int(in[off+3])<<8 | int(in[off+4])
		off += recordHeader
		h.message = append(h.message, in[off:off+size]...)
		off += size
	}
	return h.message[handshakeHeader:want]
}

// decode reads the body of a ClientHello (RFC 8446 section 4.1.2, RFC 5246
// section 7.4.1.2).
func (h *Hello) decode(body []byte) *Error {
	h.Name, h.ALPN, h.Version, h.ECH = nil, nil, 0, false
	r := reader{rest: body}
	h.Version = r.uint16()
	r.take(randomSize)
	session := r.vector8()
	suites := r.vector16()
	compression := r.vector8()
	switch {
	case r.bad, h.Version>>8 != 3, len(session) > maxSessionID,
		len(suites) == 0, len(suites)%2 != 0, len(compression) == 0:
		return ErrDecode
	case len(r.rest) == 0:
		return nil // without extensions, as before TLS 1.2
	}
	extensions := reader{rest: r.vector16()}
	if r.bad || len(r.rest) > 0 {
		return ErrDecode
	}
	return h.extensions(&extensions)
}

// extensions reads the list of extensions. Unknown ones, among them those of
// RFC 8701 (GREASE), are passed over.
func (h *Hello) extensions(r *reader) *Error {
	var seen uint8
	for len(r.rest) > 0 {
		kind := r.uint16()
		data := r.vector16()
		if r.bad {
			return ErrDecode
		}
		read, bit := h.reader(kind)
		if read == nil {
			continue
		}
		if seen&bit != 0 {
			return ErrTwice
		}
		seen |= bit
		if e := read(h, data); e != nil {
			return e
		}
	}
	return nil
}

// reader returns what reads an extension and a bit of its own, nil for one
// that is passed over.
func (h *Hello) reader(kind uint16) (read func(*Hello, []byte) *Error, bit uint8) {
	switch kind {
	case extServerName:
		return (*Hello).serverName, 1
	case extALPN:
		return (*Hello).protocols, 2
	case extVersions:
		return (*Hello).versions, 4
	case extECH:
		return (*Hello).encrypted, 8
	}
	return nil, 0
}

// serverName reads RFC 6066 section 3: a list with one host name, the only type
// there is.
func (h *Hello) serverName(data []byte) *Error {
	r := reader{rest: data}
	list := reader{rest: r.vector16()}
	kind := list.uint8()
	name := list.vector16()
	if r.bad || len(r.rest) > 0 || list.bad || len(list.rest) > 0 || kind != nameTypeHostName || len(name) == 0 {
		return ErrDecode
	}
	var addr netip.Addr
	addr, host, ok := hostport.ParseHost(name)
	if !ok || addr.IsValid() {
		return ErrName
	}
	h.name = hostport.AppendLower(h.name[:0], host)
	h.Name = h.name
	return nil
}

// protocols reads RFC 7301 section 3.1: names of 1 to 255 bytes.
func (h *Hello) protocols(data []byte) *Error {
	r := reader{rest: data}
	list := reader{rest: r.vector16()}
	if r.bad || len(r.rest) > 0 || len(list.rest) == 0 {
		return ErrDecode
	}
	for first := true; len(list.rest) > 0; {
		p := list.vector8()
		if list.bad || len(p) == 0 {
			return ErrDecode
		}
		if first && !isGrease(p) {
			h.ALPN, first = p, false
		}
	}
	return nil
}

// isGrease recognises a protocol of RFC 8701 section 2.
func isGrease(p []byte) bool { return len(p) == 2 && p[0] == p[1] && p[0]&0x0f == 0x0a }

// versions reads RFC 8446 section 4.2.1.
func (h *Hello) versions(data []byte) *Error {
	r := reader{rest: data}
	list := reader{rest: r.vector8()}
	if r.bad || len(r.rest) > 0 || len(list.rest) == 0 || len(list.rest)%2 != 0 {
		return ErrDecode
	}
	highest := uint16(0)
	for len(list.rest) > 0 {
		if v := list.uint16(); v>>8 == 3 {
			highest = max(highest, v)
		}
	}
	if highest > 0 {
		h.Version = highest
	}
	return nil
}

// encrypted notes encrypted ClientHello. What is in it is for the server.
func (h *Hello) encrypted([]byte) *Error {
	h.ECH = true
	return nil
}

// AppendAlert appends the record of a fatal alert (RFC 8446 section 6), with
// the version every TLS client reads.
func AppendAlert(b []byte, a Alert) []byte {
	return append(b, recordAlert, TLS10>>8, TLS10&0xff, 0, 2, 2, byte(a))
}
