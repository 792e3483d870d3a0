package http1

import (
	"bytes"
	"encoding/binary"
)

// tokenBytes are the characters of a token (RFC 9110 section 5.6.2).
var tokenBytes = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// MayBegin reports whether b can be the first byte of a request: of its method,
// or of an empty line before it (RFC 9112 section 2.2).
func MayBegin(b byte) bool { return tokenBytes[b] || b == '\r' || b == '\n' }

// tokenLen returns the length of the token at the start of b.
func tokenLen(b []byte) int {
	for i, c := range b {
		if !tokenBytes[c] {
			return i
		}
	}
	return len(b)
}

// noControls tells whether b holds no control character but HTAB, eight bytes
// at a time: heads are mostly field values.
func noControls(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		low := (x - ones*0x20) &^ x
		del := x ^ ones*0x7f
		del = (del - ones) &^ del
		if (low|del)&highs != 0 && !noControlsIn(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return noControlsIn(b)
}

func noControlsIn(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// trim drops optional white space (RFC 9110 section 5.6.3) on both sides.
func trim(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// equalFold compares b with a string in lower case, ASCII letters without
// regard to case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if toLower(c) != lower[i] {
			return false
		}
	}
	return true
}

func equalFoldBytes(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if toLower(c) != toLower(b[i]) {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// nextElement splits the first element off a comma-separated list (RFC 9110
// section 5.6.1). Elements may be empty.
func nextElement(list []byte) (element, rest []byte) {
	i := bytes.IndexByte(list, ',')
	if i < 0 {
		return trim(list), nil
	}
	return trim(list[:i]), list[i+1:]
}

// parseDigits parses 1*DIGIT of up to maxDigits digits that fits an int64.
func parseDigits(b []byte, maxDigits int) (n int64, ok bool) {
	if len(b) == 0 || len(b) > maxDigits {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if n > (maxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

const maxInt64 = 1<<63 - 1
