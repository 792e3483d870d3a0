package worker

import (
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"3proxyd/accesslog"
	"3proxyd/acl"
	"3proxyd/config"
	"3proxyd/internal/sockopt"
	"3proxyd/internal/sys"
	"3proxyd/ipc"
	"3proxyd/proto/http1"
	"3proxyd/relay"
	"3proxyd/resolver"
)

// service is one service of a generation, compiled for use. It is immutable;
// sessions keep the one they were accepted by.
type service struct {
	*config.Service
	column  int
	maxConn uint64
	policy  *acl.Policy
	// general is the service that this one stands for, of sessions whose user was
	// let in by a password that is not the present one; nil in any other.
	general *service
	// timed says that a rule of the list looks at the time.
	timed bool
	cell  *ipc.Cell
	// protocol is what clients speak, after a PROXY protocol header.
	protocol protocol

	up, down         relay.Meter
	upSplice         relay.Policy
	downSplice       relay.Policy
	target           relay.Target // tcppm with a fixed address
	source4, source6 netip.Addr
	// family is that of the addresses wanted of a name; with both, prefer6
	// has those of IPv6 tried first.
	family          resolver.Family
	prefer6         bool
	prepareServer   func(fd int32) unix.Errno
	prepareAccepted func(fd int32) unix.Errno // of listening sockets for servers
	// Those of the sockets of a UDP association.
	prepareClientPackets, prepareServerPackets func(fd int32) unix.Errno
	noDelay                                    bool
	log                                        *logFile
	format                                     *accesslog.Format
	connectMS                                  int64
	readSize                                   int
	port                                       uint16
	internal                                   netip.Addr
	clientOptions                              []config.SockOpt
	idleMS, lingerMS                           int64
	// answerMS bounds the silence of a server whose client has finished.
	answerMS           int64
	exchangeMS, headMS int64
	// packetIdleMS is how long a session of datagrams lasts without one.
	packetIdleMS int64
	// via is the proxy's pseudonym in Via fields (RFC 9110 section 7.6.3).
	via            string
	requestOptions http1.RequestOptions
	// poolKey is the service's part of the key of a pooled server connection:
	// one opened under other settings is not used.
	poolKey string
}

func newService(w *Worker, g *generation, cfg *config.Config, sc *config.Service, slot ipc.ServiceSlot, lists []*acl.List, users *acl.Users) (*service, error) {
	v := &service{
		Service:       sc,
		column:        slot.Column,
		maxConn:       uint64(slot.MaxConn),
		cell:          w.shm.Cell(w.row, slot.Column),
		source4:       sc.External4,
		source6:       sc.External6,
		connectMS:     seconds(sc.Timeouts.Connect),
		readSize:      sc.BufferSize,
		port:          sc.Listen.Port,
		internal:      sc.Listen.Addr,
		clientOptions: sc.ClientOptions,
		idleMS:        seconds(sc.Timeouts.ConnectionLong),
		lingerMS:      seconds(sc.Timeouts.Linger),
		exchangeMS:    seconds(sc.Timeouts.ConnectionShort),
		answerMS:      seconds(sc.Timeouts.StringLong),
		headMS:        seconds(sc.Timeouts.StringLong),
		packetIdleMS:  seconds(packetIdle(sc)),
		via:           viaName(sc.ID),
		protocol:      protocolOf(sc.Kind),
		poolKey:       sc.ID + "#" + strconv.FormatUint(g.id, 10),
	}
	v.family, v.prefer6 = familyOf(sc)
	var list *acl.List
	if sc.ACL >= 0 {
		list = lists[sc.ACL]
		v.timed = usesTime(cfg.ACLs[sc.ACL])
	}
	v.requestOptions = clientInfo(sc.Anonymity, v.via)
	v.policy = acl.NewPolicy(sc.Auth, list, users)
	v.up = relay.Meter{Bytes: &v.cell[ipc.BytesOut], Spliced: &v.cell[ipc.BytesSpliced]}
	v.down = relay.Meter{Bytes: &v.cell[ipc.BytesIn], Spliced: &v.cell[ipc.BytesSpliced]}
	v.upSplice = splicePolicy(sc.Splice, sc.Grace, 2)
	v.downSplice = splicePolicy(sc.Splice, sc.Grace, 1)
	if t := sc.Target; t != nil {
		v.target = relay.Target{Unix: t.Unix}
		if t.Addr.IsValid() {
			v.target.Addr = netip.AddrPortFrom(t.Addr, t.Port)
		}
	}
	v.prepareServer = serverPreparer(sc.ServerOptions)
	if sc.Timeouts.LingerGiven {
		v.answerMS = v.lingerMS
	}
	v.noDelay = noDelay(sc.ServerOptions)
	v.prepareAccepted = acceptedPreparer(sc.ServerOptions)
	v.prepareClientPackets = packetPreparer(sc.ClientOptions)
	v.prepareServerPackets = packetPreparer(sc.ServerOptions)
	return v, v.openLog(w, g)
}

// packetIdle is the idle timeout of a session of datagrams, in seconds: those
// 3proxy uses for udppm.
func packetIdle(sc *config.Service) int {
	if sc.SingleDatagram {
		return sc.Timeouts.ByteLong
	}
	return sc.Timeouts.StringLong
}

// seconds turns a timeout of the configuration into milliseconds; 0 means none
// and becomes a day, so that every wait is bounded.
func seconds(s int) int64 {
	if s <= 0 {
		return 24 * 3600 * 1000
	}
	return int64(s) * 1000
}

func usesTime(rules []config.Rule) bool {
	for i := range rules {
		if rules[i].Weekdays != 0 || len(rules[i].Times) > 0 {
			return true
		}
	}
	return false
}

// splicePolicy is the relay's policy for one direction: bit 1 of -s is
// downloads, 2 uploads; 4 makes it depend on the traffic. -g holds for both.
func splicePolicy(s config.Splice, g config.Grace, direction int) relay.Policy {
	grace := relay.Grace{Traffic: int32(g.Traffic), Reads: int32(g.Reads), DelayMS: g.DelayMS}
	if s.Mode&3&direction == 0 {
		return relay.Policy{Grace: grace}
	}
	return relay.Policy{
		Grace:  grace,
		Splice: true,
		Always: s.Mode&4 == 0,
		Min:    int32(s.Min),
		Small:  int32(s.Small),
		Streak: uint8(min(s.Streak, 255)),
	}
}

// serverPreparer sets the -os options, if there are any. TCP_NODELAY, the
// default, can be among them.
func serverPreparer(opts []config.SockOpt) func(fd int32) unix.Errno {
	if len(opts) == 0 {
		return nil
	}
	return func(fd int32) unix.Errno { return applyOptions(fd, opts) }
}

// acceptedPreparer sets the -os options, and TCP_NODELAY by default, on a
// listening socket: what it accepts inherits them.
func acceptedPreparer(opts []config.SockOpt) func(fd int32) unix.Errno {
	nagle := !noDelay(opts)
	return func(fd int32) unix.Errno {
		if !nagle {
			sys.SetInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}
		return applyOptions(fd, opts)
	}
}

// packetPreparer sets the options of -oc or -os that are not of TCP on a socket
// for datagrams, which is of one address family.
func packetPreparer(opts []config.SockOpt) func(fd int32) unix.Errno {
	var packets []config.SockOpt
	for _, o := range opts {
		if !strings.HasPrefix(o.Name, "TCP_") && o.Name != "SO_KEEPALIVE" {
			packets = append(packets, o)
		}
	}
	return func(fd int32) unix.Errno {
		// Refused by an IPv4 socket.
		sys.SetInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		return applyOptions(fd, packets)
	}
}

// noDelay reports whether server connections get TCP_NODELAY: unless an option
// says otherwise.
func noDelay(opts []config.SockOpt) bool {
	for i := range opts {
		if strings.EqualFold(opts[i].Name, "TCP_NODELAY") {
			return false
		}
	}
	return true
}

// applyOptions sets the options of -oc or -os. The configuration check has
// seen them; what the kernel refuses all the same fails the connection.
func applyOptions(fd int32, opts []config.SockOpt) unix.Errno {
	for i := range opts {
		if err := sockopt.Apply(int(fd), opts[i].Name, opts[i].Value, opts[i].Text); err != nil {
			return unix.EINVAL
		}
	}
	return 0
}

// headRead is the size in bytes of one read from a connection whose protocol is
// being read: what follows a head in the same read must fit a relay.Buffer.
func (v *service) headRead() int {
	if v.readSize == 0 {
		return relay.DefaultBufferSize
	}
	return min(v.readSize, relay.MaxBuffer)
}

// familyOf returns which addresses of a name a service wants, and whether it
// tries those of IPv6 first.
func familyOf(sc *config.Service) (f resolver.Family, prefer6 bool) {
	switch {
	case sc.Only4():
		return resolver.V4, false
	case sc.Only6():
		return resolver.V6, true
	}
	return resolver.Both, sc.Families == config.FamiliesPrefer6
}

// source returns the source address for a target, and false when the service
// does not connect to addresses of its family.
func (v *service) source(target netip.Addr) (netip.Addr, bool) {
	if target.Is4() {
		return v.source4, v.family != resolver.V6
	}
	return v.source6, v.family != resolver.V4
}

// forUser returns the service for sessions of a user who was let in by the password
// of a digest.
func (v *service) forUser(user string, digest []byte) *service {
	own := *v
	own.general, own.policy = v, acl.VerifiedUser(user, digest)
	return &own
}
