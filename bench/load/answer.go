package load

import (
	"bytes"
	"strconv"
)

// maxHead bounds the head of an answer in bytes.
const maxHead = 16 << 10

var headEnd = []byte("\r\n\r\n")

// answer is what the client needs of an answer's head.
type answer struct {
	status int
	length int64 // -1 if not given
	close  bool  // the connection ends after the answer
}

// parseAnswer reads a head without its final empty line: an HTTP/1 status line
// (RFC 9112, section 4) and fields.
func parseAnswer(head []byte) (answer, bool) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return answer{}, false
	}
	status, ok := digits(line[9:12])
	if !ok {
		return answer{}, false
	}
	a := answer{status: int(status), length: -1, close: line[7] == '0'}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if !a.field(line) {
			return answer{}, false
		}
	}
	return a, true
}

// field reads one header line. Names are told apart by length first, since
// this runs for every answer.
func (a *answer) field(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return false
	}
	switch len(name) {
	case len("Content-Length"):
		if bytes.EqualFold(name, []byte("Content-Length")) {
			a.length, ok = digits(bytes.TrimSpace(value))
		}
	case len("Connection"):
		if bytes.EqualFold(name, []byte("Connection")) {
			a.connection(bytes.TrimSpace(value))
		}
	case len("Transfer-Encoding"):
		ok = !bytes.EqualFold(name, []byte("Transfer-Encoding"))
	}
	return ok
}

func (a *answer) connection(value []byte) {
	switch {
	case bytes.EqualFold(value, []byte("close")):
		a.close = true
	case bytes.EqualFold(value, []byte("keep-alive")):
		a.close = false
	}
}

func digits(p []byte) (int64, bool) {
	n, err := strconv.ParseUint(string(p), 10, 62)
	return int64(n), err == nil
}
