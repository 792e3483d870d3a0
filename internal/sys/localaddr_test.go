package sys

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// Every address of an interface is local, and so is all of 127.0.0.0/8.
func TestLocalPrefixes(t *testing.T) {
	list, err := LocalPrefixes()
	if err != nil {
		t.Fatal(err)
	}
	local := func(a netip.Addr) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	nets, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("127.9.9.9")}
	for _, n := range nets {
		addrs = append(addrs, netip.MustParsePrefix(n.String()).Addr())
	}
	for _, a := range addrs {
		if !local(a) {
			t.Errorf("%v is not in %v", a, list)
		}
	}
	for _, s := range []string{"192.0.2.1", "2001:db8::1", "8.8.8.8", "0.0.0.0"} {
		if local(netip.MustParseAddr(s)) {
			t.Errorf("%s is in %v", s, list)
		}
	}
}

func TestWatchAddresses(t *testing.T) {
	f, err := WatchAddresses()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.Read(make([]byte, 100))
		done <- err
	}()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Skip("an address has just changed")
	}
}
