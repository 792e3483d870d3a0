package worker

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

// packetSocket is the socket of a listener that takes datagrams. It stays open
// until the last session that answers through it has ended, whoever takes what
// arrives by then.
type packetSocket struct {
	relay.PacketConn
	s *listener // nil when it has been given up
	// holders are the listener and the sessions.
	holders int
}

// openPackets starts to take datagrams from fd, which it owns.
func (s *listener) openPackets(fd int32) unix.Errno {
	p := &packetSocket{s: s, holders: 1}
	errno := s.w.loop.OpenPacket(&p.PacketConn, fd, relay.PacketOptions{Shared: true, Local: isWildcard(int(fd))}, p)
	if errno == 0 {
		s.packets = p
	}
	return errno
}

// isWildcard reports whether datagrams for several addresses come to a socket.
func isWildcard(fd int) bool {
	sa, err := unix.Getsockname(fd)
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return a.Addr == [4]byte{}
	case *unix.SockaddrInet6:
		return a.Addr == [16]byte{}
	}
	return err != nil
}

// giveUp ends the taking of datagrams, after those in the queue when another
// process does not take them. The sessions of a service that is gone end: their
// clients have no other way to them, and the port must become free.
func (p *packetSocket) giveUp(how parting) {
	s := p.s
	if how == shutDown && !s.kept {
		turnAway(int(p.FD()))
	}
	if how != toOthers && !s.kept {
		p.Drain(maxQueue)
	}
	p.Pause()
	p.s = nil
	if s.w.services[s.id] == nil {
		p.endSessions(s.w)
	}
	p.drop()
}

// turnAway has no datagram come to a socket any more: they go to the socket of a
// wildcard address that is in force now, if there is one, as connections would. A
// connected socket only gets what its peer sends (udp(7)); nobody sends from the
// discard port of the own address.
func turnAway(fd int) {
	const discard = 9 // RFC 863
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		if a.Port = discard; a.Addr == [4]byte{} {
			a.Addr = [4]byte{127, 0, 0, 1}
		}
	case *unix.SockaddrInet6:
		if a.Port = discard; a.Addr == [16]byte{} {
			a.Addr = [16]byte{15: 1}
		}
	}
	// Without it what comes until the last holder has closed the socket is lost.
	_ = unix.Connect(fd, sa)
}

// endSessions ends the sessions that answer through the socket.
func (p *packetSocket) endSessions(w *Worker) {
	for s := w.sessions.head; s != nil; {
		next := s.next
		if s.udp != nil && s.udp.socket == p {
			s.finish()
		}
		s = next
	}
}

func (p *packetSocket) hold() { p.holders++ }

func (p *packetSocket) drop() {
	if p.holders--; p.holders == 0 {
		p.Close()
	}
}

// OnPackets gives the datagrams to the service.
func (p *packetSocket) OnPackets(_ *relay.PacketConn, packets []relay.Packet) {
	if p.s == nil {
		return
	}
	v := p.s.svc
	v.cell.Add(ipc.DatagramsOut, uint64(len(packets)))
	for i := range packets {
		switch v.Kind {
		case config.UDPPM:
			p.s.w.mapPacket(v, p, &packets[i])
		case config.DNSPR:
			p.s.w.takeDNSPacket(v, p, &packets[i])
		}
	}
}

// OnPacketError says that another process has shut the socket down, which no
// other holder of it does. Refused answers are counted by the loop.
func (p *packetSocket) OnPacketError(_ *relay.PacketConn, errno unix.Errno) {
	if errno == unix.ESHUTDOWN && p.s != nil {
		slog.Error("a socket for datagrams has been shut down", "service", p.s.id)
	}
}
