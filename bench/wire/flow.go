package wire

import (
	"math/rand/v2"
	"time"
)

// fate is what the link does with a packet.
type fate uint8

const (
	carried fate = iota
	lost         // by chance
	dropped      // the queue is full
)

// etherHeader is added to every packet's length, so that a rate means the same as
// in tc(8), which counts frames.
const etherHeader = 14

// maxFlows bounds the flows of one direction that are remembered.
const maxFlows = 1 << 17

// shaper is one direction of the link. Every flow has the rate to itself: it is
// a FIFO that holds Queue of traffic at most and drops what comes on top.
type shaper struct {
	cfg    Config
	random *rand.Rand
	// free tells when a flow's last packet will have left, in nanoseconds. A flow
	// whose time has passed is like a new one and can be forgotten.
	free map[flowKey]int64
}

// newShaper returns a direction. The same seed loses the same packets.
func newShaper(cfg Config, direction uint64) *shaper {
	return &shaper{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, direction)), free: make(map[flowKey]int64)}
}

// admit decides about a packet of size bytes that arrives at the time now, and
// tells when it comes out at the other end.
func (s *shaper) admit(now int64, key flowKey, size int) (due int64, f fate) {
	if s.cfg.Loss > 0 && s.random.Float64() < s.cfg.Loss {
		return 0, lost
	}
	at := max(s.free[key], now)
	if at-now > int64(Queue) {
		return 0, dropped
	}
	if len(s.free) >= maxFlows && !s.forget(now) {
		return 0, dropped
	}
	at += max(int64(size+etherHeader)*8*int64(time.Second)/s.cfg.Rate, 1)
	s.free[key] = at
	return at + int64(s.cfg.Delay), carried
}

// forget drops the flows that hold nothing, and tells whether there is room for
// another one.
func (s *shaper) forget(now int64) bool {
	for key, at := range s.free {
		if at <= now {
			delete(s.free, key)
		}
	}
	return len(s.free) < maxFlows
}
