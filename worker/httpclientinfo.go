package worker

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"3proxyd/config"
	"3proxyd/proto/http1"
)

// clientInfo is what the -a options make of the fields that tell a server
// about the client.
func clientInfo(a config.Anonymity, via string) http1.RequestOptions {
	o := http1.RequestOptions{KeepAlive: true, Via: via, Tell: http1.XForwardedFor}
	switch a {
	case config.TellClient:
		o.Tell = http1.Forwarded
	case config.HideClient:
		o.Via, o.Tell, o.Anonymous = "", http1.NoClientField, true
	case config.InventClient:
		o.Anonymous = true
	}
	return o
}

// requestOptions says how the session's request is sent on.
func (s *session) requestOptions() http1.RequestOptions {
	o := s.svc.requestOptions
	switch s.svc.Anonymity {
	case config.HideClient:
	case config.InventClient:
		o.Client = netip.AddrPortFrom(randomAddr(), 0)
	default:
		o.Client = s.client
	}
	return o
}

// randomAddr returns an address that could be a client's on the Internet.
func randomAddr() netip.Addr {
	for {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], rand.Uint32())
		a := netip.AddrFrom4(b)
		if a.IsGlobalUnicast() && !a.IsPrivate() && b[0] != 0 && b[0] < 224 {
			return a
		}
	}
}
