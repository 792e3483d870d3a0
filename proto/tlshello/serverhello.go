package tlshello

// CheckServer looks at the beginning of what a server answers a ClientHello
// with: a ServerHello, or an alert, with which it refuses. It must begin with
// what earlier calls with the same Scan were given. It returns false while more
// is needed; the error is an *Error.
func CheckServer(s *Scan, in []byte) (done bool, err error) {
	if len(in) > 0 && in[0] == recordAlert {
		return checkAlert(in)
	}
	done, e := checkServerHello(s, in)
	if e != nil {
		return false, e
	}
	return done, nil
}

// checkAlert accepts the record of an alert that is not encrypted.
func checkAlert(in []byte) (bool, error) {
	if len(in) > 1 && in[1] != 3 {
		return false, ErrNotTLS
	}
	if len(in) < recordHeader {
		return false, nil
	}
	if in[3] != 0 || in[4] != 2 {
		return false, ErrRecord
	}
	return true, nil
}

// checkServerHello reads a ServerHello (RFC 8446 section 4.1.3, RFC 5246
// section 7.4.1.3).
func checkServerHello(s *Scan, in []byte) (bool, *Error) {
	want, e := s.records(in, msgServerHello)
	if e != nil || want == 0 || s.have < want {
		return false, e
	}
	var h Hello
	r := reader{rest: h.gather(in, want)}
	version := r.uint16()
	r.take(randomSize)
	session := r.vector8()
	r.take(2) // cipher suite
	compression := r.uint8()
	if r.bad || version>>8 != 3 || len(session) > maxSessionID || compression != 0 {
		return false, ErrDecode
	}
	if len(r.rest) == 0 {
		return true, nil
	}
	list := reader{rest: r.vector16()}
	for !list.bad && len(list.rest) > 0 {
		list.uint16()
		list.vector16()
	}
	if r.bad || len(r.rest) > 0 || list.bad {
		return false, ErrDecode
	}
	return true, nil
}
