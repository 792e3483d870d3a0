package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/internal/sockopt"
	"3proxyd/systemd"
)

// kernelBacklog is the greatest backlog; the kernel cuts it to somaxconn.
const kernelBacklog = 1<<31 - 1

// listener is what one listening address is served with: a socket for each
// slot, all in one SO_REUSEPORT group, or one socket shared by all workers. A
// socket for datagrams is never shared, because a client's datagrams belong to
// one session: where there are fewer sockets than slots, the first slots have
// them.
type listener struct {
	key      string
	endpoint config.Endpoint
	shared   bool
	// mu guards fds, which grows with the number of slots.
	mu      sync.Mutex
	fds     []int
	backlog int
	options []config.SockOpt
	// kept says that the sockets are those of socket units, units, which go
	// on listening when this process does not.
	kept  bool
	units []systemd.Socket
	// borrowed says that another supervisor has the sockets as well, whose
	// workers serve them: one before until this one has started, one after in
	// an upgrade. Closing them here must not end listening.
	borrowed bool
	// file is the Unix socket's file, to be removed with the listener.
	file socketFile
	// lost says that the file has been removed by others; guarded by
	// daemon.change.
	lost bool
	// refs counts the snapshots that hold the listener; guarded by
	// daemon.mu.
	refs int
}

// fd returns the socket of a slot, of a listener that is not shared. It is
// false when there is none: the listener was opened when fewer slots were in
// use.
func (l *listener) fd(slot int) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot >= len(l.fds) {
		return -1, false
	}
	return l.fds[slot], true
}

// unitName is the name that a socket has in its socket unit, "" when it is the
// daemon's own.
func (l *listener) unitName(i int) string {
	if i >= len(l.units) {
		return ""
	}
	return l.units[i].Name
}

// slots is the number of slots the listener has a socket for.
func (l *listener) slots() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.fds)
}

// sockets are all sockets of the listener.
func (l *listener) sockets() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.fds)
}

// add gives the listener the socket of the next slot.
func (l *listener) add(fd int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fds = append(l.fds, fd)
}

// datagrams says that the sockets are for datagrams.
func (l *listener) datagrams() bool { return l.endpoint.Network == config.UDP }

// grouped says that each slot is to have a socket of its own.
func (l *listener) grouped() bool {
	return !l.shared && option(l.options, "SO_REUSEPORT", 1) != 0
}

// close closes every socket and removes the file of a Unix socket. The
// shutdown ends listening at once even where a worker has not yet closed its
// duplicate, as after a generation that was aborted; one for datagrams takes
// them until it is closed.
func (l *listener) close() {
	if !l.borrowed && !l.lost {
		l.file.remove()
	}
	for _, fd := range l.fds {
		if !l.kept && !l.borrowed && !l.datagrams() {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
		_ = unix.Close(fd)
	}
	l.fds = nil
}

// listen opens the sockets of a service's address. With ours an overlapping
// address is known to be the daemon's own, so that the sockets may join it.
func listen(s *config.Service, slots int, ours bool) (*listener, error) {
	l := &listener{
		key:      s.Listen.Key(),
		endpoint: s.Listen,
		backlog:  s.Backlog,
		options:  s.ListenOptions,
	}
	l.shared = s.Listen.Unix != "" || option(s.ListenOptions, "SO_REUSEPORT", 1) == 0 && !l.datagrams()
	var err error
	if s.Listen.Unix != "" {
		err = l.openUnix()
	} else {
		err = l.openIP(slots, ours || option(s.ListenOptions, "SO_REUSEPORT", 0) == 1)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// option returns the value of the last option of that name.
func option(options []config.SockOpt, name string, otherwise int) int {
	for _, o := range options {
		if strings.EqualFold(o.Name, name) {
			otherwise = o.Value
		}
	}
	return otherwise
}

// openIP binds the first socket before it has SO_REUSEPORT, unless it may
// join others: another process's use of the port, even by a second daemon of
// the same user, is an error instead of a silent share of the connections.
func (l *listener) openIP(slots int, join bool) error {
	sockets := slots
	if !l.grouped() {
		sockets = 1
	}
	for i := range sockets {
		fd, err := l.bindIP(join || i > 0)
		if err != nil {
			return err
		}
		l.fds = append(l.fds, fd)
		if l.grouped() {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return os.NewSyscallError("setsockopt SO_REUSEPORT", err)
			}
		}
		if err := l.listen(fd); err != nil {
			return err
		}
	}
	return nil
}

func (l *listener) bindIP(reusePort bool) (int, error) {
	address, family, err := socketAddress(l.endpoint)
	if err != nil {
		return -1, err
	}
	kind, protocol := unix.SOCK_STREAM, unix.IPPROTO_TCP
	if l.datagrams() {
		kind, protocol = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = l.prepareIP(fd, family, reusePort); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, address))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// probe says whether a service's address can be bound now.
func probe(s *config.Service, ours bool) error {
	if path := s.Listen.Unix; path != "" {
		return probeUnixPlace(path)
	}
	l := &listener{endpoint: s.Listen, options: s.ListenOptions}
	if l.datagrams() && ours {
		return nil // it would take datagrams of a socket that is in use
	}
	fd, err := l.bindIP(ours || option(s.ListenOptions, "SO_REUSEPORT", 0) == 1)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// probeUnixPlace says whether the file of a Unix socket could be made.
func probeUnixPlace(path string) error {
	if strings.HasPrefix(path, "@") {
		return nil
	}
	return os.NewSyscallError("bind", unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK))
}

type intOption struct {
	name       string
	level, opt int
}

// prepareIP sets what must be set before bind, and what accepted sockets
// inherit. With SO_REUSEADDR another process could take over a UDP port
// (socket(7)).
func (l *listener) prepareIP(fd, family int, reusePort bool) error {
	var settings []intOption
	if l.datagrams() {
		enlargeQueue(fd)
	} else {
		settings = []intOption{
			{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR},
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY},
		}
	}
	if reusePort {
		settings = append(settings, intOption{"SO_REUSEPORT", unix.SOL_SOCKET, unix.SO_REUSEPORT})
	}
	if family == unix.AF_INET6 {
		settings = append(settings, intOption{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY})
	}
	for _, s := range settings {
		if err := unix.SetsockoptInt(fd, s.level, s.opt, 1); err != nil {
			return os.NewSyscallError("setsockopt "+s.name, err)
		}
	}
	return applyOptions(fd, l.options)
}

// datagramQueue is the size in bytes that the queue of a UDP socket is asked to
// have: some milliseconds of datagrams wait in it while a worker is busy or
// being replaced.
const datagramQueue = 4 << 20

// enlargeQueue gives a UDP socket its queue, or as much of it as
// net.core.rmem_max allows a process without CAP_NET_ADMIN (socket(7)).
func enlargeQueue(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, datagramQueue) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, datagramQueue)
	}
}

// applyOptions sets the options of a service, but for SO_REUSEPORT, which is
// the listener's business.
func applyOptions(fd int, options []config.SockOpt) error {
	for _, o := range options {
		if strings.EqualFold(o.Name, "SO_REUSEPORT") {
			continue
		}
		if err := sockopt.Apply(fd, o.Name, o.Value, o.Text); err != nil {
			return fmt.Errorf("option %s: %w", o.Name, err)
		}
	}
	return nil
}

// listen has a socket accept; one for datagrams does from its bind on.
func (l *listener) listen(fd int) error {
	if l.datagrams() {
		return nil
	}
	backlog := l.backlog
	if backlog == 0 {
		backlog = kernelBacklog
	}
	return os.NewSyscallError("listen", unix.Listen(fd, backlog))
}

func socketAddress(e config.Endpoint) (unix.Sockaddr, int, error) {
	addr := e.Addr.Unmap()
	switch {
	case addr.Is4():
		return &unix.SockaddrInet4{Port: int(e.Port), Addr: addr.As4()}, unix.AF_INET, nil
	case addr.Is6():
		zone, err := zoneIndex(addr.Zone())
		return &unix.SockaddrInet6{Port: int(e.Port), Addr: addr.As16(), ZoneId: zone}, unix.AF_INET6, err
	}
	return nil, 0, errors.New("the service has no address to listen on")
}

func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	iface, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", zone, err)
	}
	return uint32(iface.Index), nil
}

// openUnix opens the one socket of a Unix address. Its file has the mode the
// umask leaves, so that by default only the daemon's own user can connect.
func (l *listener) openUnix() error {
	fd, file, err := bindUnix(l.endpoint.Unix, 0o777)
	if err != nil {
		return err
	}
	l.fds, l.file = []int{fd}, file
	if err := applyOptions(fd, l.options); err != nil {
		return err
	}
	return l.listen(fd)
}

// fixed says which options of a new configuration cannot be changed on the living
// sockets of a listener that is kept.
func (l *listener) fixed(s *config.Service) []string {
	var warnings []string
	for _, o := range l.options {
		if !hasOption(s.ListenOptions, o.Name) {
			warnings = append(warnings, fmt.Sprintf("-ol %s is gone, but stays in force until the daemon is restarted", o.Name))
		}
	}
	for _, o := range s.ListenOptions {
		if was, now := option(l.options, o.Name, -1), o.Value; strings.EqualFold(o.Name, "SO_REUSEPORT") && was != now {
			warnings = append(warnings, "-ol SO_REUSEPORT takes effect when the daemon is restarted")
		}
	}
	return warnings
}

// update brings a listener that is kept to the backlog and options of a new
// configuration, and returns what cannot be changed, or fails, as warnings.
func (l *listener) update(s *config.Service) []string {
	warnings := l.fixed(s)
	if l.backlog != s.Backlog {
		l.backlog = s.Backlog
		for _, fd := range l.fds {
			if err := l.listen(fd); err != nil {
				warnings = append(warnings, fmt.Sprintf("backlog: %v", err))
				break
			}
		}
	}
	l.options = s.ListenOptions
	for _, fd := range l.fds {
		if err := applyOptions(fd, l.options); err != nil {
			return append(warnings, fmt.Sprintf("-ol: %v", err))
		}
	}
	return warnings
}

func hasOption(options []config.SockOpt, name string) bool {
	for _, o := range options {
		if strings.EqualFold(o.Name, name) {
			return true
		}
	}
	return false
}

// listenReason puts the failure of a listen into words the operator can act
// on. ours says that the daemon itself has a socket of an overlapping address.
func listenReason(e config.Endpoint, err error, ours bool) string {
	address := e.String()
	switch {
	case errors.Is(err, unix.EADDRINUSE) && ours:
		return fmt.Sprintf("%s overlaps with a socket this daemon has open and cannot share (-ol SO_REUSEPORT=0); restart it to make the change", address)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Sprintf("%s is already in use by another process (%v)", address, unix.EADDRINUSE)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Sprintf("%s is not an address of this host (%v); -ol IP_FREEBIND allows it to appear later", address, unix.EADDRNOTAVAIL)
	case errors.Is(err, fs.ErrPermission) && e.Unix == "" && e.Port < 1024:
		return fmt.Sprintf("%s: no permission for ports below 1024: start as root (setuid drops it for the workers), "+
			"set AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or use a higher port", address)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Sprintf("%s: this host has no IPv6 (%v)", address, unix.EAFNOSUPPORT)
	}
	return fmt.Sprintf("cannot listen on %s: %v", address, err)
}
