package worker

import (
	"net/netip"
	"slices"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/proto/hostport"
	"3proxyd/proto/socks"
	"3proxyd/relay"
)

const (
	// maxDestinations bounds the destinations of an association whose verdict is
	// remembered: the one that was not used for longest is forgotten.
	maxDestinations = 16
	// maxHeld and maxHeldBytes bound the datagrams to one name that wait for its
	// address, and the bytes of an association that do; maxHeldTotal those of all.
	maxHeld      = 16
	maxHeldBytes = 64 << 10
	maxHeldTotal = 16 << 20
)

type destinationState uint8

const (
	destinationNew destinationState = iota
	destinationAllowed
	destinationRefused
	// destinationNaming: its name is being looked up.
	destinationNaming
)

// destination is where a client of an association sends datagrams, with what
// the access list says of it. It is pooled.
type destination struct {
	a *association
	// host is the name asked for, "" when it was an address.
	host string
	port uint16
	// to is the address that datagrams go to.
	to    netip.Addr
	state destinationState
	code  code // of destinationRefused
	// isFirst says that it is the first of its association that was allowed.
	isFirst bool
	// second is when the verdict was found, in seconds of the loop's time; one
	// that may change with time counts until the next.
	second int64
	used   uint64 // when it was last used: association.uses
	// began, in and out are of the log: since when, and the bytes from there and
	// from the client.
	began   int64
	in, out uint64
	wait    *nameWait
	// early are the addresses of one family that are used at earlyAt, in the
	// loop's time, should those of the preferred one not be known by then.
	early   []netip.Addr
	earlyAt int64
	held    [][]byte
	free    *destination
}

func (w *Worker) newDestination(a *association) *destination {
	d := w.freeDestinations
	if d == nil {
		d = &destination{}
	} else {
		w.freeDestinations = d.free
		d.free = nil
	}
	d.a = a
	return d
}

func (w *Worker) freeDestination(d *destination) {
	if d.wait != nil {
		d.wait.leave(d)
		d.a.s.svc.cell.Add(ipc.DatagramsDropped, uint64(len(d.held)))
	}
	d.dropHeld()
	*d = destination{free: w.freeDestinations}
	w.freeDestinations = d
}

// destination returns that of a datagram.
func (a *association) destination(m *socks.Datagram) *destination {
	w := a.s.w
	host := hostport.AppendLower(w.scratch[:0], m.Host)
	d := a.current
	if d == nil || !d.is(host, m) {
		d = a.find(host, m)
	}
	a.uses++
	d.used = a.uses
	a.current = d
	return d
}

// is compares a destination with that of a datagram.
func (d *destination) is(host []byte, m *socks.Datagram) bool {
	return d.port == m.Port && d.host == string(host) && (d.host != "" || d.to == m.Addr)
}

func (a *association) find(host []byte, m *socks.Datagram) *destination {
	for _, d := range a.destinations {
		if d.is(host, m) {
			return d
		}
	}
	s := a.s
	if len(a.destinations) == maxDestinations {
		a.forgetOne()
	}
	d := s.w.newDestination(a)
	d.host, d.to, d.port = string(host), m.Addr, m.Port
	d.began = s.w.loop.Now()
	a.destinations = append(a.destinations, d)
	if a.uses == 0 && !a.logsEach() {
		s.host, s.addr, s.port = d.host, d.to, d.port
	}
	return d
}

// forgetOne forgets the destination that was not used for longest. The one that
// the others depend on stays: new rules are asked about it.
func (a *association) forgetOne() {
	oldest := -1
	for i, d := range a.destinations {
		if d.isFirst && !a.authorizesAll() {
			continue
		}
		if oldest < 0 || d.used < a.destinations[oldest].used {
			oldest = i
		}
	}
	d := a.destinations[oldest]
	a.destinations = slices.Delete(a.destinations, oldest, oldest+1)
	if a.logsEach() {
		a.logDestination(d, codeOK)
	}
	a.s.w.freeDestination(d)
}

// sender returns the destination that datagrams of a host are counted for, nil
// when there is none.
func (a *association) sender(from netip.AddrPort) *destination {
	if d := a.current; d == nil || d.to == from.Addr() && d.port == from.Port() {
		return d
	}
	for _, d := range a.destinations {
		if d.to == from.Addr() && d.port == from.Port() {
			return d
		}
	}
	return a.current
}

// pass sends a datagram, or keeps it until the name of the destination is known.
// It reports false when the datagram is dropped.
func (d *destination) pass(p []byte) bool {
	if !d.isDecided() {
		d.decide()
	}
	switch d.state {
	case destinationAllowed:
		return d.send(p)
	case destinationNaming:
		return d.hold(p)
	}
	return false
}

// isDecided reports whether the verdict still counts: that about a name, whose
// addresses may change, and that of a list with times only for a second.
func (d *destination) isDecided() bool {
	switch d.state {
	case destinationNew:
		return false
	case destinationNaming:
		return true
	}
	s := d.a.s
	return d.host == "" && !s.svc.timed || d.second == s.w.loop.Now()/1000
}

// forgetVerdict has the destination decided about anew.
func (d *destination) forgetVerdict() {
	if d.state != destinationNaming {
		d.state = destinationNew
	}
}

// decide finds out whether and where datagrams go.
func (d *destination) decide() {
	s := d.a.s
	d.second = s.w.loop.Now() / 1000
	if d.host == "" {
		d.settle(d.check(d.to))
		return
	}
	// A refused name is told to no name server.
	if c := d.ask(netip.Addr{}); c != codeOK {
		d.settle(c)
		return
	}
	addrs, state := s.w.names.cached(d.host, s.svc.family)
	if state != nameAsk {
		d.choose(addrs)
		return
	}
	d.state = destinationNaming
	d.wait = s.w.names.wait(nameKey{d.host, s.svc.family}, s.client.Addr(), d)
	if d.wait.early != nil {
		d.namedEarly(d.wait.early)
	}
}

// choose takes the addresses of the name.
func (d *destination) choose(addrs []netip.Addr) {
	addr, c := d.pick(addrs)
	if c == codeOK {
		d.to = addr
	}
	d.settle(c)
}

// pick returns the address that datagrams are to go to: the one in use stays while
// it is among addrs and allowed.
func (d *destination) pick(addrs []netip.Addr) (netip.Addr, code) {
	if slices.Contains(addrs, d.to) && d.check(d.to) == codeOK {
		return d.to, codeOK
	}
	c := codeNoHost
	var list targets
	for list.set(addrs, d.a.s.svc.prefer6); !list.empty(); {
		addr := list.next()
		if c = d.check(addr); c == codeOK {
			return addr, c
		}
	}
	return netip.Addr{}, c
}

// named takes the result of a lookup, and sends what has waited for it.
func (d *destination) named(addrs []netip.Addr) {
	d.wait, d.early = nil, nil
	d.choose(addrs)
	d.release()
}

// release sends the datagrams that have waited, or drops them.
func (d *destination) release() {
	s := d.a.s
	before, dropped := s.out, uint64(0)
	d.second = s.w.loop.Now() / 1000
	for _, p := range d.held {
		if d.state != destinationAllowed || !d.send(p) {
			dropped++
		}
	}
	d.dropHeld()
	s.svc.cell.Add(ipc.BytesOut, s.out-before)
	s.svc.cell.Add(ipc.DatagramsDropped, dropped)
}

// check decides about datagrams to one address.
func (d *destination) check(addr netip.Addr) code {
	s := d.a.s
	switch {
	case addr.IsUnspecified(), !addr.IsValid():
		return codeNoHost
	case d.port == 0:
		return codeConnect
	case addr.IsMulticast(), addr == broadcast:
		return codeDenied
	}
	if _, ok := s.svc.source(addr); !ok {
		return codeBind
	}
	if c := d.ask(addr); c != codeOK {
		return c
	}
	if s.w.listensOn(s.svc, netip.AddrPortFrom(addr, d.port), true) {
		return codeLoop
	}
	return codeOK
}

// broadcast is the limited broadcast address (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ask asks the access list about an address, or with the zero Addr about the
// name alone.
func (d *destination) ask(addr netip.Addr) code {
	s := d.a.s
	if d.a.authorized && !d.isFirst && !d.a.authorizesAll() {
		return codeOK
	}
	r := s.aclRequest(addr, false)
	r.Host, r.Port = d.host, d.port
	decision := s.svc.policy.DecideAgain(&r, s.user, s.socks.verified)
	if decision.NeedAddr {
		return codeOK
	}
	return code(decision.Code)
}

// settle notes the verdict. A refusal is logged when it is new.
func (d *destination) settle(c code) {
	isNew := d.code != c
	d.state, d.code = destinationAllowed, c
	if c == codeOK {
		d.isFirst = d.isFirst || !d.a.authorized
		d.a.authorized = true
		return
	}
	d.state = destinationRefused
	switch {
	case !isNew:
	case d.a.logsEach():
		d.a.logDestination(d, c)
	default:
		d.a.s.svc.count(c)
	}
}

// send sends a datagram to an allowed destination.
func (d *destination) send(p []byte) bool {
	c := d.a.server(d.to)
	if c == nil {
		return false
	}
	c.Send(&relay.Path{Peer: netip.AddrPortFrom(d.to, d.port)}, p, nil)
	d.a.out++
	d.out += uint64(len(p))
	d.a.s.out += uint64(len(p))
	return true
}

// hold keeps a datagram until the name is known.
func (d *destination) hold(p []byte) bool {
	a, w := d.a, d.a.s.w
	if len(d.held) == maxHeld || a.held+len(p) > maxHeldBytes || w.heldDatagrams+len(p) > maxHeldTotal {
		return false
	}
	d.held = append(d.held, slices.Clone(p))
	a.held += len(p)
	w.heldDatagrams += len(p)
	return true
}

func (d *destination) dropHeld() {
	for _, p := range d.held {
		d.a.held -= len(p)
		d.a.s.w.heldDatagrams -= len(p)
	}
	d.held = nil
}

// logsEach reports whether each destination has a line in the log.
func (a *association) logsEach() bool { return a.s.svc.UDPDestinations&config.UDPLog != 0 }

// logDestination writes the line of a destination, unless it has had it: that of
// a refusal is written at once.
func (a *association) logDestination(d *destination, c code) {
	if c == codeOK && d.state == destinationRefused && d.out == 0 {
		return
	}
	s := a.s
	host, addr, port := s.host, s.addr, s.port
	in, out, began, result := s.in, s.out, s.began, s.code
	a.becomeLine(d)
	s.code = c
	s.logLine()
	s.host, s.addr, s.port = host, addr, port
	s.in, s.out, s.began, s.code = in, out, began, result
	a.line = nil
}

// becomeLine makes the session's request, which the log shows, that of a
// destination.
func (a *association) becomeLine(d *destination) {
	s := a.s
	a.line = d
	s.host, s.addr, s.port = d.host, d.to, d.port
	s.in, s.out, s.began = d.in, d.out, d.began
}

// logEnd writes the lines of the destinations but for the last, which becomes
// the session's own.
func (a *association) logEnd() {
	if !a.logsEach() {
		return
	}
	var last *destination
	for _, d := range a.destinations {
		if (d.state == destinationAllowed || d.out > 0) && (last == nil || d.used > last.used) {
			last = d
		}
	}
	for _, d := range a.destinations {
		if d != last {
			a.logDestination(d, codeOK)
		}
	}
	if last != nil {
		a.becomeLine(last)
	} else {
		a.s.in, a.s.out = 0, 0
	}
}

// server is the address that the log shows as the server's.
func (d *destination) server() netip.AddrPort {
	if d == nil || !d.to.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(d.to, d.port)
}
