package http1

// Field is one field line of a head. Both are slices of the buffer that was
// parsed, Value without white space around it.
type Field struct {
	Name, Value []byte

	kind fieldKind
}

// fieldKind is what the proxy knows of a field's name.
type fieldKind uint8

const (
	kindUnknown fieldKind = iota // not classified: made by a caller
	kindOther
	kindHop // for this connection only: never forwarded
	kindKeepAlive
	kindAccept
	kindClientInfo // says who a client or a proxy before this one is
	kindConnection
	kindContentLength
	kindExpect
	kindHost
	kindMaxForwards
	kindProxyAuthorization
	kindProxyConnection
	kindTrailer
	kindTransferEncoding
	kindUpgrade
	kindVia
)

// classify maps a name to its kind. Everything in "Proxy-" is meant for this
// proxy (RFC 9110 section 11.7); the other hop-by-hop fields are those of RFC
// 9110 section 7.6.1 and RFC 9113 appendix (HTTP2-Settings).
func classify(name []byte) fieldKind {
	switch len(name) {
	case 2:
		if equalFold(name, "te") {
			return kindHop
		}
	case 3:
		if equalFold(name, "via") {
			return kindVia
		}
	case 4:
		if equalFold(name, "host") {
			return kindHost
		}
	case 6:
		if equalFold(name, "expect") {
			return kindExpect
		}
		if equalFold(name, "accept") {
			return kindAccept
		}
	case 7:
		if equalFold(name, "upgrade") {
			return kindUpgrade
		}
		if equalFold(name, "trailer") {
			return kindTrailer
		}
	}
	if len(name) >= len("proxy-") {
		return classifyLong(name)
	}
	return kindOther
}

func classifyLong(name []byte) fieldKind {
	switch {
	case equalFold(name[:len("proxy-")], "proxy-"):
		if equalFold(name, "proxy-authorization") {
			return kindProxyAuthorization
		}
		if equalFold(name, "proxy-connection") {
			return kindProxyConnection
		}
		return kindHop
	case len(name) == 9:
		if equalFold(name, "forwarded") || equalFold(name, "x-real-ip") || equalFold(name, "client-ip") {
			return kindClientInfo
		}
	case len(name) == 10:
		if equalFold(name, "connection") {
			return kindConnection
		}
		if equalFold(name, "keep-alive") {
			return kindKeepAlive
		}
	case len(name) == 11 && equalFold(name, "x-client-ip"):
		return kindClientInfo
	case len(name) == 12 && equalFold(name, "max-forwards"):
		return kindMaxForwards
	case len(name) >= 11 && equalFold(name[:11], "x-forwarded"):
		return kindClientInfo
	case len(name) == 14:
		if equalFold(name, "content-length") {
			return kindContentLength
		}
		if equalFold(name, "http2-settings") {
			return kindHop
		}
	case len(name) == 17 && equalFold(name, "transfer-encoding"):
		return kindTransferEncoding
	}
	return kindOther
}

// framing collects what the fields say about the length of the message and
// about the connection.
type framing struct {
	length      int64 // -1: no Content-Length
	fold        bool  // one length given several times is one
	codings     int   // number of Transfer-Encoding lines
	chunked     bool
	close       bool
	keepAlive   bool
	upgrade     bool // Connection: upgrade
	upgradeTo   bool // Upgrade names a protocol
	h2c         bool // it names h2c
	nominations int
}

// add takes one field into account.
func (fr *framing) add(f *Field) *Error {
	switch f.kind {
	case kindContentLength:
		return fr.addLength(f)
	case kindTransferEncoding:
		return fr.addCoding(f.Value)
	case kindConnection, kindProxyConnection:
		return fr.addConnection(f.Value)
	case kindUpgrade:
		fr.upgradeTo = fr.upgradeTo || len(f.Value) > 0
		fr.h2c = fr.h2c || offersH2C(f.Value)
	}
	return nil
}

func (fr *framing) addLength(f *Field) *Error {
	if fr.fold {
		return fr.foldLength(f)
	}
	if fr.length >= 0 {
		return errLengthTwice
	}
	n, ok := parseDigits(f.Value, 19)
	if !ok {
		return errLength
	}
	fr.length = n
	return nil
}

// foldLength takes a list of lengths that are all the same, which is one (RFC
// 9112 section 6.3, case 5). Only the first field is sent on.
func (fr *framing) foldLength(f *Field) *Error {
	if fr.length >= 0 {
		f.kind = kindHop
	}
	for list := f.Value; ; {
		var element []byte
		element, list = nextElement(list)
		n, ok := parseDigits(element, 19)
		switch {
		case !ok:
			return errLength
		case fr.length >= 0 && n != fr.length:
			return errLengthTwice
		}
		fr.length = n
		if list == nil {
			return nil
		}
	}
}

func (fr *framing) addCoding(value []byte) *Error {
	if fr.codings++; fr.codings > 1 {
		return errCodingTwice
	}
	if equalFold(value, "chunked") {
		fr.chunked = true
		return nil
	}
	return errCoding
}

func (fr *framing) addConnection(list []byte) *Error {
	for list != nil {
		var option []byte
		option, list = nextElement(list)
		switch {
		case len(option) == 0:
		case equalFold(option, "close"):
			fr.close = true
		case equalFold(option, "keep-alive"):
			fr.keepAlive = true
		case equalFold(option, "upgrade"):
			fr.upgrade = true
		default:
			if fr.nominations++; fr.nominations > maxNominated {
				return errNominated
			}
		}
	}
	return nil
}

// persistent tells whether the sender wants to keep the connection (RFC 9112
// section 9.3).
func (fr *framing) persistent(minor int) bool {
	return !fr.close && (minor > 0 || fr.keepAlive)
}

// upgrading tells whether the message asks for, or grants, a protocol that can
// be relayed (RFC 9110 section 7.8).
func (fr *framing) upgrading() bool { return fr.upgrade && fr.upgradeTo && !fr.h2c }

// offersH2C tells whether a list of protocols has h2c. That upgrade needs
// HTTP2-Settings, which is not forwarded, and would let requests pass unseen.
func offersH2C(list []byte) bool {
	for list != nil {
		var protocol []byte
		protocol, list = nextElement(list)
		if equalFold(protocol, "h2c") {
			return true
		}
	}
	return false
}

// dropNominated marks the fields that Connection names as hop-by-hop. Only
// fields without a role in the message's own framing or routing can be named:
// dropping Host or Content-Length would change what the next hop reads.
func dropNominated(fields []Field) {
	for i := range fields {
		if k := fields[i].kind; k != kindConnection && k != kindProxyConnection {
			continue
		}
		for list := fields[i].Value; list != nil; {
			var name []byte
			name, list = nextElement(list)
			dropNamed(fields, name)
		}
	}
}

// nominable tells whether a field has no role that would end with it.
func (k fieldKind) nominable() bool {
	return k == kindOther || k == kindAccept || k == kindClientInfo
}

func dropNamed(fields []Field, name []byte) {
	if len(name) == 0 {
		return
	}
	for i := range fields {
		if fields[i].kind.nominable() && equalFoldBytes(fields[i].Name, name) {
			fields[i].kind = kindHop
		}
	}
}
