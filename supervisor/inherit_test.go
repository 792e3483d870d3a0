package supervisor

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/systemd"
)

// listening opens a socket like one of a socket unit: it may block.
func listening(t *testing.T, name, address string, reusePort bool) systemd.Socket {
	t.Helper()
	at := netip.MustParseAddrPort(address)
	s := &config.Service{Listen: config.Endpoint{Addr: at.Addr(), Port: at.Port()}}
	l := &listener{endpoint: s.Listen}
	fd, err := l.bindIP(reusePort)
	if err == nil {
		err = l.listen(fd)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	socket, err := systemd.Describe(fd, name)
	if err != nil {
		t.Fatal(err)
	}
	return socket
}

func serviceAt(e config.Endpoint) config.Service {
	return config.Service{ID: "proxy@" + e.String(), Kind: config.Proxy, Listen: e}
}

func TestBoundTo(t *testing.T) {
	tcp := func(address string, v6only bool) systemd.Socket {
		return systemd.Socket{Network: "tcp", Addr: netip.MustParseAddrPort(address), V6Only: v6only}
	}
	at := func(address string) config.Endpoint {
		a := netip.MustParseAddrPort(address)
		return config.Endpoint{Addr: a.Addr(), Port: a.Port()}
	}
	for _, c := range []struct {
		socket systemd.Socket
		e      config.Endpoint
		want   bool
	}{
		{tcp("127.0.0.1:1", false), at("127.0.0.1:1"), true},
		{tcp("127.0.0.1:1", false), at("127.0.0.1:2"), false},
		{tcp("127.0.0.1:1", false), at("0.0.0.0:1"), false},
		{tcp("[::]:1", false), at("0.0.0.0:1"), true},
		{tcp("[::]:1", false), at("[::]:1"), true},
		{tcp("[::]:1", true), at("0.0.0.0:1"), false},
		{tcp("[::]:1", true), at("[::]:1"), true},
		{tcp("[::ffff:127.0.0.1]:1", false), at("127.0.0.1:1"), true},
		{tcp("[::1]:1", false), at("127.0.0.1:1"), false},
		{systemd.Socket{Network: "udp", Addr: netip.MustParseAddrPort("127.0.0.1:1")}, at("127.0.0.1:1"), false},
		{systemd.Socket{Network: "unix", Path: "/run/x"}, config.Endpoint{Unix: "/run/./x"}, true},
		{systemd.Socket{Network: "unix", Path: "@x"}, config.Endpoint{Unix: "@x"}, true},
		{systemd.Socket{Network: "unix", Path: "/run/x"}, at("127.0.0.1:1"), false},
	} {
		if got := boundTo(c.socket, c.e); got != c.want {
			t.Errorf("%v, %v: %v", c.socket, c.e, got)
		}
	}
}

func TestInheritedListener(t *testing.T) {
	ports := freePorts(t, 4)
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	endpoint := func(i int) config.Endpoint {
		return config.Endpoint{Addr: netip.MustParseAddr("127.0.0.1"), Port: uint16(ports[i])}
	}
	group := []systemd.Socket{listening(t, "web", address(0), true), listening(t, "web", address(0), true)}
	single := listening(t, "web", address(1), false)
	for _, c := range []struct {
		name    string
		sockets []systemd.Socket
		e       config.Endpoint
		others  []config.Endpoint
		slots   int
		fds     int
		shared  bool
	}{
		{"one for each slot", group, endpoint(0), nil, 2, 2, false},
		{"more than slots", group, endpoint(0), nil, 1, 2, true},
		{"fewer than slots", group, endpoint(0), nil, 3, 2, true},
		{"one", []systemd.Socket{single}, endpoint(1), nil, 2, 1, true},
		{"one for one slot", []systemd.Socket{single}, endpoint(1), nil, 1, 1, true},
		{"other address", []systemd.Socket{single}, endpoint(2), nil, 1, 0, false},
		{"by name", []systemd.Socket{single}, config.Endpoint{Systemd: "web"}, nil, 2, 1, true},
		{"two addresses by name", append([]systemd.Socket{single}, group...), config.Endpoint{Systemd: "web"}, nil, 3, 3, true},
		{"by name but for another's", append([]systemd.Socket{single}, group...), config.Endpoint{Systemd: "web"}, []config.Endpoint{endpoint(1)}, 2, 2, false},
	} {
		h := &inheritance{}
		h.giveBack(c.sockets)
		s := serviceAt(c.e)
		others := []config.Service{s}
		for _, e := range c.others {
			others = append(others, serviceAt(e))
		}
		l, err := h.listener(&s, others, c.slots)
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case l == nil && c.fds > 0, l != nil && (len(l.fds) != c.fds || l.shared != c.shared || !l.kept):
			t.Errorf("%s: %+v", c.name, l)
		case l != nil && s.Listen.Systemd != "" && s.Listen.Port == 0:
			t.Errorf("%s: no port", c.name)
		}
		if l == nil {
			continue
		}
		for _, fd := range l.fds {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err != nil || flags&unix.O_NONBLOCK == 0 {
				t.Errorf("%s: descriptor %d may block", c.name, fd)
			}
		}
	}
}

func TestInheritedByNameErrors(t *testing.T) {
	udp := systemd.Socket{Name: "dns", Network: "udp", Addr: netip.MustParseAddrPort("127.0.0.1:53")}
	conn := systemd.Socket{Name: "conn", Network: "tcp", Addr: netip.MustParseAddrPort("127.0.0.1:9")}
	odd := systemd.Socket{Name: "odd"}
	for name, want := range map[string]string{
		"dns":  `the inherited socket "dns" (udp 127.0.0.1:53) is for datagrams, and the service needs one for connections: use ListenStream= in its unit`,
		"conn": `the inherited socket "conn" (tcp 127.0.0.1:9) does not listen: set Accept=no in its unit`,
		"odd":  `cannot be served`,
		"none": `no stream socket of the name "none" was inherited: the daemon must be started by a socket unit with FileDescriptorName=none and ListenStream=`,
	} {
		h := &inheritance{}
		h.giveBack([]systemd.Socket{udp, conn, odd})
		s := serviceAt(config.Endpoint{Systemd: name})
		_, err := h.listener(&s, nil, 2)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A dnspr service needs a socket of either kind, and is told which is missing.
func TestInheritedByNameDNS(t *testing.T) {
	tcp := systemd.Socket{Name: "tcp", Network: "tcp", Listening: true, Addr: netip.MustParseAddrPort("127.0.0.1:53")}
	udp := systemd.Socket{Name: "udp", Network: "udp", Addr: netip.MustParseAddrPort("127.0.0.1:53")}
	for e, want := range map[config.Endpoint]string{
		{Systemd: "tcp", Network: config.UDP}: `the inherited socket "tcp" (tcp 127.0.0.1:53) is not for UDP datagrams, which the service takes: use ListenDatagram= in its unit`,
		{Systemd: "udp"}:                      `the inherited socket "udp" (udp 127.0.0.1:53) is for datagrams, and the service needs one for connections`,
		{Systemd: "no", Network: config.UDP}:  `no UDP socket of the name "no" was inherited: the daemon must be started by a socket unit with FileDescriptorName=no and ListenDatagram=`,
	} {
		h := &inheritance{}
		h.giveBack([]systemd.Socket{tcp, udp})
		s := serviceAt(e)
		if _, err := h.listener(&s, nil, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// TestBorrowed gives up the sockets of an earlier supervisor: they go on
// listening, and the missing one of the group is opened.
func TestBorrowed(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	at := netip.MustParseAddrPort(address)
	e := config.Endpoint{Addr: at.Addr(), Port: at.Port()}
	first := listening(t, storeName(e.Key(), false, 1), address, true)
	second := listening(t, storeName(e.Key(), false, 0), address, true)
	duplicate := func(s systemd.Socket) systemd.Socket {
		fd, err := unix.FcntlInt(uintptr(s.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.FD = fd
		return s
	}
	h := &inheritance{}
	a, b := duplicate(first), duplicate(second)
	h.giveBack([]systemd.Socket{a, b})
	s := serviceAt(e)
	l, err := h.listener(&s, nil, 3)
	if err != nil || l.shared || len(l.fds) != 3 || l.fds[0] != b.FD || l.fds[1] != a.FD || l.kept || !l.borrowed {
		t.Fatalf("%+v, %v", l, err)
	}
	l.close()
	for _, socket := range []systemd.Socket{first, second} {
		if now, err := systemd.Describe(socket.FD, ""); err != nil || !now.Listening {
			t.Errorf("%v does not listen any more: %v", socket, err)
		}
	}
}

func TestStoreNames(t *testing.T) {
	long := "unix:/" + strings.Repeat("é", 53)
	for _, c := range []struct {
		key    string
		shared bool
		index  int
		want   string
	}{
		{"tcp:127.0.0.1:3128", false, 1, "3proxyd/tcp_127.0.0.1_3128/slot-1"},
		{"tcp:[::1%eth0]:3128", false, 0, "3proxyd/tcp_[__1%25eth0]_3128/slot-0"},
		{"unix:/run/a_b.sock", true, 0, "3proxyd/unix_/run/a%5Fb.sock/shared-0"},
		{long, true, 0, ""},
	} {
		got := storeName(c.key, c.shared, c.index)
		if c.want != "" && got != c.want {
			t.Errorf("%s: %s", c.key, got)
		}
		if err := systemd.CheckName(got); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if n := slotOf(systemd.Socket{Name: got}); n != c.index {
			t.Errorf("%s: slot %d", got, n)
		}
	}
	if a, b := storeName("unix:/a:b", true, 0), storeName("unix:/a_b", true, 0); a == b {
		t.Errorf("one name for two addresses: %s", a)
	}
	if n := slotOf(systemd.Socket{Name: "web-7"}); n != 0 {
		t.Errorf("slot %d in a unit's name", n)
	}
}

func TestPresent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if !present(path) || !present("@abstract") || !present("") {
		t.Error("sockets are not found")
	}
	_ = l.Close()
	if present(path) {
		t.Error("a file that has been removed is found")
	}
}

// TestInheritedDatagramSockets matches sockets for datagrams and for streams of
// the same address and name to the services that take them.
func TestInheritedDatagramSockets(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:53")
	udp := systemd.Socket{FD: -1, Name: "dns", Network: "udp", Addr: at}
	tcp := systemd.Socket{FD: -1, Name: "dns", Network: "tcp", Addr: at, Listening: true}
	for _, e := range []config.Endpoint{{Addr: at.Addr(), Port: 53}, {Systemd: "dns"}} {
		for _, network := range []config.Network{config.UDP, config.Stream} {
			h := &inheritance{}
			h.giveBack([]systemd.Socket{udp, tcp})
			e.Network = network
			found, err := h.forService(e, nil)
			if err != nil || len(found) != 1 || networkOf(found[0]) != network {
				t.Errorf("%q %s: %v, %v", network, e, found, err)
			}
		}
	}
	h := &inheritance{}
	h.giveBack(slices.Repeat([]systemd.Socket{udp}, maxWorkers+1))
	s := serviceAt(config.Endpoint{Network: config.UDP, Systemd: "dns"})
	if _, err := h.listener(&s, nil, 2); err == nil || !strings.Contains(err.Error(), "sockets for datagrams were inherited, 128 can be served") {
		t.Errorf("more sockets than slots: %v", err)
	}
	h = &inheritance{}
	h.giveBack([]systemd.Socket{tcp})
	if _, err := h.listener(&s, nil, 2); err == nil || !strings.Contains(err.Error(), "use ListenDatagram=") {
		t.Errorf("a stream for a service of datagrams: %v", err)
	}
}

func TestOverlapping(t *testing.T) {
	tcp := func(address string, v6only bool) systemd.Socket {
		return systemd.Socket{Network: "tcp", Listening: true, Addr: netip.MustParseAddrPort(address), V6Only: v6only}
	}
	at := func(address string) config.Endpoint {
		a := netip.MustParseAddrPort(address)
		return config.Endpoint{Addr: a.Addr(), Port: a.Port()}
	}
	udp := at("0.0.0.0:1")
	udp.Network = config.UDP
	for _, c := range []struct {
		socket systemd.Socket
		e      config.Endpoint
		want   bool
	}{
		{tcp("127.0.0.1:1", false), at("0.0.0.0:1"), true},
		{tcp("0.0.0.0:1", false), at("127.0.0.1:1"), true},
		{tcp("0.0.0.0:1", false), at("127.0.0.1:2"), false},
		{tcp("127.0.0.2:1", false), at("127.0.0.1:1"), false},
		{tcp("[::]:1", false), at("127.0.0.1:1"), true},
		{tcp("[::]:1", true), at("127.0.0.1:1"), false},
		{tcp("[::]:1", true), at("[::1]:1"), true},
		{tcp("127.0.0.1:1", false), udp, false},
		{tcp("127.0.0.1:1", false), config.Endpoint{Unix: "/run/x"}, false},
		{systemd.Socket{Network: "udp", Addr: netip.MustParseAddrPort("127.0.0.1:1")}, udp, true},
		{systemd.Socket{Network: "unix", Listening: true, Path: "/run/x"}, at("0.0.0.0:1"), false},
	} {
		h := &inheritance{sockets: []systemd.Socket{c.socket}}
		if _, got := h.overlapping(c.e); got != c.want {
			t.Errorf("%v, %v: %v", c.socket, c.e, got)
		}
	}
}

func TestListenReasonInherited(t *testing.T) {
	wildcard := config.Endpoint{Addr: netip.IPv4Unspecified(), Port: 80}
	for name, want := range map[string]string{
		"web": `0.0.0.0:80 overlaps with tcp 127.0.0.1:80, the inherited socket "web": change ListenStream=`,
		config.StoredPrefix + "127.0.0.1_80/shared-0": "0.0.0.0:80 overlaps with tcp 127.0.0.1:80, the daemon's address before",
	} {
		d := &daemon{}
		d.inherited.giveBack([]systemd.Socket{{Name: name, Network: "tcp", Listening: true, Addr: netip.MustParseAddrPort("127.0.0.1:80")}})
		if got := d.listenReason(wildcard, unix.EADDRINUSE, false); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
