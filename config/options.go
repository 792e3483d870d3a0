package config

import (
	"fmt"
	"slices"
	"strings"

	"3proxyd/internal/sockopt"
)

// options reads the options of one service line into a Service.
type options struct {
	l    *loader
	s    Service
	good bool

	port             uint16
	portSet          bool
	portPos          Pos
	listenSet        bool
	ext4Set, ext6Set bool
}

// newOptions begins a service with the present state.
func (l *loader) newOptions(kind Kind, c call) *options {
	st := &l.st
	o := &options{l: l, good: true, s: Service{
		Kind: kind, Pos: c.name.pos, Listen: st.internal,
		External4: st.external4, External6: st.external6,
		Auth: slices.Clone(st.auth), ACL: -1,
		MaxConn: st.maxConn, MaxBody: st.maxBody, Force: st.force, Backlog: st.backlog, Timeouts: st.timeouts,
		Log: st.log, LogFormat: st.logFormat, Splice: DefaultSplice,
		UDPDestinations: kind.udpDestinations(),
	}}
	o.s.Listen.Network = networkOf(kind)
	return o
}

// networkOf is what a kind of service listens for.
func networkOf(kind Kind) Network {
	if kind == UDPPM {
		return UDP
	}
	return Stream
}

func (o *options) errorf(pos Pos, format string, args ...any) {
	o.good = false
	o.l.errorf(pos, "%s: %s", o.s.Kind, fmt.Sprintf(format, args...))
}

// parse reads the leading words that begin with "-" and returns the others.
func (o *options) parse(words []word) []word {
	for i, w := range words {
		if !strings.HasPrefix(w.text, "-") {
			return words[i:]
		}
		o.option(w)
	}
	return nil
}

// optionTable has the options by the letters after the "-", the longest
// first.
var optionTable = []struct {
	prefix string
	parse  func(o *options, value word)
}{
	{"ol", func(o *options, v word) { o.socketOptions(v, sockopt.Listen, &o.s.ListenOptions) }},
	{"oc", func(o *options, v word) { o.socketOptions(v, sockopt.Client, &o.s.ClientOptions) }},
	{"os", func(o *options, v word) { o.socketOptions(v, sockopt.Server, &o.s.ServerOptions) }},
	{"p", (*options).listenPort},
	{"i", (*options).listenOn},
	{"e", (*options).connectFrom},
	{"46", func(o *options, v word) { o.families(FamiliesPrefer4, v) }},
	{"64", func(o *options, v word) { o.families(FamiliesPrefer6, v) }},
	{"4", func(o *options, v word) { o.families(FamiliesOnly4, v) }},
	{"6", func(o *options, v word) { o.families(FamiliesOnly6, v) }},
	{"s", (*options).splice},
	{"g", (*options).grace},
	{"b", (*options).bufferSize},
	{"C", (*options).closeBoth},
	{"a", (*options).anonymity},
	{"u", (*options).askUser},
	{"Ni", (*options).advertiseInternal},
	{"Ne", (*options).advertiseExternal},
	{"N", (*options).advertiseExternal},
	{"U", (*options).udpDestinations},
	{"Hout", (*options).sendHeader},
	{"H", (*options).proxyHeader},
	{"P", (*options).targetPort},
	{"c", (*options).tlsCheck},
}

// laterOptions are the first letters, or the whole, of options that 3proxy
// has as well.
var laterOptions = []string{
	"Di", "De", "D", "ni", "ne", "n",
	"l", "t", "R", "r", "or", "oR",
	"f", "h", "T", "S", "d", "I", "x", "X", "F",
}

// datagramOptions are those that a service for datagrams has.
var datagramOptions = []string{"-i", "-e", "-4", "-6", "-46", "-64", "-s", "-ol", "-os"}

var allOptions = []string{"-p", "-i", "-e", "-4", "-6", "-46", "-64", "-s", "-g", "-b", "-C", "-a", "-u", "-H", "-Hout", "-P", "-c", "-ol", "-oc", "-os", "-Ni", "-Ne", "-U"}

func (o *options) option(w word) {
	body := w.from(1)
	for _, e := range optionTable {
		if strings.HasPrefix(body.text, e.prefix) {
			if o.s.Listen.Network == UDP && e.prefix != "p" && !slices.Contains(datagramOptions, "-"+e.prefix) {
				o.errorf(w.pos, "-%s makes no sense for datagrams; the options are %s", e.prefix, strings.Join(datagramOptions, " "))
				return
			}
			e.parse(o, body.from(len(e.prefix)))
			return
		}
	}
	for _, p := range laterOptions {
		if strings.HasPrefix(body.text, p) {
			o.errorf(w.pos, "option -%s: %s", p, notYet)
			return
		}
	}
	o.errorf(w.pos, "unknown option %s; the options are %s", show(w.text), strings.Join(allOptions, " "))
}

// attached reports an option whose value does not follow at once.
func (o *options) attached(option string, value word, example string) bool {
	if value.text != "" {
		return true
	}
	o.errorf(value.pos, "%s: the value must follow without a blank, as in %s", option, example)
	return false
}

func (o *options) listenPort(v word) {
	if !o.attached("-p", v, "-p3128") {
		return
	}
	if o.portSet {
		o.errorf(v.pos, "-p is given twice")
		return
	}
	port, ok := o.l.port(string(o.s.Kind)+": -p", v)
	o.port, o.portSet, o.portPos, o.good = port, true, v.pos, o.good && ok
}

func (o *options) listenOn(v word) {
	if !o.attached("-i", v, "-i127.0.0.1") {
		return
	}
	if o.listenSet {
		o.errorf(v.pos, "-i is given twice")
		return
	}
	o.listenSet = true
	if strings.HasPrefix(v.text, "systemd:") {
		o.listenOnSystemd(v.from(len("systemd:")))
		return
	}
	e, ok := o.l.listenAddress(string(o.s.Kind)+": -i", v)
	e.Network = o.s.Listen.Network
	o.s.Listen, o.good = e, o.good && ok
}

// StoredPrefix begins the names of the descriptors the daemon keeps in the
// store of the service manager.
const StoredPrefix = "3proxyd/"

// maxSocketName bounds the name of a socket of systemd, as systemd does.
const maxSocketName = 255

// listenOnSystemd reads the name of sockets (FileDescriptorName=,
// systemd.socket(5)).
func (o *options) listenOnSystemd(v word) {
	if v.text == "" {
		o.errorf(v.pos, "-i: expected a socket's FileDescriptorName after systemd:")
		return
	}
	if len(v.text) > maxSocketName {
		o.errorf(v.pos, "-i: %s: the name of a socket has at most %d bytes, this has %d", show(v.text), maxSocketName, len(v.text))
		return
	}
	for i, r := range v.text {
		if r < ' ' || r > '~' || r == ':' {
			o.errorf(v.at(i), "-i: %s: %q cannot be in the name of a socket", show(v.text), r)
			return
		}
	}
	if strings.HasPrefix(v.text, StoredPrefix) {
		o.errorf(v.pos, "-i: %s: names that begin with %s are those of sockets the daemon has stored itself", show(v.text), StoredPrefix)
		return
	}
	o.s.Listen = Endpoint{Network: o.s.Listen.Network, Systemd: v.text}
}

func (o *options) connectFrom(v word) {
	if !o.attached("-e", v, "-e192.0.2.1") {
		return
	}
	a, ok := o.l.sourceAddress(string(o.s.Kind)+": -e", v)
	if !ok {
		o.good = false
		return
	}
	seen := &o.ext6Set
	if a.Is4() {
		seen = &o.ext4Set
	}
	if *seen {
		o.errorf(v.pos, "-e is given twice for one address family")
		return
	}
	*seen = true
	setExternal(&o.s.External4, &o.s.External6, a)
}

func (o *options) families(f Families, v word) {
	switch {
	case v.text != "":
		o.errorf(v.pos, "-%s: %s: nothing may follow this option", f, show(v.text))
	case o.s.Families != "":
		o.errorf(v.pos, "-%s: -%s is given already", f, o.s.Families)
	default:
		o.s.Families = f
	}
}

// checkFamilies refuses a service that could connect to nothing.
func (o *options) checkFamilies() {
	s := &o.s
	switch only4, only6 := s.Only4(), s.Only6(); {
	case only4 && only6:
		o.errorf(s.Pos, "-%s: the external address is of the other family: nothing can be connected to", s.Families)
	case s.Target == nil || !s.Target.Addr.IsValid():
	case s.Families == FamiliesOnly4 && s.Target.Addr.Is6(), s.Families == FamiliesOnly6 && s.Target.Addr.Is4():
		o.errorf(s.Pos, "-%s: the target %s is of the other family", s.Families, s.Target)
	}
}

// Only4 reports whether the service connects to IPv4 addresses only, be it for
// -4 or because it has no source address but of that family.
func (s *Service) Only4() bool {
	return s.Families == FamiliesOnly4 || s.External4.IsValid() && !s.External6.IsValid()
}

// Only6 is Only4 for IPv6.
func (s *Service) Only6() bool {
	return s.Families == FamiliesOnly6 || s.External6.IsValid() && !s.External4.IsValid()
}

// Bounds of -s and -b.
const (
	maxSpliceSize   = 16 << 20
	maxSpliceStreak = 255
	minBuffer       = 1024
	maxBuffer       = 1 << 20
)

// splice reads [MODE][:MIN[,STREAK[,SMALL]]].
func (o *options) splice(v word) {
	if o.s.Listen.Network == UDP {
		o.singleDatagram(v)
		return
	}
	o.s.Splice = DefaultSplice
	colon := strings.IndexByte(v.text, ':')
	mode := v
	if colon >= 0 {
		mode = v.slice(0, colon)
	}
	if mode.text != "" {
		n, ok := parseNumber(mode.text, 0, 7)
		if !ok || n == 4 {
			o.errorf(mode.pos, "-s: %s: expected mode 0 (off), 1, 2, 3 (always) or 5, 6, 7 (where it pays)", show(mode.text))
			return
		}
		o.s.Splice.Mode = n
	}
	if colon >= 0 {
		o.spliceTuning(v.from(colon + 1))
	}
}

// singleDatagram reads the -s of udppm.
func (o *options) singleDatagram(v word) {
	if v.text != "" {
		o.errorf(v.pos, "-s: %s: nothing follows -s here: one datagram each way", show(v.text))
		return
	}
	o.s.SingleDatagram = true
}

func (o *options) spliceTuning(v word) {
	sp := &o.s.Splice
	fields := []struct {
		value  *int
		lo, hi int
		name   string
	}{
		{&sp.Min, 1, maxSpliceSize, "MIN"},
		{&sp.Streak, 1, maxSpliceStreak, "STREAK"},
		{&sp.Small, 0, maxSpliceSize, "SMALL"},
	}
	parts := v.split(isComma)
	if len(parts) > len(fields) {
		o.errorf(parts[len(fields)].pos, "-s: expected at most MIN,STREAK,SMALL after the \":\"")
		return
	}
	for i, part := range parts {
		f := fields[i]
		n, ok := parseNumber(part.text, f.lo, f.hi)
		if !ok {
			o.errorf(part.pos, "-s: %s: expected %s, a number from %d to %d", show(part.text), f.name, f.lo, f.hi)
			return
		}
		*f.value = n
	}
	if sp.Small > sp.Min {
		o.errorf(v.pos, "-s: SMALL (%d) is larger than MIN (%d)", sp.Small, sp.Min)
	}
}

// maxGrace bounds the numbers of -g: bytes and reads, and milliseconds.
const (
	maxGrace   = 1 << 20
	maxGraceMS = 1000
)

func (o *options) grace(v word) {
	if !o.attached("-g", v, "-g1000,100,10") {
		return
	}
	var traffic, reads, delay int
	fields := []struct {
		value *int
		hi    int
		name  string
	}{
		{&traffic, maxGrace, "TRAFF, bytes,"},
		{&reads, maxGrace, "NUM, reads,"},
		{&delay, maxGraceMS, "DELAY, milliseconds,"},
	}
	parts := v.split(isComma)
	if len(parts) != len(fields) {
		o.errorf(v.pos, "-g: expected TRAFF,NUM,DELAY, as in -g1000,100,10")
		return
	}
	for i, part := range parts {
		f := fields[i]
		n, ok := parseNumber(part.text, 1, f.hi)
		if !ok {
			o.errorf(part.pos, "-g: %s: expected %s from 1 to %d", show(part.text), f.name, f.hi)
			return
		}
		*f.value = n
	}
	o.s.Grace = Grace{Traffic: traffic, Reads: reads, DelayMS: int64(delay)}
}

func (o *options) bufferSize(v word) {
	if !o.attached("-b", v, "-b65536") {
		return
	}
	n, ok := parseNumber(v.text, minBuffer, maxBuffer)
	if !ok {
		o.errorf(v.pos, "-b: %s: expected a number of bytes from %d to %d", show(v.text), minBuffer, maxBuffer)
		return
	}
	o.s.BufferSize = n
}

func (o *options) closeBoth(v word) {
	switch v.text {
	case "":
		o.s.CloseBoth = true
	case "1": // the default, asked for explicitly
		o.s.CloseBoth = false
	default:
		o.errorf(v.pos, "-C: %s: expected -C or -C1", show(v.text))
	}
}

func (o *options) anonymity(v word) {
	if !o.only("-a", v, Proxy, Auto) {
		return
	}
	a, ok := map[string]Anonymity{"": HideClient, "1": InventClient, "2": TellXForwardedFor}[v.text]
	if !ok {
		o.errorf(v.pos, "-a: %s: expected -a, -a1 or -a2", show(v.text))
		return
	}
	o.s.Anonymity = a
}

func (o *options) askUser(v word) {
	if !o.only("-u", v, Proxy, Socks, Auto) {
		return
	}
	a, ok := map[string]AskUser{"": AskNever, "2": AskAlways}[v.text]
	if !ok {
		o.errorf(v.pos, "-u: %s: expected -u or -u2", show(v.text))
		return
	}
	o.s.AskUser = a
}

// socketOptions reads NAME or NAME=VALUE, separated by commas, plus signs or,
// in quotes, blanks.
func (o *options) socketOptions(v word, role sockopt.Role, list *[]SockOpt) {
	if !o.attached("-o"+role.Letter(), v, "-o"+role.Letter()+"TCP_NODELAY") {
		return
	}
	if strings.Contains(v.text, ":") {
		o.errorf(v.pos, "-o%s: %s: no option and no value has a \":\"", role.Letter(), show(v.text))
		return
	}
	isSep := func(c byte) bool { return c == ',' || c == '+' || isBlank(c) }
	for _, item := range v.split(isSep) {
		if item.text == "" {
			continue
		}
		o.socketOption(item, role, list)
	}
}

func (o *options) socketOption(item word, role sockopt.Role, list *[]SockOpt) {
	name, value, hasValue := strings.Cut(item.text, "=")
	opt, ok := sockopt.Lookup(name)
	if !ok {
		names := sockopt.Names(role)
		o.errorf(item.pos, "unknown socket option %s%s; -o%s takes %s",
			show(name), didYouMean(name, names), role.Letter(), strings.Join(names, ", "))
		return
	}
	if !opt.Allows(role) {
		o.errorf(item.pos, "%s makes no sense for -o%s (%s sockets)", opt.Name, role.Letter(), role)
		return
	}
	n, text, err := opt.Parse(value, hasValue)
	if err != nil {
		pos := item.pos
		if hasValue {
			pos = item.at(len(name) + 1)
		}
		o.errorf(pos, "%s: %v", opt.Name, err)
		return
	}
	if slices.ContainsFunc(*list, func(s SockOpt) bool { return s.Name == opt.Name }) {
		o.errorf(item.pos, "%s is given twice in -o%s", opt.Name, role.Letter())
		return
	}
	*list = append(*list, SockOpt{Name: opt.Name, Value: n, Text: text})
}
