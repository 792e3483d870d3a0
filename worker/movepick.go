package worker

import (
	"cmp"
	"slices"
	"time"
)

// pickSample is over how long the traffic of sessions is measured.
const pickSample = time.Second

// traffic is the number of bytes a session relayed within pickSample.
type traffic struct {
	id    uint64
	bytes uint64
}

// pick chooses the sessions for an order that asks for a number of them or for
// an amount of traffic. A draining worker moves any.
func (m *moveOut) pick() {
	if m.order.Sessions == 0 && m.order.BytesPerSec == 0 {
		return
	}
	before := m.bytesOfSessions()
	if before == nil {
		return
	}
	select {
	case <-time.After(pickSample):
	case <-m.w.moves.over:
		return
	}
	var list []traffic
	for id, bytes := range m.bytesOfSessions() {
		if first, ok := before[id]; ok {
			list = append(list, traffic{id, bytes - first})
		}
	}
	rate := uint64(float64(m.order.BytesPerSec) * pickSample.Seconds())
	m.wanted = map[uint64]bool{}
	for _, id := range pickTraffic(list, m.order.Sessions, rate) {
		m.wanted[id] = true
	}
}

// bytesOfSessions returns what each movable session has relayed since it
// began, nil when the worker drains.
func (m *moveOut) bytesOfSessions() map[uint64]uint64 {
	bytes, _ := onLoop(m.w, func(give func(map[uint64]uint64)) {
		if m.w.draining {
			give(nil)
			return
		}
		bytes := map[uint64]uint64{}
		for s := m.w.sessions.head; s != nil; s = s.next {
			if s.movable() {
				bytes[s.id] = s.bytesIn() + s.bytesOut()
			}
		}
		give(bytes)
	})
	return bytes
}

// pickTraffic returns the n quietest sessions, or with n = 0 sessions that
// together have about bytes of traffic: the busiest first, none that has more
// than is left, and none that has too little to make a difference.
func pickTraffic(list []traffic, n int, bytes uint64) []uint64 {
	slices.SortFunc(list, func(a, b traffic) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.id, b.id))
	})
	var ids []uint64
	if n > 0 {
		for _, t := range list[max(0, len(list)-n):] {
			ids = append(ids, t.id)
		}
		return ids
	}
	least := max(bytes/32, 1)
	for _, t := range list {
		if t.bytes >= least && t.bytes <= bytes {
			ids = append(ids, t.id)
			bytes -= t.bytes
		}
	}
	return ids
}
