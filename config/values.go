package config

import (
	"fmt"
	"net/netip"
	"strings"

	"3proxyd/internal/ipaddr"
)

// parseNumber reads a decimal number from lo to hi: digits only, without sign
// or leading zero.
func parseNumber(s string, lo, hi int) (int, bool) {
	if len(s) == 0 || len(s) > 18 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, n >= lo && n <= hi
}

// number is parseNumber with a message on failure.
func (l *loader) number(cmd string, w word, lo, hi int) (int, bool) {
	n, ok := parseNumber(w.text, lo, hi)
	if !ok {
		l.expected(cmd, w, fmt.Sprintf("a number from %d to %d", lo, hi))
	}
	return n, ok
}

// expected reports a word that is not what the command allows.
func (l *loader) expected(cmd string, w word, what string) {
	l.errorf(w.pos, "%s: %s: expected %s", cmd, show(w.text), what)
}

func (l *loader) port(cmd string, w word) (uint16, bool) {
	n, ok := parseNumber(w.text, 1, 65535)
	if !ok {
		l.expected(cmd, w, "a port from 1 to 65535")
	}
	return uint16(n), ok
}

// parseAddr reads an address without zone; an IPv4-mapped or IPv4-compatible IPv6
// address is the IPv4 address.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("not an IP address")
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("an address with a zone (%%) is not supported")
	}
	return ipaddr.Canonical(a), nil
}

// unbracket drops the brackets of "[ADDRESS]", which IPv6 addresses have
// elsewhere.
func unbracket(s string) string {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && strings.Contains(s, ":") {
		return s[1 : len(s)-1]
	}
	return s
}

// address reads an address, with a message on failure.
func (l *loader) address(cmd string, w word) (netip.Addr, bool) {
	a, err := parseAddr(unbracket(w.text))
	if err == nil {
		return a, true
	}
	if strings.Contains(w.text, "%") {
		l.errorf(w.pos, "%s: %s: %v", cmd, show(w.text), err)
	} else {
		l.expected(cmd, w, "an IPv4 or IPv6 address")
	}
	return a, false
}

// maxUnixPath is what sockaddr_un(7) has room for, with a final NUL byte.
const maxUnixPath = 107

// unixAddress reads what follows "unix:".
func (l *loader) unixAddress(cmd string, w word) (string, bool) {
	path := w.text
	switch {
	case path == "" || path == "@":
		l.errorf(w.pos, "%s: expected a path or @name after unix:", cmd)
	case len(path) > maxUnixPath:
		l.errorf(w.pos, "%s: %s: a Unix socket address has at most %d bytes, this has %d", cmd, show(path), maxUnixPath, len(path))
	default:
		return path, true
	}
	return "", false
}

// listenAddress reads the address of internal and -i.
func (l *loader) listenAddress(cmd string, w word) (Endpoint, bool) {
	if strings.HasPrefix(w.text, "unix:") {
		path, ok := l.unixAddress(cmd, w.from(len("unix:")))
		return Endpoint{Unix: path}, ok
	}
	a, err := parseAddr(unbracket(w.text))
	switch {
	case err != nil && !strings.Contains(w.text, "%"):
		l.expected(cmd, w, "an IPv4 or IPv6 address, unix:PATH or unix:@NAME")
	case err != nil:
		l.errorf(w.pos, "%s: %s: %v", cmd, show(w.text), err)
	case a.IsMulticast():
		l.errorf(w.pos, "%s: %s: a multicast address cannot be listened on", cmd, show(w.text))
	default:
		return Endpoint{Addr: a}, true
	}
	return Endpoint{}, false
}

// checkHost says what is wrong with a host name, or returns it in lower case
// and without final dot. What inet_aton(3) takes for an address (127.1) is
// refused: whoever writes it does not mean a name.
func checkHost(s string) (string, error) {
	name, err := checkName(s)
	if err != nil {
		return "", err
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") == "" || isHexNumber(last) {
		return "", fmt.Errorf("this is neither an IP address nor a host name")
	}
	return name, nil
}

// checkName is checkHost for names that may look like numbers. The limits are
// those of RFC 1035 section 2.3.4; underscores are allowed, since names in use
// have them.
func checkName(s string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	if name == "" {
		return "", fmt.Errorf("a host name is missing")
	}
	if len(name) > 253 {
		return "", fmt.Errorf("a host name has at most 253 bytes, this has %d", len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
	}
	return name, nil
}

func checkLabel(label string) error {
	if label == "" {
		return fmt.Errorf("a host name cannot have an empty part between dots")
	}
	if len(label) > 63 {
		return fmt.Errorf("a part of a host name has at most 63 bytes, this has %d", len(label))
	}
	if label[0] == '-' || label[len(label)-1] == '-' {
		return fmt.Errorf("a part of a host name cannot begin or end with '-'")
	}
	return checkHostBytes(label)
}

func checkHostBytes(s string) error {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return fmt.Errorf("write an international host name in its ASCII form (xn--...)")
		}
		if !isHostByte(s[i]) {
			return fmt.Errorf("a host name cannot hold %q", s[i])
		}
	}
	return nil
}

func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '.'
}

// isHexNumber finds what inet_aton(3) would take for a number.
func isHexNumber(s string) bool {
	return len(s) > 2 && s[:2] == "0x" && strings.Trim(s[2:], "0123456789abcdef") == ""
}
