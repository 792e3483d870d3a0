package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"3proxyd/internal/sockopt"
)

const portMapUsage = "[OPTIONS] SRCPORT DSTADDR DSTPORT"

// defaultPorts are the listening ports of services without -p.
var defaultPorts = map[Kind]uint16{Proxy: 3128, Socks: 1080, TLSPR: 1443, Auto: 8080, DNSPR: 53}

func runProxy(l *loader, c call) { l.runServer(Proxy, c) }
func runSocks(l *loader, c call) { l.runServer(Socks, c) }
func runTLSPR(l *loader, c call) { l.runServer(TLSPR, c) }
func runAuto(l *loader, c call)  { l.runServer(Auto, c) }

// runDNSPR starts two services, for TCP and for UDP, that have counters each.
func runDNSPR(l *loader, c call) {
	o := l.newOptions(DNSPR, c)
	rest := o.parse(c.args)
	o.checkDNSPR(c.args)
	if len(rest) > 0 {
		o.errorf(rest[0].pos, "%s: expected an option", show(rest[0].text))
	}
	datagrams := *o
	datagrams.s.Listen.Network = UDP
	datagrams.s.ListenOptions = slices.DeleteFunc(slices.Clone(o.s.ListenOptions), func(so SockOpt) bool {
		opt, ok := sockopt.Lookup(so.Name)
		return !ok || !opt.ForUDP()
	})
	datagrams.s.ClientOptions = nil
	l.addService(o)
	if o.good {
		l.addService(&datagrams)
	}
}

// dnsprOptions are the options that mean something to a service that opens no
// connections to servers.
var dnsprOptions = []string{"p", "i", "ol", "oc"}

// checkDNSPR refuses what has no meaning for a name server's clients.
func (o *options) checkDNSPR(words []word) {
	for _, w := range words {
		known := slices.ContainsFunc(dnsprOptions, func(p string) bool { return strings.HasPrefix(w.text, "-"+p) })
		if strings.HasPrefix(w.text, "-") && !known {
			o.errorf(w.pos, "%s: a dnspr service does not take this option", show(w.text))
		}
	}
	if o.s.Listen.Unix != "" {
		o.errorf(o.s.Pos, "it listens for UDP and TCP, not on a Unix socket")
	}
	needsName := func(m AuthMethod) bool { return m != AuthNone && m != AuthIPOnly }
	if len(o.s.Auth) > 0 && !slices.ContainsFunc(o.s.Auth, func(m AuthMethod) bool { return !needsName(m) }) {
		o.l.warnf(o.s.Pos, "dnspr: its clients have no user name: with this auth all are refused; write auth iponly before it")
	}
}

// runServer starts a service that takes options only.
func (l *loader) runServer(kind Kind, c call) {
	o := l.newOptions(kind, c)
	rest := o.parse(c.args)
	if len(rest) > 0 {
		l.errorf(rest[0].pos, "%s: %s: expected an option", kind, show(rest[0].text))
		o.good = false
	}
	if o.s.speaksTLS() && o.s.TargetPort == 0 {
		o.s.TargetPort = defaultTargetPort
	}
	l.addService(o)
}

func runTCPPM(l *loader, c call) { l.runPortMap(TCPPM, c) }
func runUDPPM(l *loader, c call) { l.runPortMap(UDPPM, c) }

func (l *loader) runPortMap(kind Kind, c call) {
	o := l.newOptions(kind, c)
	rest := o.parse(c.args)
	if o.portSet {
		o.errorf(o.portPos, "-p: the port is the first word after the options; write: %s %s", kind, portMapUsage)
	}
	switch {
	case len(rest) < 3:
		o.errorf(c.name.pos, "a word is missing; write: %s %s", kind, portMapUsage)
	case len(rest) > 3:
		o.errorf(rest[3].pos, "there is a word too many here; write: %s %s", kind, portMapUsage)
	default:
		o.portMap(rest)
	}
	l.addService(o)
}

// portMap reads SRCPORT DSTADDR DSTPORT.
func (o *options) portMap(words []word) {
	kind := string(o.s.Kind)
	port, ok := o.l.port(kind+": SRCPORT", words[0])
	o.port, o.portSet, o.good = port, true, o.good && ok
	target, ok := o.l.targetAddress(o.s.Kind, words[1])
	o.good = o.good && ok
	if target.Unix != "" && words[2].text == "0" {
		// The port of a Unix socket means nothing, but 3proxy wants one.
		o.s.Target = &target
		return
	}
	target.Port, ok = o.l.port(kind+": DSTPORT", words[2])
	if target.Unix != "" {
		target.Port = 0
		o.l.warnf(words[2].pos, "tcppm: the port has no effect: the target is a Unix socket; write 0")
	}
	o.good = o.good && ok
	target.Network = o.s.Listen.Network
	o.s.Target = &target
}

func (l *loader) targetAddress(kind Kind, w word) (Endpoint, bool) {
	if strings.HasPrefix(w.text, "unix:") {
		if kind == UDPPM {
			l.errorf(w.pos, "udppm: %s: datagrams cannot be sent to a Unix socket", show(w.text))
			return Endpoint{}, false
		}
		path, ok := l.unixAddress("tcppm", w.from(len("unix:")))
		return Endpoint{Unix: path}, ok
	}
	a, err := parseAddr(w.text)
	switch {
	case err == nil && (a.IsUnspecified() || a.IsMulticast()):
		l.errorf(w.pos, "%s: %s: this address cannot be connected to", kind, show(w.text))
		return Endpoint{}, false
	case err == nil:
		return Endpoint{Addr: a}, true
	case strings.ContainsAny(w.text, ":%"):
		expected := "an address, a host name, unix:PATH or unix:@NAME"
		if kind == UDPPM {
			expected = "an address or a host name"
		}
		l.errorf(w.pos, "%s: %s: expected %s", kind, show(w.text), expected)
		return Endpoint{}, false
	}
	host, err := checkHost(w.text)
	if err != nil {
		l.errorf(w.pos, "%s: %s: %v", kind, show(w.text), err)
		return Endpoint{}, false
	}
	return Endpoint{Host: host}, true
}

// addService finishes a service line: it completes the listening address and
// adds the service unless something is wrong with it.
func (l *loader) addService(o *options) {
	l.pending = map[string]pendingCommand{}
	o.finishListen()
	o.checkUnixOptions()
	o.checkFamilies()
	o.checkDatagrams()
	s := &o.s
	s.ID = string(s.Kind) + "@" + s.Listen.String()
	if s.Kind == DNSPR && s.Listen.Network == UDP {
		s.ID = "dnspr-udp@" + s.Listen.String()
	}
	if !l.claimAddress(s) || !o.good {
		return
	}
	if s.leadsTo(s) {
		l.errorf(s.Pos, "%s: it would connect to itself: %s is where it listens", s.Kind, s.Target)
		return
	}
	if len(l.cfg.Services) == MaxServices {
		l.errorf(s.Pos, "%s: more than %d services", s.Kind, MaxServices)
		return
	}
	s.ACL = l.captureRules()
	l.seqOf[s.Pos] = l.seq
	l.cfg.Services = append(l.cfg.Services, *s)
}

// captureRules returns the index of the access list as it is now.
func (l *loader) captureRules() int {
	if len(l.st.rules) == 0 {
		return -1
	}
	if l.st.aclIndex < 0 {
		l.ruleCount += len(l.st.rules)
		if l.ruleCount > maxRules {
			l.errorf(l.st.rules[0].Pos, "all access lists together have more than %d rules; flush the list between services", maxRules)
			l.diags.full = true
			return -1
		}
		l.st.aclIndex = len(l.cfg.ACLs)
		l.cfg.ACLs = append(l.cfg.ACLs, slices.Clip(l.st.rules))
	}
	return l.st.aclIndex
}

// finishListen fills in the default port.
func (o *options) finishListen() {
	s := &o.s
	if s.Listen.Unix != "" || s.Listen.Systemd != "" {
		if o.portSet && s.Kind != TCPPM && s.Kind != UDPPM {
			where := "listens on a Unix socket"
			if s.Listen.Systemd != "" {
				where = "takes sockets of systemd: they have their ports"
			}
			o.l.warnf(o.portPos, "%s: -p has no effect on a service that %s", s.Kind, where)
		}
		return
	}
	s.Listen.Port = defaultPorts[s.Kind]
	if o.portSet {
		s.Listen.Port = o.port
	}
}

// checkUnixOptions refuses options of TCP and IP for Unix sockets.
func (o *options) checkUnixOptions() {
	s := &o.s
	if s.Listen.Unix != "" {
		o.socketLevelOnly("-ol", s.ListenOptions, "the service listens")
		o.socketLevelOnly("-oc", s.ClientOptions, "the service listens")
	}
	if s.Target != nil && s.Target.Unix != "" {
		o.socketLevelOnly("-os", s.ServerOptions, "the target is")
	}
}

func (o *options) socketLevelOnly(letter string, list []SockOpt, what string) {
	for _, so := range list {
		if opt, ok := sockopt.Lookup(so.Name); ok && !opt.ForUnix() {
			o.errorf(o.s.Pos, "%s%s: %s on a Unix socket, which does not have this option", letter, so.Name, what)
		}
	}
}

// checkDatagrams refuses what makes no sense for a service that takes
// datagrams.
func (o *options) checkDatagrams() {
	s := &o.s
	if s.Listen.Network != UDP {
		return
	}
	if s.Listen.Unix != "" {
		o.errorf(s.Pos, "it takes datagrams and cannot listen on a Unix socket; name an address with -i")
	}
	o.datagramOptionsOnly("-ol", s.ListenOptions)
	o.datagramOptionsOnly("-os", s.ServerOptions)
}

func (o *options) datagramOptionsOnly(letter string, list []SockOpt) {
	for _, so := range list {
		if opt, ok := sockopt.Lookup(so.Name); ok && !opt.ForUDP() {
			o.errorf(o.s.Pos, "%s%s: sockets for datagrams do not have this option", letter, so.Name)
		}
	}
}

// claimed is a listening address in use by a service line.
type claimed struct {
	network Network
	addr    netip.Addr
	unix    string
	systemd string
	pos     Pos
}

// claimAddress reports an address that another service listens on. A wildcard
// address overlaps with every address of its family.
func (l *loader) claimAddress(s *Service) bool {
	mine := claimed{s.Listen.Network, s.Listen.Addr, cleanUnix(s.Listen.Unix), s.Listen.Systemd, s.Pos}
	if mine.unix == "" && mine.systemd == "" && (s.Listen.Port == 0 || !mine.addr.IsValid()) {
		return true // the port or address is missing or wrong, which has been reported
	}
	for _, other := range l.listening[s.Listen.Port] {
		if !mine.overlaps(other) {
			continue
		}
		l.errorf(s.Pos, "%s: %s is already taken by the service at %s", s.Kind, s.Listen, other.pos)
		return false
	}
	l.listening[s.Listen.Port] = append(l.listening[s.Listen.Port], mine)
	return true
}

func (c claimed) overlaps(o claimed) bool {
	if c.network != o.network {
		return false
	}
	if c.unix != "" || o.unix != "" || c.systemd != "" || o.systemd != "" {
		return c.unix == o.unix && c.systemd == o.systemd
	}
	if c.addr.Is4() != o.addr.Is4() {
		return false
	}
	return c.addr == o.addr || c.addr.IsUnspecified() || o.addr.IsUnspecified()
}

func cleanUnix(path string) string {
	if path == "" || path[0] == '@' {
		return path
	}
	return filepath.Clean(path)
}

// String returns "ADDRESS:PORT", "HOST:PORT", "unix:PATH", "unix:@NAME" or
// "systemd:NAME".
func (e Endpoint) String() string {
	if e.Systemd != "" {
		return "systemd:" + e.Systemd
	}
	if e.Unix != "" {
		return "unix:" + e.Unix
	}
	if e.Host != "" {
		return e.Host + ":" + strconv.Itoa(int(e.Port))
	}
	if !e.Addr.IsValid() {
		return ":" + strconv.Itoa(int(e.Port))
	}
	return netip.AddrPortFrom(e.Addr, e.Port).String()
}
