// Package wire is a slow network in user space, for kernels without netem: one
// event loop on one thread that carries packets between two TUN devices and
// gives each connection a rate, a delay and losses, each way.
//
// It runs as a process of its own, with the devices as descriptors 3 and 4. It
// writes "ready" when it carries packets and its Stats as a line of JSON for
// every line of input, and ends with its input.
package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"3proxyd/bench/sys"
)

// Queue is how much traffic of one connection waits for its turn each way; what
// comes on top is dropped.
const Queue = 100 * time.Millisecond

// Config describes the network.
type Config struct {
	// Rate is in bits a second, for each connection and each way, with 14 bytes of
	// Ethernet header for each packet.
	Rate int64 `json:"rate"`
	// Delay is one way's.
	Delay time.Duration `json:"delay"`
	// Loss is the share of packets lost each way, 0 to 1.
	Loss float64 `json:"loss"`
	// Seed chooses the packets that are lost.
	Seed uint64 `json:"seed"`
}

// Stats are the totals of both ways.
type Stats struct {
	Packets int64 `json:"packets"` // that arrived
	Lost    int64 `json:"lost"`    // by chance
	Dropped int64 `json:"dropped"` // by a full queue
	Late    int64 `json:"late"`    // carried more than lateness after they were due
}

const (
	firstFD  = 3
	sides    = 2
	controls = sides // the event data of the control pipe
	// vnetHeader is the length of the header before each packet, IFF_VNET_HDR of
	// the kernel's tuntap documentation: it tells of a checksum left out, and is
	// handed on as it is.
	vnetHeader = 10
	bufferSize = 2048
	turn       = 64 // packets read from a side before what is due is sent
	// maxPackets bounds the packets under way.
	maxPackets = 1 << 18
	lateness   = int64(time.Millisecond)
	// niceness lets packets go before what the client and the origin do.
	niceness = -10
)

type wire struct {
	ep      int
	base    time.Time
	shapers [sides]*shaper // by the side that a packet comes from
	queue   heap
	buffers [][]byte // spare ones
	stats   Stats
}

// Run carries packets until its standard input ends.
func Run(cfg Config) error {
	if cfg.Rate < 1 || cfg.Delay < 0 || !(cfg.Loss >= 0 && cfg.Loss <= 1) {
		return fmt.Errorf("link %+v cannot be", cfg)
	}
	sys.LockLoop()
	// Not allowed everywhere; packets are late more often then, which is counted.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	w := &wire{ep: ep, base: time.Now()}
	for side := range sides {
		fd := firstFD + side
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("device %d: %w", side, err)
		}
		if e := sys.EpollAdd(ep, fd, unix.EPOLLIN, uint64(side)); e != 0 {
			return fmt.Errorf("watch device %d: %w", side, e)
		}
		w.shapers[side] = newShaper(cfg, uint64(side))
	}
	if e := sys.EpollAdd(ep, 0, unix.EPOLLIN, controls); e != 0 {
		return fmt.Errorf("watch the control pipe: %w", e)
	}
	fmt.Println("ready")
	return w.loop()
}

// clock returns the time in nanoseconds since base.
func (w *wire) clock() int64 { return int64(time.Since(w.base)) }

func (w *wire) loop() error {
	evs := make([]unix.EpollEvent, sides+1)
	for {
		timeout := time.Duration(-1)
		if len(w.queue) > 0 {
			timeout = time.Duration(max(w.queue[0].due-w.clock(), 0))
		}
		n, err := sys.Wait(w.ep, evs, timeout)
		if err != nil {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for i := range evs[:n] {
			data := sys.EventData(&evs[i])
			if data != controls {
				if err := w.receive(int(data)); err != nil {
					return err
				}
				continue
			}
			if end, err := w.control(); end || err != nil {
				return err
			}
		}
		w.deliver()
	}
}

// control answers a line of input with the totals and ends at end of input.
func (w *wire) control() (end bool, err error) {
	var buf [64]byte
	n, err := unix.Read(0, buf[:])
	if err == unix.EINTR || err == unix.EAGAIN {
		return false, nil
	}
	if err != nil || n == 0 {
		return true, nil
	}
	line, err := json.Marshal(w.stats)
	if err != nil {
		return true, fmt.Errorf("encode totals: %w", err)
	}
	fmt.Println(string(line))
	return false, nil
}

// receive takes packets from a side. A device that is gone is an error.
func (w *wire) receive(side int) error {
	for range turn {
		buf := w.buffer()
		n, e := sys.Read(firstFD+side, buf)
		if e != 0 {
			w.buffers = append(w.buffers, buf)
			if e == unix.EAGAIN || e == unix.EINTR {
				return nil
			}
			return fmt.Errorf("read device %d: %w", side, e)
		}
		if !w.take(side, buf[:n]) {
			w.buffers = append(w.buffers, buf)
		}
	}
	return nil
}

// take puts a packet on its way, and tells whether it did. Only IPv4 travels.
func (w *wire) take(side int, data []byte) bool {
	if len(data) < vnetHeader {
		return false
	}
	key, ok := parseKey(data[vnetHeader:])
	if !ok {
		return false
	}
	w.stats.Packets++
	due, f := w.shapers[side].admit(w.clock(), key, len(data)-vnetHeader)
	if len(w.queue) >= maxPackets {
		f = dropped
	}
	switch f {
	case lost:
		w.stats.Lost++
	case dropped:
		w.stats.Dropped++
	default:
		w.queue.push(packet{due: due, data: data, side: 1 - side})
	}
	return f == carried
}

// deliver sends the packets that are due.
func (w *wire) deliver() {
	now := w.clock()
	for len(w.queue) > 0 && w.queue[0].due <= now {
		p := w.queue.pop()
		if now-p.due > lateness {
			w.stats.Late++
		}
		if e := sys.Write(firstFD+p.side, p.data); e != 0 {
			w.stats.Dropped++
		}
		w.buffers = append(w.buffers, p.data[:bufferSize])
	}
}

func (w *wire) buffer() []byte {
	if n := len(w.buffers); n > 0 {
		buf := w.buffers[n-1]
		w.buffers = w.buffers[:n-1]
		return buf
	}
	return make([]byte, bufferSize)
}
