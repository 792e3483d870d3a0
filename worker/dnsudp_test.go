package worker

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestAmplification(t *testing.T) {
	var m amplification
	client, neighbour, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("198.51.100.1")
	for i := 0; i+1000 <= amplifiedBytes; i += 1000 {
		if !m.admit(client, 1000, 500) {
			t.Fatalf("refused after %d bytes", i)
		}
	}
	if m.admit(neighbour, 1000, 900) || !m.admit(neighbour, 0, 900) || !m.admit(other, 1000, 900) {
		t.Error("the bound is not that of a network")
	}
	if !m.admit(client, 1000, 1000) {
		t.Error("refused in the next second")
	}
	for i := range maxAmplified + 10 {
		m.admit(netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", i)), 1, 1500)
	}
	if len(m.bytes) > maxAmplified || m.admit(netip.MustParseAddr("203.0.113.1"), 1, 1500) {
		t.Errorf("%d networks", len(m.bytes))
	}
	if !m.admit(client, 1, 1500) {
		t.Error("a network that is counted is refused")
	}
	if m.admit(netip.Addr{}, 1, 1500) {
		t.Error("no address")
	}
}
