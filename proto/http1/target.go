package http1

import (
	"bytes"

	"3proxyd/proto/hostport"
)

// TargetForm is the form of a request target (RFC 9112 section 3.2).
type TargetForm uint8

// The forms.
const (
	OriginForm    TargetForm = iota // /path?query
	AbsoluteForm                    // http://host:port/path?query
	AuthorityForm                   // host:port, with CONNECT only
	AsteriskForm                    // *, with OPTIONS only
)

const defaultPort = 80

var (
	rootPath     = []byte("/")
	asteriskPath = []byte("*")
)

// parseRequestLine parses method, target and version (RFC 9112 section 3),
// separated by exactly one space each.
func (r *Request) parseRequestLine(line []byte) *Error {
	n := tokenLen(line)
	switch {
	case n == 0:
		return errRequestLine
	case n > MaxMethod:
		return errMethodLong
	case n == len(line):
		return errRequestLine
	case line[n] != ' ':
		return errMethod
	}
	r.Method, line = line[:n:n], line[n+1:]
	n = bytes.IndexByte(line, ' ')
	if n <= 0 {
		return errRequestLine
	}
	if n > MaxTarget {
		return errTargetLong
	}
	target := line[:n:n]
	minor, err := parseVersion(line[n+1:])
	if err == errVersion {
		// What is in front of it need not be the target.
		return err
	}
	r.Target, r.Minor = target, minor
	if err != nil {
		return err
	}
	return r.parseTarget()
}

// parseVersion parses HTTP/1.x; a higher minor version is understood as 1.1
// (RFC 9110 section 2.5).
func parseVersion(b []byte) (minor int, err *Error) {
	const prefix = "HTTP/"
	if len(b) != len(prefix)+3 || string(b[:len(prefix)]) != prefix || b[6] != '.' ||
		b[5] < '0' || b[5] > '9' || b[7] < '0' || b[7] > '9' {
		return 0, errVersion
	}
	if b[5] != '1' {
		return 0, errVersionOther
	}
	return int(min(b[7]-'0', 1)), nil
}

func (r *Request) parseTarget() *Error {
	t := r.Target
	if err := checkTarget(t); err != nil {
		return err
	}
	switch {
	case string(r.Method) == "CONNECT":
		return r.parseAuthorityForm()
	case t[0] == '/':
		r.Form, r.Path = OriginForm, t
		return nil
	case len(t) == 1 && t[0] == '*':
		if string(r.Method) != "OPTIONS" {
			return errTargetForm
		}
		r.Form, r.Path = AsteriskForm, asteriskPath
		return nil
	}
	return r.parseAbsoluteForm()
}

// checkTarget refuses what no form may hold. Characters that a URI should
// percent-encode but that browsers and servers exchange raw are let through.
func checkTarget(t []byte) *Error {
	if bytes.IndexByte(t, '#') >= 0 {
		return errFragment
	}
	if bytes.IndexByte(t, '\t') >= 0 || !noControls(t) {
		return errTarget
	}
	return nil
}

func (r *Request) parseAuthorityForm() *Error {
	if err := r.setAuthority(r.Target); err != nil {
		return err
	}
	if r.Port == 0 {
		return errAuthority
	}
	r.Form = AuthorityForm
	return nil
}

func (r *Request) parseAbsoluteForm() *Error {
	t := r.Target
	i := bytes.IndexByte(t, ':')
	if i <= 0 || !validScheme(t[:i]) {
		return errTarget
	}
	rest := t[i+1:]
	if !equalFold(t[:i], "http") {
		if len(rest) >= 2 && rest[0] == '/' && rest[1] == '/' {
			return errScheme
		}
		return errTarget
	}
	if len(rest) < 2 || rest[0] != '/' || rest[1] != '/' {
		return errTarget
	}
	rest = rest[2:]
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if err := r.setAuthority(rest[:end]); err != nil {
		return err
	}
	if r.Port == 0 {
		r.Port = defaultPort
	}
	r.Form, r.Scheme, r.Path = AbsoluteForm, t[:i:i], rest[end:]
	if len(r.Path) == 0 {
		r.Path = rootPath
		if string(r.Method) == "OPTIONS" {
			r.Path = asteriskPath // RFC 9112 section 3.2.4
		}
	}
	return nil
}

func (r *Request) setAuthority(authority []byte) *Error {
	if bytes.IndexByte(authority, '@') >= 0 {
		return errUserinfo
	}
	var ok bool
	if r.Addr, r.Host, r.Port, ok = hostport.ParseAuthority(authority); !ok {
		return errAuthority
	}
	return nil
}

// validScheme checks the characters of a scheme (RFC 3986 section 3.1).
func validScheme(b []byte) bool {
	for i, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		other := '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
		if !letter && (i == 0 || !other) {
			return false
		}
	}
	return true
}
