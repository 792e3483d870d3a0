package http1

import "strconv"

// AnswerOptions says how the proxy itself answers.
type AnswerOptions struct {
	// Close tells the client that the connection ends.
	Close bool
	// HTTP10 tells that the client speaks HTTP/1.0, which must be told when
	// its connection is kept.
	HTTP10 bool
	// Format is that of the body.
	Format Format
	// Reason says more than the status does; it must be a constant without
	// characters that HTML or JSON escape.
	Reason string
	// Head leaves out the body: the request was HEAD.
	Head bool
	// Realm is that of the Basic challenge sent with 407.
	Realm string
	// Allow lists the methods allowed, sent with 405.
	Allow string
}

type page struct {
	status        int
	title, detail string
}

var pages = [...]page{
	{400, "Bad Request", "The proxy could not understand the request."},
	{403, "Forbidden", "The rules of the proxy do not allow this request."},
	{404, "Not Found", "There is no such page on this server."},
	{405, "Method Not Allowed", "The proxy does not answer this method here."},
	{407, "Proxy Authentication Required", "The proxy needs a valid user name and password."},
	{408, "Request Timeout", "The request did not arrive in time."},
	{413, "Content Too Large", "The request is larger than the proxy allows."},
	{414, "URI Too Long", "The address in the request is longer than the proxy allows."},
	{417, "Expectation Failed", "The request expects something the proxy does not know."},
	{431, "Request Header Fields Too Large", "The head of the request is larger than the proxy allows."},
	{500, "Internal Server Error", "The proxy failed to handle the request."},
	{501, "Not Implemented", "The proxy does not support this kind of request."},
	{502, "Bad Gateway", "The server could not be reached or its answer was not valid."},
	{503, "Service Unavailable", "The proxy cannot take this request now."},
	{504, "Gateway Timeout", "The server did not answer in time."},
	{505, "HTTP Version Not Supported", "The proxy supports HTTP/1.0 and HTTP/1.1 here."},
	{508, "Loop Detected", "The request leads back to this proxy."},
}

func findPage(status int) *page {
	internal := &pages[0]
	for i := range pages {
		if pages[i].status == status {
			return &pages[i]
		}
		if pages[i].status == 500 {
			internal = &pages[i]
		}
	}
	return internal
}

// The parts of a page, around and between title, detail and reason. The title
// comes twice.
const (
	pageStart  = "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>"
	pageTitle  = "</title></head>\n<body>\n<h1>"
	pageHead   = "</h1>\n<p>"
	pageReason = "</p>\n<p>Reason: "
	pageEnd    = "</p>\n</body>\n</html>\n"
)

// AppendError appends a whole response with the status and a page that says
// what it means, in the format asked for. A status without a page is answered
// as 500. The page consists of constants: nothing of a request comes back.
func AppendError(dst []byte, status int, o AnswerOptions) []byte {
	p := findPage(status)
	dst = appendTitle(append(dst, "HTTP/1.1 "...), p)
	dst = append(append(dst, "\r\nContent-Type: "...), contentTypes[o.Format]...)
	dst = append(dst, "\r\nCache-Control: no-store\r\n"...)
	dst = appendLength(dst, int64(p.size(&o)))
	if p.status == 407 {
		dst = appendChallenge(dst, o.Realm)
	}
	if p.status == 405 {
		dst = append(append(append(dst, "Allow: "...), o.Allow...), "\r\n"...)
	}
	dst = append(appendConnection(dst, false, o.Close, o.HTTP10), "\r\n"...)
	if o.Head {
		return dst
	}
	return p.appendBody(dst, &o)
}

// size is the length in bytes of what appendBody appends.
func (p *page) size(o *AnswerOptions) int {
	var scratch [1024]byte
	return len(p.appendBody(scratch[:0], o))
}

func (p *page) appendBody(dst []byte, o *AnswerOptions) []byte {
	switch o.Format {
	case Text:
		dst = append(appendTitle(dst, p), '\n')
		dst = append(append(dst, p.detail...), '\n')
		if o.Reason != "" {
			dst = append(append(append(dst, "Reason: "...), o.Reason...), '\n')
		}
		return dst
	case JSON:
		dst = strconv.AppendInt(append(dst, `{"status":`...), int64(p.status), 10)
		dst = append(append(dst, `,"title":"`...), p.title...)
		dst = append(append(dst, `","detail":"`...), p.detail...)
		if o.Reason != "" {
			dst = append(append(dst, `","reason":"`...), o.Reason...)
		}
		return append(dst, "\"}\n"...)
	}
	dst = appendTitle(append(dst, pageStart...), p)
	dst = appendTitle(append(dst, pageTitle...), p)
	dst = append(append(dst, pageHead...), p.detail...)
	if o.Reason != "" {
		dst = append(append(dst, pageReason...), o.Reason...)
	}
	return append(dst, pageEnd...)
}

func appendTitle(dst []byte, p *page) []byte {
	dst = strconv.AppendInt(dst, int64(p.status), 10)
	return append(append(dst, ' '), p.title...)
}

// appendChallenge appends the Basic challenge (RFC 7617 section 2); the realm
// becomes a quoted string without control characters.
func appendChallenge(dst []byte, realm string) []byte {
	dst = append(dst, `Proxy-Authenticate: Basic realm="`...)
	for i := range len(realm) {
		c := realm[i]
		if c < ' ' || c == 0x7f {
			continue
		}
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, "\", charset=\"UTF-8\"\r\n"...)
}

// AppendEstablished appends the answer to a successful CONNECT from a client
// of HTTP/1.minor.
func AppendEstablished(dst []byte, minor int) []byte {
	if minor == 0 {
		return append(dst, "HTTP/1.0 200 Connection established\r\n\r\n"...)
	}
	return append(dst, "HTTP/1.1 200 Connection established\r\n\r\n"...)
}
