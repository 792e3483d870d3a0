package http1

import (
	"net/netip"
	"strconv"
)

// ClientField is the field that tells the server who the client is.
type ClientField uint8

// The fields.
const (
	NoClientField ClientField = iota
	Forwarded                 // RFC 7239: for=, and by= with this proxy's pseudonym
	XForwardedFor             // the address alone
)

// RequestOptions says how a request is sent on.
type RequestOptions struct {
	// Via is this proxy's pseudonym for Via and Forwarded fields, "" for none.
	Via string
	// KeepAlive asks the server to keep the connection.
	KeepAlive bool
	// Tell is the field added about Client, whose zero value stands for one
	// without an address.
	Tell   ClientField
	Client netip.AddrPort
	// Anonymous leaves out what the request says about clients and about
	// proxies before this one: Forwarded, X-Forwarded-*, X-Real-IP, Client-IP,
	// X-Client-IP and Via.
	Anonymous bool
}

// AppendRequestHead appends the head of r as sent to the origin server: origin
// form, HTTP/1.1, Host from the target, fields of this hop only removed,
// Content-Length and Transfer-Encoding in one spelling. It is not for CONNECT.
func AppendRequestHead(dst []byte, r *Request, o RequestOptions) []byte {
	dst = append(append(dst, r.Method...), ' ')
	if len(r.Path) > 0 && r.Path[0] == '?' {
		dst = append(dst, '/')
	}
	dst = append(dst, r.Path...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = appendAuthority(dst, r)
	dst = append(dst, "\r\n"...)
	for i := range r.Fields {
		if f := &r.Fields[i]; !o.Anonymous || !f.tellsOfClient() {
			dst = appendRequestField(dst, r, f)
		}
	}
	dst = appendVia(dst, r.Minor, o.Via)
	dst = appendClient(dst, &o)
	dst = appendConnection(dst, r.Upgrade, !o.KeepAlive, false)
	return append(dst, "\r\n"...)
}

func (f *Field) tellsOfClient() bool {
	k := f.kindOf()
	return k == kindClientInfo || k == kindVia
}

// appendClient appends the field about the client. A line of its own continues
// the list of those received (RFC 7239 section 4, RFC 9110 section 5.3).
func appendClient(dst []byte, o *RequestOptions) []byte {
	switch o.Tell {
	case Forwarded:
		dst = appendNode(append(dst, "Forwarded: for="...), o.Client)
		if o.Via != "" {
			// An obfuscated identifier (RFC 7239 section 6.3).
			dst = append(append(dst, ";by=_"...), o.Via...)
		}
	case XForwardedFor:
		dst = append(dst, "X-Forwarded-For: "...)
		if addr := o.Client.Addr(); addr.IsValid() {
			dst = addr.AppendTo(dst)
		} else {
			dst = append(dst, "unknown"...)
		}
	default:
		return dst
	}
	return append(dst, "\r\n"...)
}

// appendNode appends an address and port as a node of Forwarded (RFC 7239
// section 6), which the colon before the port makes a quoted string.
func appendNode(dst []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return append(dst, "unknown"...)
	}
	return append(a.AppendTo(append(dst, '"')), '"')
}

func appendAuthority(dst []byte, r *Request) []byte {
	switch {
	case r.Addr.Is6():
		dst = append(r.Addr.AppendTo(append(dst, '[')), ']')
	case r.Addr.IsValid():
		dst = r.Addr.AppendTo(dst)
	default:
		dst = append(dst, r.Host...)
	}
	if r.Port == defaultPort || r.Port == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, ':'), uint64(r.Port), 10)
}

func appendRequestField(dst []byte, r *Request, f *Field) []byte {
	switch f.kindOf() {
	case kindHop, kindKeepAlive, kindHost, kindConnection, kindProxyConnection, kindProxyAuthorization:
		return dst
	case kindContentLength:
		return appendLength(dst, r.ContentLength)
	case kindTransferEncoding:
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	case kindUpgrade:
		if !r.Upgrade {
			return dst
		}
	case kindExpect:
		if !r.Expect100 {
			return dst
		}
	case kindMaxForwards:
		if r.MaxForwards >= 0 {
			return appendNumber(dst, "Max-Forwards: ", int64(max(r.MaxForwards-1, 0)))
		}
	}
	return appendField(dst, f)
}

// ResponseOptions says how a response is sent on.
type ResponseOptions struct {
	// Via is this proxy's pseudonym for a Via field, "" for none.
	Via string
	// Close tells the client that its connection ends after this response. It
	// is understood when Dechunk is set or the body ends with the connection.
	Close bool
	// HTTP10 tells that the client speaks HTTP/1.0, which must be told when
	// its connection is kept.
	HTTP10 bool
	// Dechunk leaves out Transfer-Encoding: the caller sends the data of the
	// chunks only and then closes.
	Dechunk bool
}

// AppendResponseHead appends the head of r as sent to the client: HTTP/1.1,
// fields of the other hop removed.
func AppendResponseHead(dst []byte, r *Response, o ResponseOptions) []byte {
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(r.Status), 10)
	dst = append(append(dst, ' '), r.Reason...)
	dst = append(dst, "\r\n"...)
	for i := range r.Fields {
		dst = appendResponseField(dst, r, &r.Fields[i], o.Dechunk)
	}
	dst = appendVia(dst, r.Minor, o.Via)
	if r.Status >= 200 || r.Upgrade {
		ends := o.Close || r.Body == BodyUntilClose || r.Body == BodyChunked && o.Dechunk
		dst = appendConnection(dst, r.offersUpgrade(), ends && !r.Upgrade, o.HTTP10)
	}
	return append(dst, "\r\n"...)
}

// offersUpgrade tells whether the response must carry Upgrade: 101, and 426
// (RFC 9110 section 15.5.22).
func (r *Response) offersUpgrade() bool { return r.Upgrade || r.Status == 426 }

func appendResponseField(dst []byte, r *Response, f *Field, dechunk bool) []byte {
	switch f.kindOf() {
	case kindHop, kindKeepAlive, kindConnection, kindProxyConnection, kindProxyAuthorization:
		return dst
	case kindContentLength:
		if r.bodiless() {
			return dst
		}
		return appendLength(dst, r.ContentLength)
	case kindTransferEncoding:
		if r.bodiless() || dechunk {
			return dst
		}
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	case kindTrailer:
		if dechunk {
			return dst
		}
	case kindUpgrade:
		if !r.offersUpgrade() {
			return dst
		}
	}
	return appendField(dst, f)
}

func (f *Field) kindOf() fieldKind {
	if f.kind == kindUnknown {
		return classify(f.Name)
	}
	return f.kind
}

func appendField(dst []byte, f *Field) []byte {
	dst = append(dst, f.Name...)
	dst = append(dst, ": "...)
	dst = append(dst, f.Value...)
	return append(dst, "\r\n"...)
}

func appendNumber(dst []byte, name string, n int64) []byte {
	dst = strconv.AppendInt(append(dst, name...), n, 10)
	return append(dst, "\r\n"...)
}

func appendLength(dst []byte, n int64) []byte { return appendNumber(dst, "Content-Length: ", n) }

func appendVia(dst []byte, minor int, pseudonym string) []byte {
	if pseudonym == "" {
		return dst
	}
	dst = append(dst, "Via: 1."...)
	dst = append(dst, byte('0'+minor), ' ')
	dst = append(dst, pseudonym...)
	return append(dst, "\r\n"...)
}

// appendConnection appends the Connection field of the next hop, if it needs
// one.
func appendConnection(dst []byte, upgrade, ends, http10 bool) []byte {
	switch {
	case upgrade && ends:
		return append(dst, "Connection: Upgrade, close\r\n"...)
	case upgrade:
		return append(dst, "Connection: Upgrade\r\n"...)
	case ends:
		return append(dst, "Connection: close\r\n"...)
	case http10:
		return append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}
