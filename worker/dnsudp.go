package worker

import (
	"net/netip"
	"time"

	"3proxyd/ipc"
	"3proxyd/proto/dnsmsg"
	"3proxyd/relay"
)

// dnsDatagram answers a query that came in a datagram. It holds the socket until
// it has, so that a worker that drains answers all.
type dnsDatagram struct {
	w      *Worker
	socket *packetSocket
	path   relay.Path
}

// takeDNSPacket takes a datagram of a client of a dnspr service.
func (w *Worker) takeDNSPacket(v *service, p *packetSocket, d *relay.Packet) {
	if d.Truncated {
		v.cell.Add(ipc.DatagramsDropped, 1)
		return
	}
	p.hold()
	w.takeDNS(&dnsQuery{svc: v, client: d.Peer, answer: &dnsDatagram{w, p, d.Path}}, d.Data)
}

// tcp reports that the client may not be who it says.
func (a *dnsDatagram) tcp() bool { return false }

// reply sends the reply. One that would be much longer than the query to a
// network that has been sent a lot is replaced by one that makes its client ask
// over TCP, which whoever forges addresses cannot.
func (a *dnsDatagram) reply(d *dnsQuery, content *dnsmsg.Content, age time.Duration) int {
	var wire []byte
	if content != nil {
		wire = d.Append(a.w.scratch[:0], content, age, d.Limit(false))
	}
	if content == nil || !a.w.amplified.admit(d.client.Addr(), len(wire)-2*d.size, a.w.loop.Now()) {
		wire = d.AppendCut(a.w.scratch[:0])
	}
	d.svc.cell.Add(ipc.DatagramsIn, 1)
	a.socket.Send(&a.path, wire, nil)
	a.socket.drop()
	return len(wire)
}

// dropped lets go of the socket.
func (a *dnsDatagram) dropped(d *dnsQuery) {
	d.svc.cell.Add(ipc.DatagramsDropped, 1)
	a.socket.drop()
}

const (
	// amplifiedBytes bounds in bytes a second what a network of clients is sent
	// over UDP beyond twice the length of its queries.
	amplifiedBytes = 1 << 20
	// maxAmplified bounds the networks that are counted at a time.
	maxAmplified = 4096
)

// amplification counts what networks of clients are sent over UDP.
type amplification struct {
	second int64
	bytes  map[netip.Prefix]int
}

// admit counts n bytes that go to addr beyond what it has sent, and reports
// whether they may. With more networks than are counted, no other may get much.
func (m *amplification) admit(addr netip.Addr, n int, nowMS int64) bool {
	if n <= 0 {
		return true
	}
	if now := nowMS/1000 + 1; m.second != now {
		m.second = now
		clear(m.bytes)
	}
	bits := 24
	if addr.Is6() {
		bits = 56
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return false
	}
	if m.bytes == nil {
		m.bytes = make(map[netip.Prefix]int)
	}
	sent, known := m.bytes[network]
	if sent+n > amplifiedBytes || !known && len(m.bytes) == maxAmplified {
		return false
	}
	m.bytes[network] = sent + n
	return true
}
