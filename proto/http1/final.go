package http1

// AppendOptions appends the answer of the last recipient of OPTIONS (RFC 9110
// section 9.3.7). Only Close and HTTP10 of o count.
func AppendOptions(dst []byte, o AnswerOptions) []byte {
	dst = append(dst, "HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, DELETE, PATCH, CONNECT, OPTIONS, TRACE\r\n"...)
	dst = appendConnection(appendLength(dst, 0), false, o.Close, o.HTTP10)
	return append(dst, "\r\n"...)
}

// AppendTrace appends the answer of the last recipient of TRACE: the head of
// the request, without fields that may hold credentials (RFC 9110 section
// 9.3.8). Only Close and HTTP10 of o count.
func AppendTrace(dst []byte, r *Request, o AnswerOptions) []byte {
	size := len(r.Method) + len(r.Target) + len("  HTTP/1.1\r\n\r\n")
	for i := range r.Fields {
		if f := &r.Fields[i]; !f.private() {
			size += len(f.Name) + len(f.Value) + len(": \r\n")
		}
	}
	dst = append(dst, "HTTP/1.1 200 OK\r\nContent-Type: message/http\r\n"...)
	dst = appendConnection(appendLength(dst, int64(size)), false, o.Close, o.HTTP10)
	dst = append(append(append(dst, "\r\n"...), r.Method...), ' ')
	dst = append(append(dst, r.Target...), " HTTP/1."...)
	dst = append(dst, byte('0'+r.Minor), '\r', '\n')
	for i := range r.Fields {
		if f := &r.Fields[i]; !f.private() {
			dst = appendField(dst, f)
		}
	}
	return append(dst, "\r\n"...)
}

// private tells whether the field may hold credentials.
func (f *Field) private() bool {
	return f.kindOf() == kindProxyAuthorization || equalFold(f.Name, "authorization") || equalFold(f.Name, "cookie")
}
