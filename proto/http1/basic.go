package http1

import (
	"bytes"
	"encoding/base64"
)

// MaxCredentials is the size of the scratch that ParseBasic needs at most, in
// bytes; longer credentials are refused.
const MaxCredentials = 1024

var strictBase64 = base64.StdEncoding.Strict()

// ParseBasic takes user and password out of the value of an Authorization or
// Proxy-Authorization field with the Basic scheme (RFC 7617). Both are slices
// of scratch. It is not ok when the scheme is another, the credentials are
// malformed, have control characters (which RFC 7617 forbids) or decode to
// more than scratch or MaxCredentials holds.
func ParseBasic(value, scratch []byte) (user, pass []byte, ok bool) {
	const scheme = "basic"
	if len(value) <= len(scheme) || !equalFold(value[:len(scheme)], scheme) || value[len(scheme)] != ' ' {
		return nil, nil, false
	}
	encoded := bytes.TrimLeft(value[len(scheme):], " ")
	// The decoder skips line ends, which a field value cannot have.
	if !noControls(encoded) || base64.StdEncoding.DecodedLen(len(encoded)) > min(len(scratch), MaxCredentials) {
		return nil, nil, false
	}
	n, err := strictBase64.Decode(scratch, encoded)
	if err != nil {
		return nil, nil, false
	}
	credentials := scratch[:n]
	colon := bytes.IndexByte(credentials, ':')
	if colon < 0 || bytes.IndexByte(credentials, '\t') >= 0 || !noControls(credentials) {
		return nil, nil, false
	}
	return credentials[:colon:colon], credentials[colon+1:], true
}
