package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// analysis is what the run notes for the checks that need the whole
// configuration.
type analysis struct {
	sawService bool
	// given has the place of the last use of commands that should be used
	// once.
	given  map[string]Pos
	logPos map[string]Pos // by path of the log file
	// pending has the stateful commands since the last service.
	pending map[string]pendingCommand
	// listening has the addresses in use by port; Unix sockets are under 0.
	listening map[uint16][]claimed
	usersPos  []mark
	userIndex map[string]int // name to index in Config.Users
	userPos   []Pos          // by index in Config.Users
	// seqOf has the number of the command at a place that a later check may
	// report.
	seqOf     map[Pos]int
	ruleCount int
	// lists has every access list in its longest state.
	lists [][]Rule
	// warned has the rules that were warned of, checked the access lists
	// whose users were compared, by index and whether passwords are asked.
	warned  map[Pos]bool
	checked map[userCheck]bool
}

type userCheck struct {
	acl    int
	strong bool
}

// mark is a command's place and number.
type mark struct {
	pos Pos
	seq int
}

// pendingCommand is the first use of a command since the last service, and
// the number of uses.
type pendingCommand struct {
	mark
	count int
}

func newAnalysis() analysis {
	return analysis{
		given:     map[string]Pos{},
		logPos:    map[string]Pos{},
		pending:   map[string]pendingCommand{},
		listening: map[uint16][]claimed{},
		userIndex: map[string]int{},
		seqOf:     map[Pos]int{},
		warned:    map[Pos]bool{},
		checked:   map[userCheck]bool{},
	}
}

func (l *loader) noteStateful(c call) {
	p, ok := l.pending[c.name.text]
	if !ok {
		p.mark = mark{c.name.pos, l.seq}
	}
	p.count++
	l.pending[c.name.text] = p
}

// endList keeps an access list that will not grow any more.
func (l *loader) endList() {
	if len(l.st.rules) > 0 {
		l.lists = append(l.lists, l.st.rules)
	}
}

// warnAt adds a warning in the place of the command with number seq.
func (l *loader) warnAt(seq int, pos Pos, format string, args ...any) {
	l.diags.add(seq, pos, Warning, fmt.Sprintf(format, args...))
}

// finish runs the checks that need the whole configuration. After an error
// the state of services is not known, and warnings would mislead.
func (l *loader) finish(start Pos) {
	l.endList()
	if !l.sawService && l.diags.errors == 0 {
		l.errorf(start, "no service is configured; add at least one of proxy, socks, auto, tlspr, tcppm, udppm, dnspr")
	}
	if l.diags.errors > 0 {
		return
	}
	l.checkLoops()
	l.checkNameServers()
	l.warnPending()
	l.warnIdentity()
	l.warnUsers()
	for i := range l.cfg.Services {
		l.checkService(&l.cfg.Services[i])
	}
	for _, list := range l.lists {
		l.warnShadowed(list)
	}
}

// warnPending names the commands after the last service.
func (l *loader) warnPending() {
	if !l.sawService {
		return
	}
	for _, name := range sortedKeys(l.pending) {
		p := l.pending[name]
		what := "has no effect"
		if p.count > 1 {
			what = fmt.Sprintf("this line and %d more after it have no effect", p.count-1)
		}
		l.warnAt(p.seq, p.pos, "%s: %s: no service follows", name, what)
	}
}

func (l *loader) warnIdentity() {
	pos, ok := l.given["setuid"]
	if !ok || l.cfg.SetUID == nil || l.cfg.SetGID != nil {
		return
	}
	l.warnf(pos, "setuid: without setgid the workers keep the group of the supervisor")
}

// warnUsers says that users are of no use when no service asks for passwords.
func (l *loader) warnUsers() {
	if len(l.usersPos) == 0 || len(l.cfg.Services) == 0 {
		return
	}
	for _, s := range l.cfg.Services {
		if slices.Contains(s.Auth, AuthStrong) {
			return
		}
	}
	m := l.usersPos[0]
	l.warnAt(m.seq, m.pos, "users: have no effect: no service has auth strong")
}

// checkService warns of what is legal but seldom meant about one service.
func (l *loader) checkService(s *Service) {
	if s.Kind == DNSPR && s.Listen.Network == UDP {
		return // as the service for TCP of the same line
	}
	var rules []Rule
	if s.ACL >= 0 {
		rules = l.cfg.ACLs[s.ACL]
	}
	c := serviceCheck{l: l, s: s, rules: rules, seq: l.seqOf[s.Pos]}
	c.uselessRules()
	c.nobodyToLogIn()
	c.ruleUsers()
	c.openProxy()
	c.targetFamily()
	c.headerFrom()
}

type serviceCheck struct {
	l     *loader
	s     *Service
	rules []Rule
	seq   int
}

func (c *serviceCheck) has(m AuthMethod) bool { return slices.Contains(c.s.Auth, m) }

func (c *serviceCheck) warnf(format string, args ...any) {
	c.l.warnAt(c.seq, c.s.Pos, "%s: %s", c.s.Kind, fmt.Sprintf(format, args...))
}

// uselessRules: auth none never looks at the access list.
func (c *serviceCheck) uselessRules() {
	if !c.has(AuthNone) || len(c.rules) == 0 {
		return
	}
	c.warnf("auth none lets everybody in: the access list that begins at %s has no effect; write auth iponly or auth strong before this line", c.rules[0].Pos)
}

// nobodyToLogIn: strong without users, or where a client has no way to give a
// name.
func (c *serviceCheck) nobodyToLogIn() {
	nameless := c.s.Kind == TCPPM || c.s.Kind == UDPPM || c.s.Kind == TLSPR
	if nameless && !c.has(AuthNone) && !c.has(AuthIPOnly) {
		c.warnf("clients of this service have no way to give a name: nobody is let in; write auth iponly before this line")
		return
	}
	if c.has(AuthStrong) && !c.has(AuthNone) && len(c.l.cfg.Users) == 0 {
		c.warnf("auth strong, but there are no users: nobody can log in")
	}
}

// ruleUsers finds rules whose users can never be logged in.
func (c *serviceCheck) ruleUsers() {
	key := userCheck{c.s.ACL, c.has(AuthStrong)}
	if c.has(AuthNone) || c.has(AuthUserOnly) || c.l.checked[key] {
		return
	}
	c.l.checked[key] = true
	if !c.has(AuthStrong) {
		c.rulesWithUsers()
		return
	}
	for _, r := range c.rules {
		for _, name := range r.Users {
			if _, ok := c.l.userIndex[name]; !ok {
				c.l.warnOnce(r.Pos, "%s: there is no user %s in any users command, so nobody can match this name", verb(r), show(name))
			}
		}
	}
}

func (c *serviceCheck) rulesWithUsers() {
	for _, r := range c.rules {
		if len(r.Users) > 0 {
			c.l.warnOnce(r.Pos, "%s: this rule names users, but the service at %s does not ask for a name (auth iponly): it never matches there", verb(r), c.s.Pos)
		}
	}
}

// warnOnce warns about a rule, once for all services that use it.
func (l *loader) warnOnce(pos Pos, format string, args ...any) {
	if l.warned[pos] {
		return
	}
	l.warned[pos] = true
	l.warnAt(l.seqOf[pos], pos, format, args...)
}

func verb(r Rule) string {
	if r.Allow {
		return "allow"
	}
	return "deny"
}

// openProxy: anybody who can reach a public address may use it.
func (c *serviceCheck) openProxy() {
	s := c.s
	if s.Kind == TCPPM || s.Kind == UDPPM || s.Listen.Unix != "" || s.Listen.Systemd != "" || !isPublic(s.Listen.Addr) || !c.admitsAnybody() {
		return
	}
	where := "the public address " + s.Listen.String()
	if s.Listen.Addr.IsUnspecified() {
		where = "every address of this host (" + s.Listen.String() + ")"
	}
	what := "an open proxy"
	if s.Kind == DNSPR {
		what = "an open resolver"
	}
	c.warnf("this is %s: it listens on %s and lets everybody in; restrict it by internal or -i, or by auth and an access list", what, where)
}

// isPublic tells whether strangers may be able to reach an address.
func isPublic(a netip.Addr) bool {
	sharedSpace := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	return !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast() && !sharedSpace.Contains(a)
}

// admitsAnybody tells whether a client without a password may get to hosts
// that nobody has named: by auth none, or by a method without passwords and a
// list that is empty or allows it before it denies everything.
func (c *serviceCheck) admitsAnybody() bool {
	if c.has(AuthNone) {
		return true
	}
	if !c.has(AuthIPOnly) && !c.has(AuthUserOnly) {
		return false
	}
	v6 := c.s.Listen.Addr.Is6()
	for i := range c.rules {
		r := &c.rules[i]
		if r.Allow && c.opensTo(r, v6) {
			return true
		}
		if r.matchesAll(v6) {
			return false
		}
	}
	return len(c.rules) == 0
}

// opensTo tells whether a rule matches strangers that go anywhere, be it at
// certain times, to certain ports or by certain operations only. With useronly
// a name is no obstacle.
func (c *serviceCheck) opensTo(r *Rule, v6 bool) bool {
	if len(r.Users) > 0 && !c.has(AuthUserOnly) {
		return false
	}
	served := OpConnect | OpHTTP | OpHTTPConnect
	if c.s.Kind == DNSPR {
		served = OpDNSResolve
	}
	return r.anySource(v6) && r.anyTarget() && (r.Operations == 0 || r.Operations&served != 0)
}

// anySource tells whether r matches every client of a service that listens on
// one address family.
func (r *Rule) anySource(v6 bool) bool {
	return len(r.Sources) == 0 || coversFamily(r.Sources, v6)
}

// anyTarget tells whether r matches every target of one family at least.
func (r *Rule) anyTarget() bool {
	return !r.hasTargets() || coversFamily(r.Targets, false) || coversFamily(r.Targets, true)
}

func (r *Rule) hasTargets() bool { return len(r.Targets) > 0 || len(r.TargetHosts) > 0 }

func (r *Rule) matchesAll(v6 bool) bool {
	return len(r.Users) == 0 && r.anySource(v6) && !r.hasTargets() && len(r.Ports) == 0 &&
		r.Operations == 0 && r.Weekdays == 0 && len(r.Times) == 0
}

// headerFrom: connections to an address that is not loopback do not come from
// loopback addresses.
func (c *serviceCheck) headerFrom() {
	h, a := c.s.ProxyHeader, c.s.Listen.Addr
	if h != nil && len(h.From) == 0 && a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() {
		c.warnf("-H believes the headers of this host only; name the proxies in front, as in -H192.0.2.1")
	}
}

// targetFamily: a source address of the one family cannot reach a target of
// the other.
func (c *serviceCheck) targetFamily() {
	t := c.s.Target
	if t == nil || !t.Addr.IsValid() {
		return
	}
	mine, other := c.s.External4, c.s.External6
	if t.Addr.Is6() {
		mine, other = other, mine
	}
	if !mine.IsValid() && other.IsValid() {
		c.warnf("the target %s cannot be reached from the external address %s, which is of the other family", t, other)
	}
}
