package supervisor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/systemd"
)

// inheritance are descriptors this process was started with and that nothing
// has taken yet: sockets of the service manager's socket units, and those an
// earlier supervisor put into its store.
type inheritance struct {
	mu      sync.Mutex
	sockets []systemd.Socket
}

// stored says that the daemon itself has put the socket into the store. The
// others belong to a socket unit.
func stored(s systemd.Socket) bool { return strings.HasPrefix(s.Name, config.StoredPrefix) }

// take removes and returns the sockets for which match is true.
func (h *inheritance) take(match func(systemd.Socket) bool) []systemd.Socket {
	h.mu.Lock()
	defer h.mu.Unlock()
	var taken []systemd.Socket
	h.sockets = slices.DeleteFunc(h.sockets, func(s systemd.Socket) bool {
		if !match(s) {
			return false
		}
		taken = append(taken, s)
		return true
	})
	return taken
}

// giveBack keeps sockets of a service that is gone for one that may come.
func (h *inheritance) giveBack(sockets []systemd.Socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets = append(h.sockets, sockets...)
}

// addNew adds a socket of a worker, unless it is there already.
func (h *inheritance) addNew(s systemd.Socket) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(h.sockets, func(has systemd.Socket) bool { return has.Cookie == s.Cookie }) {
		return false
	}
	h.sockets = append(h.sockets, s)
	return true
}

// unitAddresses are the keys of the addresses for which there are sockets of
// socket units.
func (h *inheritance) unitAddresses() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := map[string]bool{}
	for _, s := range h.sockets {
		if !stored(s) && servable(s) {
			keys[socketKey(s)] = true
		}
	}
	return keys
}

// addresses are those of the sockets, as services name them.
func (h *inheritance) addresses() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := map[string]bool{}
	for _, s := range h.sockets {
		if servable(s) {
			e := endpointOf(s)
			list[e.String()] = true
		}
	}
	return list
}

// endpointOf is where a servable socket is bound.
func endpointOf(s systemd.Socket) config.Endpoint {
	return config.Endpoint{Network: networkOf(s), Unix: s.Path, Addr: s.Addr.Addr().Unmap(), Port: s.Addr.Port()}
}

// servable says that the socket is one that some service can serve.
func servable(s systemd.Socket) bool {
	return s.Network == "udp" || s.Listening && (s.Network == "tcp" || s.Network == "unix")
}

// serves says that the socket is one that a service of a network can serve.
func serves(s systemd.Socket, n config.Network) bool {
	return servable(s) && networkOf(s) == n
}

// networkOf is the network of an endpoint that a servable socket is for.
func networkOf(s systemd.Socket) config.Network {
	if s.Network == "udp" {
		return config.UDP
	}
	return config.Stream
}

// forService takes the sockets of a service, by name or by address. Those of
// socket units go before those of the store: they may be the same.
func (h *inheritance) forService(e config.Endpoint, others []config.Service) ([]systemd.Socket, error) {
	if e.Systemd != "" {
		return h.byName(e, others)
	}
	for _, wanted := range []bool{false, true} {
		found := h.take(func(s systemd.Socket) bool {
			return stored(s) == wanted && serves(s, e.Network) && boundTo(s, e) && present(s.Path)
		})
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// has says whether there are sockets for a service. The error is that of a
// name nothing is inherited for.
func (h *inheritance) has(s *config.Service, others []config.Service) (bool, error) {
	found, err := h.forService(s.Listen, others)
	h.giveBack(found)
	return len(found) > 0, err
}

// byName takes the sockets of a name but for those another service wants by
// their address.
func (h *inheritance) byName(e config.Endpoint, others []config.Service) ([]systemd.Socket, error) {
	name := e.Systemd
	found := h.take(func(s systemd.Socket) bool {
		return s.Name == name && serves(s, e.Network) && !slices.ContainsFunc(others, func(o config.Service) bool {
			return o.Listen.Systemd == "" && boundTo(s, o.Listen)
		})
	})
	if len(found) > 0 {
		return found, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sockets {
		if s.Name == name {
			return nil, fmt.Errorf("the inherited socket %q %s", name, unfit(s, e.Network))
		}
	}
	kind, setting := "stream", "ListenStream"
	if e.Network == config.UDP {
		kind, setting = "UDP", "ListenDatagram"
	}
	return nil, fmt.Errorf("no %s socket of the name %q was inherited: the daemon must be started by a socket unit "+
		"with FileDescriptorName=%s and %s=", kind, name, name, setting)
}

// unfit says why a service of a network cannot take a socket.
func unfit(s systemd.Socket, n config.Network) string {
	switch {
	case s.Network == "udp" || s.Network == "unixgram":
		return fmt.Sprintf("(%s) is for datagrams, and the service needs one for connections: use ListenStream= in its unit", s)
	case n == config.UDP:
		return fmt.Sprintf("(%s) is not for UDP datagrams, which the service takes: use ListenDatagram= in its unit", s)
	case s.Network == "tcp" || s.Network == "unix":
		return fmt.Sprintf("(%s) does not listen: set Accept=no in its unit", s)
	}
	return fmt.Sprintf("(%s) cannot be served", s)
}

// present says that clients can still find a Unix socket: its file may have
// been removed.
func present(path string) bool {
	return path == "" || path[0] == '@' || fileOfSocket(path) != socketFile{}
}

// ipNetwork is the network of an IP socket of an endpoint, as
// systemd.Socket.Network.
func ipNetwork(e config.Endpoint) string {
	if e.Network == config.UDP {
		return "udp"
	}
	return "tcp"
}

// boundTo says whether a socket is where a service listens. An IPv6 wildcard
// socket that takes IPv4 clients as well is also 0.0.0.0.
func boundTo(s systemd.Socket, e config.Endpoint) bool {
	switch {
	case e.Unix != "":
		return s.Network == "unix" && samePath(s.Path, e.Unix)
	case s.Network != ipNetwork(e) || s.Addr.Port() != e.Port:
		return false
	case s.DualStack() && e.Addr.Unmap() == netip.IPv4Unspecified():
		return true
	}
	return s.Addr.Addr().Unmap() == e.Addr.Unmap()
}

// overlapping returns a socket that nothing has taken yet and whose address, or
// that of the service, is a wildcard that has the other: a service that has been
// given a wider or a narrower address.
func (h *inheritance) overlapping(e config.Endpoint) (systemd.Socket, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sockets {
		at := endpointOf(s)
		dual := s.DualStack() && at.Port == e.Port && at.Network == e.Network
		if e.Unix == "" && s.Addr.IsValid() && servable(s) && (dual || wildcardOverlap(at, e)) {
			return s, true
		}
	}
	return systemd.Socket{}, false
}

// listenReason is the text for a failure to listen; it names the inherited
// socket that is in the way.
func (d *daemon) listenReason(e config.Endpoint, err error, ours bool) string {
	other, found := d.inherited.overlapping(e)
	switch {
	case !found || ours || !errors.Is(err, unix.EADDRINUSE):
		return listenReason(e, err, ours)
	case stored(other):
		return fmt.Sprintf("%s overlaps with %s, the daemon's address before, whose socket cannot be shared: "+
			"stop the daemon and start it to make the change", e.String(), other)
	}
	return fmt.Sprintf("%s overlaps with %s, the inherited socket %q: change ListenStream= or ListenDatagram= in its unit, or the address of the service",
		e.String(), other, other.Name)
}

// listener makes the listener of a service of inherited sockets; nil when there
// are none. Missing sockets of an own SO_REUSEPORT group are opened,
// so that each slot has one; any other number is shared by all workers, or, for
// datagrams, served by the workers of the first slots, those of more slots than
// there are by other workers (retireExcess).
func (h *inheritance) listener(s *config.Service, others []config.Service, slots int) (*listener, error) {
	sockets, err := h.forService(s.Listen, others)
	if err != nil || len(sockets) == 0 {
		return nil, err
	}
	if s.Listen.Network == config.UDP && len(sockets) > maxWorkers {
		h.giveBack(sockets)
		return nil, fmt.Errorf("%d sockets for datagrams were inherited, %d can be served", len(sockets), maxWorkers)
	}
	locate(&s.Listen, sockets)
	l := &listener{
		key:      s.Listen.Key(),
		endpoint: s.Listen,
		backlog:  s.Backlog,
		options:  s.ListenOptions,
		kept:     !stored(sockets[0]),
		shared:   s.Listen.Network != config.UDP,
	}
	if l.kept {
		l.units = sockets
	} else {
		l.borrowed = true
		l.file = fileOfSocket(s.Listen.Unix)
	}
	l.assign(sockets, slots)
	if err := l.adopt(s.Backlog != 0); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// locate notes where the sockets of a name are bound: the first of them, or
// the first Unix socket.
func locate(e *config.Endpoint, sockets []systemd.Socket) {
	if e.Systemd == "" {
		return
	}
	first := sockets[0]
	for _, s := range sockets {
		if s.Network == "unix" {
			first = s
		}
	}
	e.Unix, e.Addr, e.Port = first.Path, first.Addr.Addr().Unmap(), first.Addr.Port()
}

// assign gives each slot its socket if there is one for each, of one
// SO_REUSEPORT group.
func (l *listener) assign(sockets []systemd.Socket, slots int) {
	for _, s := range sockets {
		l.fds = append(l.fds, s.FD)
	}
	if option(l.options, "SO_REUSEPORT", 1) == 0 || !oneGroup(sockets) || len(sockets) > slots && !l.datagrams() {
		return
	}
	bySlot := slices.Clone(sockets)
	slices.SortStableFunc(bySlot, func(a, b systemd.Socket) int { return slotOf(a) - slotOf(b) })
	for i, s := range bySlot {
		l.fds[i] = s.FD
	}
	complete := len(sockets) >= slots || l.fillGroup(slots)
	l.shared = !complete && !l.datagrams()
}

// oneGroup says whether the sockets share the connections of one address.
func oneGroup(sockets []systemd.Socket) bool {
	return !slices.ContainsFunc(sockets, func(s systemd.Socket) bool {
		return s.Network == "unix" || !s.ReusePort || s.Addr != sockets[0].Addr || s.V6Only != sockets[0].V6Only
	})
}

// fillGroup opens the sockets that are missing for the slots. It fails where
// the kernel lets the group's owner only join it (SO_REUSEPORT, socket(7)).
func (l *listener) fillGroup(slots int) bool {
	if l.kept {
		return false
	}
	had := len(l.fds)
	for len(l.fds) < slots {
		fd, err := l.bindIP(true)
		if err == nil {
			l.fds = append(l.fds, fd)
			err = l.listen(fd)
		}
		if err != nil {
			for _, fd := range l.fds[had:] {
				_ = unix.Close(fd)
			}
			l.fds = l.fds[:had]
			return false
		}
	}
	return true
}

// adopt gives inherited sockets what those opened here have. Their backlog is
// left alone unless the service sets one.
func (l *listener) adopt(backlog bool) error {
	for _, fd := range l.fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("fcntl: %w", err)
		}
		switch {
		case l.datagrams():
			enlargeQueue(fd)
		case l.endpoint.Unix == "":
			setClientDefaults(fd)
		}
		if err := applyOptions(fd, l.options); err != nil {
			return err
		}
		if backlog {
			if err := l.listen(fd); err != nil {
				return err
			}
		}
	}
	return nil
}

// setClientDefaults sets what accepted sockets inherit; a Unix socket has none
// of it.
func setClientDefaults(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// familyWarning says that an inherited socket takes clients of more families
// than the service's address has.
func familyWarning(l *listener) string {
	for _, s := range l.units {
		if l.endpoint.Systemd == "" && s.DualStack() {
			return fmt.Sprintf("the inherited socket %q takes IPv4 and IPv6 clients: BindIPv6Only=ipv6-only in its unit changes that", s.Name)
		}
	}
	return ""
}

// hasMade says whether the file of a Unix socket is one this process has made, in
// place of one that had been removed.
func (d *daemon) hasMade(file socketFile) bool {
	return file == d.control.file ||
		slices.ContainsFunc(d.inForce().listeners, func(l *listener) bool { return l.file == file })
}

// closeUnclaimed closes the sockets no service wants, and says so.
func (d *daemon) closeUnclaimed() {
	for _, s := range d.inherited.take(func(systemd.Socket) bool { return true }) {
		switch {
		case stored(s):
			d.logf("%s is not used any more: the socket is closed", s)
			if file := fileOfSocket(s.Path); !d.hasMade(file) {
				file.remove()
			}
		case servable(s):
			d.logf("warning: no service wants the inherited socket %q (%s): it is closed", s.Name, s)
		default:
			d.logf("warning: the inherited descriptor %q %s: it is closed", s.Name, unfit(s, config.Stream))
		}
		_ = unix.Close(s.FD)
	}
}
