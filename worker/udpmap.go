package worker

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"3proxyd/config"
	"3proxyd/ipc"
	"3proxyd/relay"
)

// udpMap is the part of a udppm session that other sessions do not have: the
// connected socket to the server, and the way back to the client. It is pooled.
type udpMap struct {
	relay.PacketConn
	s      *session
	socket *packetSocket
	path   relay.Path // of the client
	server netip.AddrPort
	// last is when a datagram last passed, in the loop's time; in and out count
	// them, from the server and from the client.
	last    int64
	in, out uint64
	// early are datagrams of the client that wait for the server's address.
	early      [][]byte
	earlyBytes int
	listed     bool // in Worker.udpMaps
	free       *udpMap
}

// udpMapKey tells the sessions of udppm services apart: a client has one for
// each address of the service that it sends to.
type udpMapKey struct {
	column int
	path   relay.Path
}

const (
	// maxEarly and maxEarlyBytes bound what waits for a server's address.
	maxEarly      = 16
	maxEarlyBytes = 64 << 10
	// udpLeaveMS is how long a worker that drains waits for the next answer of a
	// server, in milliseconds: what the client sends goes to another worker.
	udpLeaveMS = 2000
)

// mapPacket takes a datagram of a client of a udppm service. With -s each has a
// session of its own, as in 3proxy.
func (w *Worker) mapPacket(v *service, p *packetSocket, d *relay.Packet) {
	if d.Truncated {
		v.cell.Add(ipc.DatagramsDropped, 1)
		return
	}
	key := udpMapKey{v.column, d.Path}
	if !v.SingleDatagram {
		if u := w.udpMaps[key]; u != nil {
			u.answerThrough(p)
			u.fromClient(d.Data)
			return
		}
	}
	if !w.admitPacket(v) {
		v.cell.Add(ipc.DatagramsDropped, 1)
		return
	}
	s := w.newUDPMap(v, p, d)
	if !v.SingleDatagram {
		w.udpMaps[key] = s.udp
		s.udp.listed = true
	}
	s.udp.fromClient(d.Data)
	t := v.Target
	s.op, s.port, s.host, s.addr = config.OpUDPAssoc, t.Port, t.Host, t.Addr
	s.open(nil, udpPortMap{})
}

// admitPacket takes a place under maxconn for a new session, if there is one
// and a descriptor.
func (w *Worker) admitPacket(v *service) bool {
	if w.loop.Descriptors()+1 > w.maxConnFDs() && w.pool.evict(1) == 0 {
		w.loopCell.Add(ipc.FDPauses, 1)
		w.warnFDs(v, "datagrams are dropped: no descriptors left", nil)
		return false
	}
	if w.shm.Acquire(w.row, v.column, w.shm.Rows(), v.maxConn) {
		return true
	}
	w.warnMaxConn(v, "maxconn reached: datagrams of new clients are dropped")
	return false
}

// newUDPMap makes a session of the sender of d, which has been admitted.
func (w *Worker) newUDPMap(v *service, p *packetSocket, d *relay.Packet) *session {
	s := w.takeSession()
	s.svc = v
	s.client = d.Peer
	s.protocol = protoUDPMap
	s.start, s.began = w.loop.Now(), w.loop.Now()
	s.phase = phaseHandshake
	u := w.freeUDPMaps
	if u == nil {
		u = &udpMap{}
	} else {
		w.freeUDPMaps = u.free
		u.free = nil
	}
	u.s, u.socket, u.path = s, p, d.Path
	u.last = w.loop.Now()
	p.hold()
	s.udp = u
	w.sessions.add(s)
	v.cell.Add(ipc.Accepted, 1)
	return s
}

// dropUDPMap closes what a session of udppm has.
func (w *Worker) dropUDPMap(s *session) {
	u := s.udp
	if u == nil {
		return
	}
	s.udp = nil
	u.Close()
	if u.listed {
		delete(w.udpMaps, udpMapKey{s.svc.column, u.path})
	}
	u.socket.drop()
	u.s, u.socket, u.path, u.server = nil, nil, relay.Path{}, netip.AddrPort{}
	u.last, u.in, u.out = 0, 0, 0
	u.early, u.earlyBytes, u.listed = nil, 0, false
	u.free = w.freeUDPMaps
	w.freeUDPMaps = u
}

// answerThrough has the client answered through the socket that it was last
// heard by: a reload or another worker's end may have changed it.
func (u *udpMap) answerThrough(p *packetSocket) {
	if u.socket != p {
		p.hold()
		u.socket.drop()
		u.socket = p
	}
}

// fromClient passes a datagram on, or keeps it until the server's address is
// known.
func (u *udpMap) fromClient(p []byte) {
	s := u.s
	u.last = s.w.loop.Now()
	if s.phase == phaseDatagrams {
		u.out++
		s.out += uint64(len(p))
		s.svc.cell.Add(ipc.BytesOut, uint64(len(p)))
		u.Send(&relay.Path{}, p, nil)
		return
	}
	if len(u.early) == maxEarly || u.earlyBytes+len(p) > maxEarlyBytes {
		s.svc.cell.Add(ipc.DatagramsDropped, 1)
		return
	}
	u.early = append(u.early, append([]byte(nil), p...))
	u.earlyBytes += len(p)
}

// connectPacket is connect for a session of udppm: the socket is connected at
// once, or not at all.
func (s *session) connectPacket(t *relay.Target) bool {
	op, errno := s.w.loop.DialPacket(&s.udp.PacketConn, t, s.udp)
	if errno != 0 {
		s.dial.note(connectCode(op, errno), errno)
		return false
	}
	s.udp.server = t.Addr
	o := s.dial.opener
	s.w.dropDial(s)
	s.w.loop.StopTimer(&s.timer)
	o.opened(s)
	return true
}

// udpPortMap opens the sockets of a udppm service.
type udpPortMap struct{}

func (udpPortMap) opened(s *session) {
	u := s.udp
	s.svc.cell.Add(ipc.Requests, 1)
	s.phase = phaseDatagrams
	early := u.early
	u.early, u.earlyBytes = nil, 0
	for _, p := range early {
		u.fromClient(p)
	}
	s.arm(u.idleMS())
}

func (udpPortMap) refused(s *session, _ code, _ unix.Errno) { s.finish() }

// OnPackets passes the server's datagrams on to the client.
func (u *udpMap) OnPackets(_ *relay.PacketConn, packets []relay.Packet) {
	s := u.s
	if s.svc.SingleDatagram {
		packets = packets[:1]
	}
	u.last = s.w.loop.Now()
	s.code = codeOK
	bytes := uint64(0)
	for i := range packets {
		p := &packets[i]
		bytes += uint64(len(p.Data))
		u.socket.Send(&u.path, p.Data, nil)
	}
	n := uint64(len(packets))
	u.in += n
	s.in += bytes
	s.svc.cell.Add(ipc.DatagramsIn, n)
	s.svc.cell.Add(ipc.BytesIn, bytes)
	if s.svc.SingleDatagram {
		s.finish()
	}
}

// OnPacketError notes that the server's host has refused a datagram, or that
// there is no way to it. It may be there for the next one; with -s there is
// none.
func (u *udpMap) OnPacketError(_ *relay.PacketConn, errno unix.Errno) {
	s := u.s
	s.code = connectCode("connect", errno)
	if s.svc.SingleDatagram {
		s.finish()
	}
}

// idleMS is how long the session lasts without a datagram.
func (u *udpMap) idleMS() int64 {
	if u.s.w.draining {
		return min(u.s.svc.packetIdleMS, udpLeaveMS)
	}
	return u.s.svc.packetIdleMS
}

// checkIdle ends a session in which nothing has passed for too long, which is
// how one ends; a server that has never answered is a timeout.
func (u *udpMap) checkIdle() {
	s := u.s
	if left := u.last + u.idleMS() - s.w.loop.Now(); left > 0 {
		s.arm(left)
		return
	}
	if u.in == 0 && s.code == codeOK {
		s.code = codeTimeout
	}
	s.finish()
}

// appendDatagrams appends how many datagrams the session has passed to the
// server and from it.
func (u *udpMap) appendDatagrams(b []byte) []byte {
	b = strconv.AppendUint(append(b, ' '), u.out, 10)
	return strconv.AppendUint(append(b, '/'), u.in, 10)
}
