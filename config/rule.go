package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const ruleUsage = "[USERS [SOURCES [TARGETS [PORTS [OPERATIONS [WEEKDAYS [TIMES]]]]]]]"

// maxRules bounds the rules of all lists of a configuration together.
const maxRules = 1 << 18

func runAllow(l *loader, c call) { l.addRule(c, true) }
func runDeny(l *loader, c call)  { l.addRule(c, false) }

func runFlush(l *loader, _ call) {
	l.endList()
	l.st.rules = nil
	l.st.aclIndex = -1
}

// addRule appends an allow or deny line to the access list.
func (l *loader) addRule(c call, allow bool) {
	p := ruleParser{l: l, cmd: c.name.text, rule: Rule{Pos: c.name.pos, Allow: allow}, good: true}
	fields := []func(word){p.users, p.sources, p.targets, p.ports, p.operations, p.weekdays, p.times}
	for i, w := range c.args {
		if w.text != "*" {
			fields[i](w)
		}
	}
	if !p.good {
		return
	}
	if len(l.st.rules) == maxRules {
		l.errorf(c.name.pos, "%s: an access list has at most %d rules", p.cmd, maxRules)
		return
	}
	p.rule.simplify()
	l.seqOf[c.name.pos] = l.seq
	l.st.rules = append(l.st.rules, p.rule)
	l.st.aclIndex = -1
}

// simplify empties the lists that match everything: both families of sources,
// every port, day and time.
func (r *Rule) simplify() {
	if coversFamily(r.Sources, false) && coversFamily(r.Sources, true) {
		r.Sources = nil
	}
	w := widen(r)
	if w.ports == nil {
		r.Ports = nil
	}
	if w.times == nil {
		r.Times = nil
	}
	if r.Weekdays == everyDay {
		r.Weekdays = 0
	}
}

// coversFamily tells whether the ranges together hold every IPv4 or every IPv6
// address.
func coversFamily(list []IPRange, v6 bool) bool {
	first := netip.IPv4Unspecified()
	if v6 {
		first = netip.IPv6Unspecified()
	}
	return slices.ContainsFunc(mergeRanges(list), func(r IPRange) bool {
		return r.From == first && r.To == lastOf(first, 0)
	})
}

// ruleParser reads the fields of one rule. Its methods report what is wrong
// and then clear good.
type ruleParser struct {
	l    *loader
	cmd  string
	rule Rule
	good bool
}

func (p *ruleParser) errorf(pos Pos, format string, args ...any) {
	p.good = false
	p.l.errorf(pos, "%s: %s", p.cmd, fmt.Sprintf(format, args...))
}

// items splits a list at its commas.
func (p *ruleParser) items(w word) []word {
	parts := w.split(isComma)
	for _, part := range parts {
		switch part.text {
		case "":
			p.errorf(part.pos, "%s: there is an empty item in this list", show(w.text))
			return nil
		case "*":
			p.errorf(part.pos, "%s: \"*\" (any) must stand alone", show(w.text))
			return nil
		}
		// What follows the comma may be the rest of a password.
		if hidden := hideSecret(part.text); hidden != part.text {
			p.errorf(part.pos, "%s: only addresses and times have a \":\"", show(part.text))
			return nil
		}
	}
	return parts
}

func (p *ruleParser) users(w word) {
	for _, item := range p.items(w) {
		if len(item.text) > maxUserName {
			p.errorf(item.pos, "%s: a user name has at most %d bytes", show(item.text), maxUserName)
			continue
		}
		p.rule.Users = append(p.rule.Users, item.text)
	}
}

func (p *ruleParser) sources(w word) {
	for _, item := range p.items(w) {
		r, err := parseRange(item.text)
		switch {
		case err == nil:
			p.rule.Sources = append(p.rule.Sources, r)
		case isAddressLike(item.text):
			p.errorf(item.pos, "%s: %v", show(item.text), err)
		default:
			p.errorf(item.pos, "%s: host names do not work in the list of sources; use addresses, ranges (A-B) or blocks (A/N)", show(item.text))
		}
	}
}

func (p *ruleParser) targets(w word) {
	for _, item := range p.items(w) {
		r, err := parseRange(item.text)
		if err == nil {
			p.rule.Targets = append(p.rule.Targets, r)
			continue
		}
		if isAddressLike(item.text) {
			p.errorf(item.pos, "%s: %v", show(item.text), err)
			continue
		}
		h, err := parsePattern(item.text)
		if err != nil {
			p.errorf(item.pos, "%s: %v", show(item.text), err)
			continue
		}
		p.rule.TargetHosts = append(p.rule.TargetHosts, h)
	}
}

// isAddressLike tells an address with a mistake in it from a host name.
func isAddressLike(s string) bool {
	if strings.ContainsAny(s, ":/%") {
		return true
	}
	return strings.Trim(s, "0123456789.-*") == ""
}

// parseRange reads an address, A-B or A/N.
func parseRange(s string) (IPRange, error) {
	if addr, bits, ok := strings.Cut(s, "/"); ok {
		return parseBlock(addr, bits)
	}
	first, last, isRange := strings.Cut(s, "-")
	from, err := parseAddr(first)
	if err != nil {
		return IPRange{}, rangeError(s, err)
	}
	if !isRange {
		return IPRange{from, from}, nil
	}
	to, err := parseAddr(last)
	if err != nil {
		return IPRange{}, rangeError(s, err)
	}
	if from.BitLen() != to.BitLen() {
		return IPRange{}, fmt.Errorf("a range must be of one address family")
	}
	if to.Less(from) {
		return IPRange{}, fmt.Errorf("this range ends before it begins")
	}
	return IPRange{from, to}, nil
}

func rangeError(s string, err error) error {
	if strings.Contains(s, "*") {
		return fmt.Errorf("\"*\" works in host names only; write addresses as a block, such as 192.168.0.0/16")
	}
	if strings.Contains(s, "%") {
		return err
	}
	return fmt.Errorf("expected an address, a range (A-B) or a block (A/N)")
}

func parseBlock(addr, bits string) (IPRange, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return IPRange{}, fmt.Errorf("expected an address before the \"/\"")
	}
	n, ok := parseNumber(bits, 0, a.BitLen())
	if !ok {
		return IPRange{}, fmt.Errorf("expected a number of bits from 0 to %d after the \"/\"", a.BitLen())
	}
	if a.Is4In6() {
		if n < 96 {
			return IPRange{}, fmt.Errorf("a block of IPv4-mapped addresses has at least 96 bits; write it as an IPv4 block")
		}
		a, n = a.Unmap(), n-96
	}
	from := netip.PrefixFrom(a, n).Masked().Addr()
	return IPRange{from, lastOf(from, n)}, nil
}

// lastOf returns the last address of a block.
func lastOf(a netip.Addr, bits int) netip.Addr {
	b := a.AsSlice()
	for i := bits; i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// parsePattern reads a host name with "*" at its beginning, its end or both.
func parsePattern(s string) (HostPattern, error) {
	var h HostPattern
	name := strings.ToLower(s)
	name, h.AnySuffix = strings.CutSuffix(name, "*")
	name, h.AnyPrefix = strings.CutPrefix(name, "*")
	if !h.AnySuffix {
		name = strings.TrimSuffix(name, ".")
	}
	h.Name = name
	if strings.Contains(name, "*") {
		return h, fmt.Errorf("\"*\" may stand only at the beginning and at the end of a host name")
	}
	if !h.AnyPrefix && !h.AnySuffix {
		_, err := checkHost(name)
		return h, err
	}
	if name == "" || len(name) > 253 {
		return h, fmt.Errorf("expected 1 to 253 bytes of a host name beside \"*\"")
	}
	return h, checkHostBytes(name)
}

func (p *ruleParser) ports(w word) {
	for _, item := range p.items(w) {
		from, to, ok := parseSpan(item.text, 1, 65535)
		if !ok {
			p.errorf(item.pos, "%s: expected a port from 1 to 65535 or a range such as 8000-8999", show(item.text))
			continue
		}
		p.rule.Ports = append(p.rule.Ports, PortRange{uint16(from), uint16(to)})
	}
}

var operationNames = map[string]Operations{
	"CONNECT": OpConnect, "BIND": OpBind, "UDPASSOC": OpUDPAssoc, "ICMPASSOC": OpICMPAssoc,
	"HTTP_GET": OpHTTPGet, "HTTP_PUT": OpHTTPPut, "HTTP_POST": OpHTTPPost,
	"HTTP_HEAD": OpHTTPHead, "HTTP_CONNECT": OpHTTPConnect, "HTTPS": OpHTTPConnect,
	"HTTP_OTHER": OpHTTPOther, "HTTP": OpHTTP, "FTP_GET": OpFTPGet,
	"FTP_PUT": OpFTPPut, "FTP_LIST": OpFTPList, "FTP_DATA": OpFTPData, "FTP": OpFTP,
	"ADMIN": OpAdmin, "DNSRESOLVE": OpDNSResolve,
}

func (p *ruleParser) operations(w word) {
	for _, item := range p.items(w) {
		op, ok := operationNames[item.text]
		if !ok {
			names := sortedKeys(operationNames)
			p.errorf(item.pos, "unknown operation %s%s; the operations are %s",
				show(item.text), didYouMean(item.text, names), strings.Join(names, ", "))
			continue
		}
		p.rule.Operations |= op
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (p *ruleParser) weekdays(w word) {
	for _, item := range p.items(w) {
		from, to, ok := parseSpan(item.text, 0, 7)
		if !ok {
			p.errorf(item.pos, "%s: expected a day from 0 to 7 (0 and 7 are Sunday) or a range such as 1-5", show(item.text))
			continue
		}
		for day := from; day <= to; day++ {
			p.rule.Weekdays |= 1 << (day % 7)
		}
	}
}

func (p *ruleParser) times(w word) {
	for _, item := range p.items(w) {
		t, err := parseTimes(item.text)
		if err != nil {
			p.errorf(item.pos, "%s: %v", show(item.text), err)
			continue
		}
		p.rule.Times = append(p.rule.Times, t)
	}
}

const daySeconds = 24 * 3600

// parseTimes reads HH:MM:SS-HH:MM:SS. A range over midnight is refused: in
// 3proxy it silently matches no time or every time.
func parseTimes(s string) (TimeRange, error) {
	a, b, ok := strings.Cut(s, "-")
	from, ok1 := parseClock(a)
	to, ok2 := parseClock(b)
	switch {
	case !ok || !ok1 || !ok2:
		return TimeRange{}, fmt.Errorf("expected HH:MM:SS-HH:MM:SS, up to 24:00:00")
	case from == to:
		return TimeRange{}, fmt.Errorf("this range is empty")
	case to < from:
		return TimeRange{}, fmt.Errorf("this range ends before it begins; over midnight write %s-24:00:00,00:00:00-%s", a, b)
	}
	return TimeRange{from, to}, nil
}

// parseClock returns the seconds since midnight of HH:MM:SS.
func parseClock(s string) (int, bool) {
	if len(s) != 8 || s[2] != ':' || s[5] != ':' {
		return 0, false
	}
	hour, ok1 := twoDigits(s[0:2])
	minute, ok2 := twoDigits(s[3:5])
	second, ok3 := twoDigits(s[6:8])
	t := hour*3600 + minute*60 + second
	return t, ok1 && ok2 && ok3 && minute < 60 && second < 60 && t <= daySeconds
}

func twoDigits(s string) (int, bool) {
	if s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
		return 0, false
	}
	return int(s[0]-'0')*10 + int(s[1]-'0'), true
}
