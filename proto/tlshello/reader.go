package tlshello

// reader takes values off the front of a message (RFC 8446 section 3). Once
// one does not fit, bad is set and the rest is empty.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.bad = nil, true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint8() int {
	b := r.take(1)
	if b == nil {
		return 0
	}
	return int(b[0])
}

func (r *reader) uint16() uint16 {
	b := r.take(2)
	if b == nil {
		return 0
	}
	return uint16(b[0])<<8 | uint16(b[1])
}

// vector8 and vector16 take a vector with a length of one or two bytes.
func (r *reader) vector8() []byte  { return r.take(r.uint8()) }
func (r *reader) vector16() []byte { return r.take(int(r.uint16())) }
