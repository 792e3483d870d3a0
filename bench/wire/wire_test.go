package wire

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// send puts count packets of size bytes into the shaper, one every gap, and
// returns when they come out.
func send(s *shaper, key flowKey, size, count int, gap time.Duration) (due []int64, fates [3]int) {
	for i := range count {
		at, f := s.admit(int64(i)*int64(gap), key, size)
		fates[f]++
		if f == carried {
			due = append(due, at)
		}
	}
	return due, fates
}

func TestRateAndDelay(t *testing.T) {
	// 1250 bytes with the Ethernet header are 10,000 bits: 1 ms at 10 Mbit/s.
	s := newShaper(Config{Rate: 10e6, Delay: 5 * time.Millisecond}, 0)
	due, fates := send(s, flowKey{}, 1250-etherHeader, 50, 0)
	if fates[carried] != 50 {
		t.Fatalf("fates %v, want 50 carried", fates)
	}
	for i, at := range due {
		if want := int64(5+i+1) * int64(time.Millisecond); at != want {
			t.Fatalf("packet %d is due at %v, want %v", i, time.Duration(at), time.Duration(want))
		}
	}
	// Another flow has a rate of its own.
	if at, f := s.admit(0, flowKey{ports: 1}, 1250-etherHeader); f != carried || at != int64(6*time.Millisecond) {
		t.Errorf("another flow's packet is due at %v (%v), want 6ms", time.Duration(at), f)
	}
	// So has one that rested.
	if at, _ := s.admit(int64(time.Second), flowKey{}, 1250-etherHeader); at != int64(time.Second+6*time.Millisecond) {
		t.Errorf("a packet after a rest is due at %v", time.Duration(at))
	}
}

func TestQueueIsBounded(t *testing.T) {
	s := newShaper(Config{Rate: 10e6}, 0)
	due, fates := send(s, flowKey{}, 1250-etherHeader, 1000, 0)
	if fates[carried] != 101 || fates[dropped] != 899 {
		t.Errorf("fates %v, want those carried whose wait is 100 ms or less", fates)
	}
	if last := slices.Max(due); last > int64(Queue+2*time.Millisecond) {
		t.Errorf("the last packet waits %v", time.Duration(last))
	}
	// Twice the rate: half is carried.
	s = newShaper(Config{Rate: 10e6}, 0)
	if _, fates := send(s, flowKey{}, 1250-etherHeader, 10000, 500*time.Microsecond); fates[carried] < 5000 || fates[carried] > 5200 {
		t.Errorf("fates %v, want half carried", fates)
	}
}

func TestLoss(t *testing.T) {
	cfg := Config{Rate: 1e9, Loss: 0.01, Seed: 7}
	const n = 100_000
	_, first := send(newShaper(cfg, 0), flowKey{}, 100, n, time.Microsecond)
	if got := float64(first[lost]) / n; got < 0.009 || got > 0.011 {
		t.Errorf("lost %.4f, want 0.01", got)
	}
	if _, again := send(newShaper(cfg, 0), flowKey{}, 100, n, time.Microsecond); again != first {
		t.Errorf("%v and then %v with the same seed", first, again)
	}
	if _, all := send(newShaper(Config{Rate: 1e9, Loss: 1}, 0), flowKey{}, 100, 10, 0); all[lost] != 10 {
		t.Errorf("fates %v at a loss of 1", all)
	}
	if _, none := send(newShaper(Config{Rate: 1e9}, 0), flowKey{}, 100, 1000, time.Millisecond); none[carried] != 1000 {
		t.Errorf("fates %v without losses", none)
	}
}

func TestFlowsAreForgotten(t *testing.T) {
	s := newShaper(Config{Rate: 1e9}, 0)
	for i := range maxFlows + 10 {
		if _, f := s.admit(int64(i)*int64(time.Microsecond), flowKey{ports: uint32(i)}, 100); f != carried {
			t.Fatalf("flow %d: %v", i, f)
		}
	}
	if len(s.free) > 100 {
		t.Errorf("%d flows are remembered", len(s.free))
	}
}

func TestHeap(t *testing.T) {
	var h heap
	var want []int64
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		due := r.Int64N(500)
		h.push(packet{due: due})
		want = append(want, due)
	}
	slices.Sort(want)
	for i := range want {
		if got := h.pop().due; got != want[i] {
			t.Fatalf("packet %d is due at %d, want %d", i, got, want[i])
		}
	}
	if len(h) != 0 {
		t.Errorf("%d packets are left", len(h))
	}
}

// tcpPacket is a header of IPv4 and the ports of TCP: 10.0.1.2:4660 to
// 10.0.1.1:9000.
var tcpPacket = []byte{
	0x45, 0, 0, 24, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 1, 2, 10, 0, 1, 1,
	0x12, 0x34, 0x23, 0x28,
}

func TestParseKey(t *testing.T) {
	change := func(at int, value byte) []byte {
		p := slices.Clone(tcpPacket)
		p[at] = value
		return p
	}
	whole := flowKey{src: [4]byte{10, 0, 1, 2}, dst: [4]byte{10, 0, 1, 1}, protocol: 6, ports: 0x12342328}
	icmp, fragment, cut := whole, whole, whole
	icmp.protocol, icmp.ports, fragment.ports, cut.ports = 1, 0, 0, 0
	for _, tt := range []struct {
		name string
		p    []byte
		want flowKey
		bad  bool
	}{
		{name: "TCP", p: tcpPacket, want: whole},
		{name: "ICMP", p: change(9, 1), want: icmp},
		{name: "a later fragment", p: change(7, 1), want: fragment},
		{name: "without ports", p: tcpPacket[:22], want: cut},
		{name: "IPv6", p: change(0, 0x65), bad: true},
		{name: "a short header", p: change(0, 0x44), bad: true},
		{name: "options cut off", p: change(0, 0x4f), bad: true},
		{name: "cut", p: tcpPacket[:19], bad: true},
		{name: "empty", bad: true},
	} {
		if got, ok := parseKey(tt.p); ok == tt.bad || (ok && got != tt.want) {
			t.Errorf("%s: parseKey = %+v, %v; want %+v", tt.name, got, ok, tt.want)
		}
	}
	options := slices.Concat(tcpPacket[:20], make([]byte, 4), tcpPacket[20:])
	options[0] = 0x46
	if got, ok := parseKey(options); !ok || got != whole {
		t.Errorf("with options: parseKey = %+v, %v", got, ok)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(tcpPacket)
	f.Add(tcpPacket[:20])
	f.Add([]byte{0x60})
	f.Fuzz(func(t *testing.T, p []byte) {
		if k, ok := parseKey(p); ok && (len(p) < ipv4Header || k.protocol != p[9]) {
			t.Errorf("parseKey(%x) = %+v", p, k)
		}
	})
}
