package http1

import (
	"bytes"
	"net/netip"

	"3proxyd/proto/hostport"
)

// Request is the head of a request. The zero value is ready; a Request is
// reused to parse without allocating. All slices are parts of the buffer given
// to Parse and are valid as long as that is.
type Request struct {
	// Method and Target are as received. After an error they are set when the
	// request line was well-formed so far.
	Method, Target []byte
	Form           TargetForm
	// Scheme is that of an absolute-form target, as received.
	Scheme []byte
	// Addr, or else Host, is the destination: that of the target, or in
	// origin form and asterisk form that of the Host field, which may be
	// missing (both unset). Port is never 0 when there is a destination.
	Addr netip.Addr
	Host []byte
	Port uint16
	// Path is path and query. It begins with "?" when the target has a query
	// and no path; AppendRequestHead puts the slash before it.
	Path []byte
	// Minor is the minor version of HTTP/1: 0 or 1.
	Minor  int
	Fields []Field

	// ContentLength is -1 without Content-Length. A request has a body when
	// Chunked is set or ContentLength is above 0.
	ContentLength int64
	Chunked       bool
	// KeepAlive is the client's wish for its connection.
	KeepAlive bool
	// Expect100 tells that the client waits for 100 (Continue).
	Expect100 bool
	// Upgrade tells that the client asks for another protocol; a caller that
	// does not relay upgrades clears it before AppendRequestHead.
	Upgrade bool
	// ProxyAuth is the value of Proxy-Authorization, nil when there is none.
	ProxyAuth []byte
	// Accept is the value of the first Accept field, nil without one.
	Accept       []byte
	HasHostField bool
	// MaxForwards is that of TRACE and OPTIONS, -1 without; at 0 the request
	// must not be forwarded (RFC 9110 section 7.6.2).
	MaxForwards int

	// Scan is the progress on an incomplete head.
	Scan Scan
}

// maxRequestLine is the length in bytes of the longest request line.
const maxRequestLine = MaxMethod + MaxTarget + len("  HTTP/1.1\r\n")

const maxMaxForwards = 999_999_999

// Reset forgets the request and the progress on an incomplete one, but keeps
// the memory of Fields.
func (r *Request) Reset() {
	clear(r.Fields)
	*r = Request{Fields: r.Fields[:0], ContentLength: -1, MaxForwards: -1}
}

// Parse parses the head at the start of buf and returns its length, with empty
// lines before it. It returns 0 and no error when the head is not complete:
// the caller then calls again with more bytes after the same ones. An error is
// an *Error with the status to answer; the connection cannot be used further.
func (r *Request) Parse(buf []byte) (n int, err error) {
	scan := r.Scan
	end, e := scan.endOfHead(buf, true)
	if e == nil {
		e = checkRequestSize(&scan, buf, end)
	}
	if e == nil && end == 0 {
		r.Scan = scan
		return 0, nil
	}
	r.Reset()
	if e == nil {
		e = r.parseHead(buf[scan.start:end])
	}
	if e != nil {
		return 0, e
	}
	return end, nil
}

// checkRequestSize bounds a head, complete or not (end 0), and refuses early
// what cannot become a request.
func checkRequestSize(s *Scan, buf []byte, end int) *Error {
	size := end - int(s.start)
	if end == 0 {
		size = len(buf) - int(s.start)
		if size > 0 && buf[s.start] != '\r' && !tokenBytes[buf[s.start]] {
			return errRequestLine
		}
		size++ // at least one more byte is to come
	}
	switch {
	case end == 0 && s.firstLineOpen() && size > maxRequestLine:
		return errTargetLong
	case size > MaxHead:
		return errHeadLong
	}
	return nil
}

func (r *Request) parseHead(head []byte) *Error {
	line, rest := nextLine(head)
	if err := r.parseRequestLine(line); err != nil {
		// For ErrorFormat only.
		r.Fields, _ = parseFields(r.Fields, rest, false)
		return err
	}
	var err *Error
	if r.Fields, err = parseFields(r.Fields, rest, false); err != nil {
		return err
	}
	fr := framing{length: -1}
	for i := range r.Fields {
		f := &r.Fields[i]
		if err := fr.add(f); err != nil {
			return err
		}
		if err := r.addField(f); err != nil {
			return err
		}
	}
	if fr.nominations > 0 {
		dropNominated(r.Fields)
	}
	r.KeepAlive = fr.persistent(r.Minor)
	r.Upgrade = fr.upgrading() && r.Minor > 0 && r.Form != AuthorityForm
	return r.setFraming(&fr)
}

func (r *Request) addField(f *Field) *Error {
	switch f.kind {
	case kindHost:
		return r.addHost(f.Value)
	case kindProxyAuthorization:
		if r.ProxyAuth != nil {
			return errProxyAuth
		}
		r.ProxyAuth = f.Value
	case kindAccept:
		if r.Accept == nil {
			r.Accept = f.Value
		}
	case kindExpect:
		return r.addExpect(f.Value)
	case kindMaxForwards:
		return r.addMaxForwards(f.Value)
	}
	return nil
}

// addHost checks a Host field and takes the destination from it where the
// target has none; a target's own authority wins (RFC 9112 section 3.2.2).
func (r *Request) addHost(value []byte) *Error {
	if r.HasHostField {
		return errHostTwice
	}
	r.HasHostField = true
	if len(value) == 0 {
		return nil
	}
	addr, host, port, ok := hostport.ParseAuthority(value)
	if !ok {
		return errHost
	}
	if r.Form == OriginForm || r.Form == AsteriskForm {
		if port == 0 {
			port = defaultPort
		}
		r.Addr, r.Host, r.Port = addr, host, port
	}
	return nil
}

// addExpect takes 100-continue, the only expectation there is; one in HTTP/1.0
// is ignored (RFC 9110 section 10.1.1).
func (r *Request) addExpect(value []byte) *Error {
	if r.Minor == 0 {
		return nil
	}
	if !equalFold(value, "100-continue") {
		return errExpect
	}
	r.Expect100 = true
	return nil
}

func (r *Request) addMaxForwards(value []byte) *Error {
	if !r.limitsForwards() {
		return nil
	}
	n, ok := parseDigits(value, 19)
	if !ok || r.MaxForwards >= 0 {
		return errMaxForwards
	}
	r.MaxForwards = int(min(n, maxMaxForwards))
	return nil
}

// limitsForwards tells whether Max-Forwards has a meaning for the method.
func (r *Request) limitsForwards() bool {
	return string(r.Method) == "TRACE" || string(r.Method) == "OPTIONS"
}

func (r *Request) setFraming(fr *framing) *Error {
	r.ContentLength, r.Chunked = fr.length, fr.chunked
	switch {
	case fr.chunked && fr.length >= 0:
		return errAmbiguous
	case fr.chunked && r.Minor == 0:
		return errCodingVersion
	case !r.HasHostField && r.Minor > 0 && r.Form != AuthorityForm:
		// CONNECT is let off: its target is all there is to know, and many
		// small clients send no Host with it.
		return errHostMissing
	case !fr.chunked && fr.length <= 0:
		return nil
	case r.Form == AuthorityForm || string(r.Method) == "TRACE":
		return errContent
	}
	return nil
}

// ErrorFormat returns the format in which the client wants an error, as far as
// the head has been understood.
func (r *Request) ErrorFormat() Format {
	if r.Accept != nil {
		return Negotiate(r.Accept)
	}
	for i := range r.Fields {
		if r.Fields[i].kind == kindAccept {
			return Negotiate(r.Fields[i].Value)
		}
	}
	return HTML
}

// HasVia tells whether a Via field names the pseudonym, that is whether the
// request has passed here before (RFC 9110 section 7.6.3).
func (r *Request) HasVia(pseudonym string) bool {
	for i := range r.Fields {
		if r.Fields[i].kind != kindVia {
			continue
		}
		for list := r.Fields[i].Value; list != nil; {
			var hop []byte
			hop, list = nextElement(list)
			if string(receivedBy(hop)) == pseudonym {
				return true
			}
		}
	}
	return false
}

// receivedBy returns the second word of an element of Via.
func receivedBy(hop []byte) []byte {
	i := bytes.IndexByte(hop, ' ')
	if i < 0 {
		return nil
	}
	hop = trim(hop[i:])
	if i = bytes.IndexByte(hop, ' '); i >= 0 {
		hop = hop[:i]
	}
	return hop
}
