package origin

import (
	"bytes"
	"errors"
	"strconv"
)

// maxHead bounds a request's head in bytes.
const maxHead = 16 << 10

// request is what the origin needs of a request's head.
type request struct {
	size  int64 // bytes of the answer's body
	post  int64 // bytes of the request's body
	close bool  // the connection ends after the answer
}

var errRequest = errors.New("bad request")

// parseHead reads a head without its final empty line: an HTTP/1 request line
// (RFC 9112, section 3) whose path, or absolute URI, ends in "/SIZE".
func parseHead(head []byte) (request, error) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	method, line, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(method) == 0 {
		return request{}, errRequest
	}
	target, version, ok := bytes.Cut(line, []byte(" "))
	if !ok || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return request{}, errRequest
	}
	size, err := strconv.ParseInt(string(target[bytes.LastIndexByte(target, '/')+1:]), 10, 64)
	if err != nil || size < 0 {
		return request{}, errRequest
	}
	r := request{size: size, close: string(version) == "HTTP/1.0"}
	return r, r.fields(rest)
}

// fields reads the header fields that matter: Content-Length and Connection.
func (r *request) fields(rest []byte) error {
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return errRequest
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Connection")):
			r.connection(value)
		case bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 {
				return errRequest
			}
			r.post = n
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return errRequest
		}
	}
	return nil
}

func (r *request) connection(value []byte) {
	switch {
	case bytes.EqualFold(value, []byte("close")):
		r.close = true
	case bytes.EqualFold(value, []byte("keep-alive")):
		r.close = false
	}
}
