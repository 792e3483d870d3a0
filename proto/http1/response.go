package http1

import "bytes"

// BodyKind is how the end of a response's body is found (RFC 9112 section
// 6.3).
type BodyKind uint8

// The kinds of body.
const (
	BodyNone       BodyKind = iota // there is none
	BodyLength                     // ContentLength bytes
	BodyChunked                    // see Chunked
	BodyUntilClose                 // until the server closes
)

// Response is the head of a response. The zero value is ready; a Response is
// reused to parse without allocating. All slices are parts of the buffer given
// to Parse and are valid as long as that is.
type Response struct {
	// Minor is the minor version of HTTP/1: 0 or 1.
	Minor  int
	Status int
	Reason []byte
	Fields []Field

	Body BodyKind
	// ContentLength is -1 without Content-Length. It and Chunked tell what
	// the head says, also where there is no body (answers to HEAD, 304).
	ContentLength int64
	Chunked       bool
	// KeepAlive tells that the server keeps the connection after the body.
	KeepAlive bool
	// KeepAliveFor is how long the server keeps the connection idle, in
	// seconds, when it says so (Keep-Alive: timeout=N, RFC 2068 section
	// 19.7.1.1); else -1.
	KeepAliveFor int
	// Upgrade is set with status 101: after the head follows another protocol.
	Upgrade bool

	// Scan is the progress on an incomplete head.
	Scan Scan
}

// Reset forgets the response and the progress on an incomplete one, but keeps
// the memory of Fields.
func (r *Response) Reset() {
	clear(r.Fields)
	*r = Response{Fields: r.Fields[:0], ContentLength: -1, KeepAliveFor: -1}
}

// Parse parses the head at the start of buf, the answer to a HEAD or CONNECT
// request as told, and returns its length. It returns 0 and no error when the
// head is not complete: the caller then calls again with more bytes after the
// same ones. An error is an *Error with status 502; the connection cannot be
// used further.
//
// Lines may end with LF only, blanks before a colon are dropped, and one length
// given several times is one: such servers exist, and AppendResponseHead writes the
// head anew.
func (r *Response) Parse(buf []byte, head, connect bool) (n int, err error) {
	scan := r.Scan
	end, e := scan.endOfHead(buf, false)
	if e != nil {
		e = errResponse
	} else {
		e = checkResponseSize(&scan, buf, end)
	}
	if e == nil && end == 0 {
		r.Scan = scan
		return 0, nil
	}
	r.Reset()
	if e == nil {
		e = r.parseHead(buf[:end], head, connect)
	}
	if e != nil {
		return 0, e
	}
	return end, nil
}

const responsePrefix = "HTTP/1."

func checkResponseSize(s *Scan, buf []byte, end int) *Error {
	if n := min(len(buf), len(responsePrefix)); string(buf[:n]) != responsePrefix[:n] {
		return errStatusLine
	}
	if end > MaxHead || end == 0 && len(buf) >= MaxHead {
		return errRespLong
	}
	return nil
}

func (r *Response) parseHead(b []byte, head, connect bool) *Error {
	line, rest := nextLine(b)
	if !r.parseStatusLine(line) {
		return errStatusLine
	}
	var err *Error
	if r.Fields, err = parseFields(r.Fields, rest, true); err != nil {
		return errResponse
	}
	fr := framing{length: -1, fold: true}
	tunnel := connect && r.Status/100 == 2
	for i := range r.Fields {
		f := &r.Fields[i]
		if tunnel && (f.kind == kindContentLength || f.kind == kindTransferEncoding) {
			f.kind = kindHop // RFC 9110 section 9.3.6: ignored
		}
		if err := fr.add(f); err != nil {
			return errFraming
		}
		if f.kind == kindKeepAlive {
			r.KeepAliveFor = keepAliveTimeout(f.Value)
		}
	}
	if fr.nominations > 0 {
		dropNominated(r.Fields)
	}
	if fr.chunked && (fr.length >= 0 || r.Minor == 0) {
		return errFraming
	}
	r.ContentLength, r.Chunked = fr.length, fr.chunked
	r.Upgrade = r.Status == 101
	r.setBody(head, tunnel)
	r.KeepAlive = fr.persistent(r.Minor) && r.Body != BodyUntilClose && !r.Upgrade
	return nil
}

// keepAliveTimeout returns the timeout parameter of a Keep-Alive field, -1
// without one.
func keepAliveTimeout(list []byte) int {
	for list != nil {
		var parameter []byte
		parameter, list = nextElement(list)
		name, value, _ := bytes.Cut(parameter, []byte("="))
		if equalFold(trim(name), "timeout") {
			if n, ok := parseDigits(trim(value), 9); ok {
				return int(n)
			}
		}
	}
	return -1
}

// parseStatusLine parses HTTP/1.x SP 3DIGIT [SP reason] (RFC 9112 section 4);
// the space is often left out when there is no reason.
func (r *Response) parseStatusLine(line []byte) bool {
	const version = len("HTTP/1.1")
	if len(line) < version+4 || line[version] != ' ' {
		return false
	}
	minor, err := parseVersion(line[:version])
	status, ok := parseDigits(line[version+1:version+4], 3)
	if err != nil || !ok || status < 100 {
		return false
	}
	r.Minor, r.Status = minor, int(status)
	rest := line[version+4:]
	if len(rest) == 0 {
		return true
	}
	r.Reason = rest[1:]
	return rest[0] == ' ' && noControls(r.Reason)
}

func (r *Response) setBody(head, tunnel bool) {
	switch {
	case head || tunnel || r.bodiless() || r.Status == 304:
		r.Body = BodyNone
	case r.Chunked:
		r.Body = BodyChunked
	case r.ContentLength == 0:
		r.Body = BodyNone
	case r.ContentLength > 0:
		r.Body = BodyLength
	default:
		r.Body = BodyUntilClose
	}
}

// bodiless tells whether the status never has a body, nor fields about one
// (RFC 9110 section 8.6).
func (r *Response) bodiless() bool { return r.Status < 200 || r.Status == 204 }
