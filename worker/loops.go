package worker

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/internal/sys"
)

// ownAddr is an address that a service listens on.
type ownAddr struct {
	addr netip.Addr
	// dual says that the socket of :: takes IPv4 connections as well.
	dual bool
	udp  bool
	id   string // of the service
}

// ownAddrs are the addresses the daemon listens on, by port. It is made for each
// generation, so that a request costs the look-up of its port.
type ownAddrs map[uint16][]ownAddr

// findOwnAddrs collects the addresses of the services in force. Those of
// sockets of the service manager are asked from the sockets, which every worker
// has.
func (w *Worker) findOwnAddrs() ownAddrs {
	own := ownAddrs{}
	for _, v := range w.services {
		if e := v.Listen; e.Systemd == "" && e.Unix == "" {
			own[e.Port] = append(own[e.Port], ownAddr{addr: e.Addr.Unmap(), udp: e.Network == config.UDP, id: v.ID})
		}
	}
	seen := map[string]bool{}
	for _, l := range w.listeners {
		if l.svc.Listen.Systemd == "" {
			continue
		}
		var sa sys.Sockaddr
		if sys.Getsockname(l.FD(), &sa) != 0 || !sa.AddrPort().IsValid() {
			continue
		}
		at := sa.AddrPort()
		if key := l.id + " " + at.String(); !seen[key] {
			seen[key] = true
			own[at.Port()] = append(own[at.Port()], ownAddr{
				addr: at.Addr(), dual: isDual(l.FD()), udp: l.svc.Listen.Network == config.UDP, id: l.id,
			})
		}
	}
	return own
}

func isDual(fd int32) bool {
	only, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
	return err == nil && only == 0
}

// isOwn reports whether a connection of the session to an address and port of
// its target, or of udppm the datagrams, would come back to the daemon, so that
// it would go round until no descriptor is left.
func (s *session) isOwn(addr netip.Addr) bool {
	return s.w.listensOn(s.svc, netip.AddrPortFrom(addr, s.port), s.svc.Listen.Network == config.UDP)
}

// listensOn reports whether the daemon listens on an address and port, with UDP
// or with TCP, that a client of v wants to reach. The fixed address of a port
// mapping may well be that of another service.
func (w *Worker) listensOn(v *service, to netip.AddrPort, udp bool) bool {
	for _, o := range w.own[to.Port()] {
		if o.udp != udp {
			continue
		}
		if t := v.Target; t != nil && t.Host == "" && o.id != v.ID {
			continue
		}
		if o.takes(to.Addr(), &w.local) {
			return true
		}
	}
	return false
}

// takes reports whether the socket takes connections to an address.
func (o *ownAddr) takes(addr netip.Addr, local *localAddrs) bool {
	if !o.addr.IsUnspecified() {
		return o.addr == addr
	}
	return (o.addr.Is4() == addr.Is4() || o.dual) && local.has(addr)
}
