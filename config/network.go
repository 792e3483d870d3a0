package config

import (
	"fmt"
	"net/netip"
	"strings"
)

func runInternal(l *loader, c call) {
	if e, ok := l.listenAddress("internal", c.args[0]); ok {
		l.st.internal = e
	}
}

func runExternal(l *loader, c call) {
	if a, ok := l.sourceAddress("external", c.args[0]); ok {
		setExternal(&l.st.external4, &l.st.external6, a)
	}
}

// sourceAddress reads the address of external and -e.
func (l *loader) sourceAddress(cmd string, w word) (netip.Addr, bool) {
	a, ok := l.address(cmd, w)
	if ok && a.IsMulticast() {
		l.errorf(w.pos, "%s: %s: a multicast address cannot be a source address", cmd, show(w.text))
		return a, false
	}
	return a, ok
}

// setExternal sets the address of a's family; an unspecified address leaves
// the choice to the kernel.
func setExternal(v4, v6 *netip.Addr, a netip.Addr) {
	p := v6
	if a.Is4() {
		p = v4
	}
	*p = a
	if a.IsUnspecified() {
		*p = netip.Addr{}
	}
}

// Bounds of maxconn and backlog.
const (
	maxMaxConn = 10_000_000
	maxBacklog = 1_000_000
)

// maxMaxBody is the bound of maxbody, in bytes.
const maxMaxBody = 1 << 50

func runMaxBody(l *loader, c call) {
	if n, ok := l.number("maxbody", c.args[0], 0, maxMaxBody); ok {
		l.st.maxBody = int64(n)
	}
}

func runMaxConn(l *loader, c call) {
	if n, ok := l.number("maxconn", c.args[0], 1, maxMaxConn); ok {
		l.st.maxConn = n
	}
}

// runForce is force and noforce.
func runForce(l *loader, c call) { l.st.force = c.name.text == "force" }

func runBacklog(l *loader, c call) {
	if n, ok := l.number("backlog", c.args[0], 0, maxBacklog); ok {
		l.st.backlog = n
	}
}

// maxTimeout is the bound of 3proxy, in seconds.
const maxTimeout = 2_000_000

const timeoutUsage = "BYTE_SHORT [BYTE_LONG [STRING_SHORT [STRING_LONG [CONNECTION_SHORT [CONNECTION_LONG [DNS [CHAIN [CONNECT [CONNECTBACK [LINGER]]]]]]]]]]"

func runTimeouts(l *loader, c call) {
	t := l.st.timeouts
	values := []*int{
		&t.ByteShort, &t.ByteLong, &t.StringShort, &t.StringLong,
		&t.ConnectionShort, &t.ConnectionLong, &t.DNS, &t.Chain, &t.Connect,
		&t.ConnectBack, &t.Linger,
	}
	good := true
	for i, w := range c.args {
		n, ok := parseNumber(w.text, 1, maxTimeout)
		if !ok {
			l.expected("timeouts", w, fmt.Sprintf("a number of seconds from 1 to %d", maxTimeout))
			good = false
		}
		*values[i] = n
	}
	t.LingerGiven = t.LingerGiven || len(c.args) == len(values)
	if good {
		l.st.timeouts = t
	}
}

const maxNameServers = 16

func runNServer(l *loader, c call) {
	w := c.args[0]
	r := &l.cfg.Resolver
	text, tcp := strings.CutSuffix(w.text, "/tcp")
	if strings.Contains(text, "%") {
		l.errorf(w.pos, "nserver: %s: an address with a zone (%%) is not supported", show(w.text))
		return
	}
	a, ok := parseServer(text)
	switch {
	case !ok:
		l.expected("nserver", w, "ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, with /tcp after it for a server asked over TCP")
	case a.Addr().IsUnspecified() || a.Addr().IsMulticast():
		l.errorf(w.pos, "nserver: %s: this address cannot be a name server", show(w.text))
	case len(r.Servers) == maxNameServers:
		l.errorf(w.pos, "nserver: at most %d name servers are allowed", maxNameServers)
	default:
		r.Servers = append(r.Servers, NameServer{Addr: a, TCP: tcp})
	}
}

// parseServer reads an address with an optional port, 53 by default.
func parseServer(s string) (netip.AddrPort, bool) {
	host, port := s, "53"
	if a, ok := parseBracketed(s); ok {
		host, port = a[0], a[1]
	} else if strings.Count(s, ":") == 1 {
		host, port, _ = strings.Cut(s, ":")
	}
	a, err := parseAddr(host)
	n, ok := parseNumber(port, 1, 65535)
	if err != nil || !ok {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(n)), true
}

// parseBracketed cuts "[ADDRESS]" and "[ADDRESS]:PORT".
func parseBracketed(s string) ([2]string, bool) {
	if !strings.HasPrefix(s, "[") {
		return [2]string{}, false
	}
	host, rest, ok := strings.Cut(s[1:], "]")
	if !ok || !strings.Contains(host, ":") {
		return [2]string{}, false
	}
	if rest == "" {
		return [2]string{host, "53"}, true
	}
	port, ok := strings.CutPrefix(rest, ":")
	return [2]string{host, port}, ok
}

// Bounds of a name cache; the lower one is that of 3proxy.
const (
	minNameCache = 256
	maxNameCache = 16 << 20
)

func runNSCache(l *loader, c call) {
	if n, ok := l.number("nscache", c.args[0], minNameCache, maxNameCache); ok {
		l.cfg.Resolver.CacheSize = n
	}
}

func runNSCache6(l *loader, c call) {
	if n, ok := l.number("nscache6", c.args[0], minNameCache, maxNameCache); ok {
		l.cfg.Resolver.CacheSize6 = n
	}
}

// maxRecordAddrs bounds the addresses of one name.
const maxRecordAddrs = 64

func runNSRecord(l *loader, c call) {
	name, err := checkName(c.args[0].text)
	if err != nil {
		l.errorf(c.args[0].pos, "nsrecord: %s: %v", show(c.args[0].text), err)
	}
	a, ok := l.address("nsrecord", c.args[1])
	if err != nil || !ok {
		return
	}
	r := &l.cfg.Resolver
	if r.Static == nil {
		r.Static = map[string][]netip.Addr{}
	}
	known := r.Static[name]
	switch {
	case len(known) == maxRecordAddrs:
		l.errorf(c.args[1].pos, "nsrecord: %s has more than %d addresses", show(name), maxRecordAddrs)
	case a.IsUnspecified() && len(known) > 0 || len(known) > 0 && known[0].IsUnspecified():
		l.errorf(c.args[1].pos, "nsrecord: %s cannot both have an address and never resolve (0.0.0.0)", show(name))
	case a.IsUnspecified():
		r.Static[name] = []netip.Addr{netip.IPv4Unspecified()}
	default:
		r.Static[name] = append(known, a)
	}
}
