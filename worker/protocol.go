package worker

import "3proxyd/config"

// protocol is what a client speaks.
type protocol uint8

const (
	protoHTTP protocol = iota
	protoSocks
	protoPortMap
	protoTLS
	protoDNS
	// protoAuto is not known until the first byte has come.
	protoAuto
	// protoUDPMap is what a service for datagrams maps, whatever it is.
	protoUDPMap
)

// String returns %N of the log: the name 3proxy gives to the service.
func (p protocol) String() string {
	switch p {
	case protoHTTP:
		return "PROXY"
	case protoSocks:
		return "SOCKS"
	case protoTLS:
		return "TLSPR"
	case protoDNS:
		return "DNSPR"
	case protoAuto:
		return "AUTO"
	case protoUDPMap:
		return "UDPPM"
	}
	return "TCPPM"
}

func protocolOf(k config.Kind) protocol {
	switch k {
	case config.Proxy:
		return protoHTTP
	case config.Socks:
		return protoSocks
	case config.TLSPR:
		return protoTLS
	case config.DNSPR:
		return protoDNS
	case config.Auto:
		return protoAuto
	case config.UDPPM:
		return protoUDPMap
	}
	return protoPortMap
}

// protocolNamed is the reverse of String for what a client speaks on a
// connection.
func protocolNamed(name string) (protocol, bool) {
	for p := protoHTTP; p <= protoAuto; p++ {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

// begin starts a protocol. rest is what the client has sent already; it must
// not lie in the session's buffer.
func (s *session) begin(p protocol, rest []byte) {
	s.protocol = p
	switch p {
	case protoHTTP:
		s.startHTTP()
		if len(rest) > 0 {
			(*httpClient)(s).OnData(&s.cli, rest)
		}
	case protoSocks:
		s.startSocks()
		if len(rest) > 0 {
			(*socksClient)(s).OnData(&s.cli, rest)
		}
	case protoTLS:
		s.startTLS()
		if len(rest) > 0 {
			(*tlsClient)(s).OnData(&s.cli, rest)
		}
	case protoDNS:
		s.startDNS()
	case protoAuto:
		s.startAuto()
		if len(rest) > 0 {
			(*autoClient)(s).OnData(&s.cli, rest)
		}
	case protoPortMap:
		if len(rest) > 0 {
			s.buf.Append(s.w.loop, rest)
		}
		s.startPortMap()
	}
}
