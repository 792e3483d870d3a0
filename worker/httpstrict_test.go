package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// seen is a request as a strict origin has read it.
type seen struct {
	method, target, host string
	framing              string // "none", "length" or "chunked"
	body                 string
	trailer              string
}

func (s seen) String() string {
	return fmt.Sprintf("%s %s %s %s %q %q", s.method, s.target, s.host, s.framing, s.body, s.trailer)
}

// strictOrigin reads requests by one spelling only: the one that the proxy
// writes. Anything else is an error, also where HTTP allows it.
type strictOrigin struct {
	addr string
	mu   sync.Mutex
	got  []seen
	errs []error
}

func startStrictOrigin(t testing.TB) *strictOrigin {
	t.Helper()
	o := &strictOrigin{}
	host, port := serve(t, o.serve)
	o.addr = net.JoinHostPort(host, port)
	return o
}

func (o *strictOrigin) serve(c *net.TCPConn) {
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	r := bufio.NewReader(c)
	for {
		s, err := readStrict(r)
		if err != nil {
			if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(net.Error)) {
				o.mu.Lock()
				o.errs = append(o.errs, err)
				o.mu.Unlock()
			}
			return
		}
		o.mu.Lock()
		o.got = append(o.got, s)
		o.mu.Unlock()
		body := "got it"
		if s.method == "HEAD" {
			body = ""
		}
		if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%s", body); err != nil {
			return
		}
	}
}

// take returns what has been read since the last call, and the first error.
func (o *strictOrigin) take() ([]seen, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.got
	o.got = nil
	err := errors.Join(o.errs...)
	o.errs = nil
	return got, err
}

var (
	strictLine    = regexp.MustCompile(`^[!#$%&'*+.^_|~0-9A-Za-z` + "`" + `-]+ (\*|/[^\x00-\x20\x7f]*) HTTP/1\.1$`)
	strictField   = regexp.MustCompile(`^[!#$%&'*+.^_|~0-9A-Za-z` + "`" + `-]+: ([^\x00-\x08\x0a-\x20\x7f]([^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?$`)
	strictTrailer = regexp.MustCompile(`^[!#$%&'*+.^_|~0-9A-Za-z` + "`" + `-]+:[^\x00-\x08\x0a-\x1f\x7f]*$`)
	strictLength  = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)
	strictChunk   = regexp.MustCompile(`^(0|[1-9a-fA-F][0-9a-fA-F]{0,14})$`)
)

// readStrictLine reads a line that ends with CRLF and holds no other control.
func readStrictLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		if err == io.EOF && line != "" {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || strings.ContainsAny(text, "\r\x00") {
		return "", fmt.Errorf("line %q", line)
	}
	return text, nil
}

func readStrict(r *bufio.Reader) (s seen, err error) {
	line, err := readStrictLine(r)
	if err != nil {
		return s, err
	}
	if !strictLine.MatchString(line) {
		return s, fmt.Errorf("request line %q", line)
	}
	words := strings.Split(line, " ")
	s.method, s.target, s.framing = words[0], words[1], "none"
	fields, err := readStrictFields(r, strictField)
	if err != nil {
		return s, err
	}
	hosts, length := 0, int64(0)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		switch strings.ToLower(name) {
		case "host":
			hosts++
			s.host = value
		case "content-length":
			if s.framing != "none" || !strictLength.MatchString(value) {
				return s, fmt.Errorf("length in %q", fields)
			}
			s.framing = "length"
			length, err = strconv.ParseInt(value, 10, 64)
			if err != nil {
				return s, err
			}
		case "transfer-encoding":
			if s.framing != "none" || value != "chunked" {
				return s, fmt.Errorf("coding in %q", fields)
			}
			s.framing = "chunked"
		case "proxy-authorization", "proxy-connection", "keep-alive", "te", "http2-settings":
			return s, fmt.Errorf("field of one hop in %q", fields)
		}
	}
	if hosts != 1 {
		return s, fmt.Errorf("%d Host in %q", hosts, fields)
	}
	switch s.framing {
	case "length":
		s.body, err = readStrictBody(r, length)
	case "chunked":
		s.body, s.trailer, err = readStrictChunks(r)
	}
	return s, err
}

func readStrictFields(r *bufio.Reader, field *regexp.Regexp) (fields []string, err error) {
	for {
		line, err := readStrictLine(r)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || line == "" {
			return fields, err
		}
		if !field.MatchString(line) {
			return nil, fmt.Errorf("field %q", line)
		}
		fields = append(fields, line)
	}
}

func readStrictBody(r *bufio.Reader, n int64) (string, error) {
	var b strings.Builder
	if _, err := io.CopyN(&b, r, n); err != nil {
		return b.String(), io.ErrUnexpectedEOF
	}
	return b.String(), nil
}

func readStrictChunks(r *bufio.Reader) (body, trailer string, err error) {
	for {
		line, err := readStrictLine(r)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return body, "", err
		}
		if !strictChunk.MatchString(line) {
			return body, "", fmt.Errorf("chunk line %q", line)
		}
		n, err := strconv.ParseInt(line, 16, 64)
		if err != nil {
			return body, "", err
		}
		if n == 0 {
			fields, err := readStrictFields(r, strictTrailer)
			return body, strings.Join(fields, "|"), err
		}
		data, err := readStrictBody(r, n)
		body += data
		if err != nil {
			return body, "", err
		}
		end := make([]byte, 2)
		if _, err := io.ReadFull(r, end); err != nil {
			return body, "", io.ErrUnexpectedEOF
		}
		if string(end) != "\r\n" {
			return body, "", fmt.Errorf("chunk ends with %q", end)
		}
	}
}
