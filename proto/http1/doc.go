// Package http1 is HTTP/1.1 as a proxy needs it (RFC 9110, RFC 9112): heads of
// requests and responses are parsed, checked and written anew for the next
// hop, chunked bodies are followed, error pages are made. It does no I/O and
// keeps no clock.
//
// A proxy and its neighbours must agree where each message ends. So every
// message whose length could be read in two ways is refused: line ends other
// than CRLF in requests, folded lines, blanks before a colon, more than one
// Content-Length (in responses: different ones), Content-Length with Transfer-Encoding, any coding but
// chunked.
package http1

// The limits of a head.
const (
	// MaxHead is the size in bytes of the longest head, with the empty line.
	MaxHead = 64 << 10
	// MaxTarget is the length in bytes of the longest request target.
	MaxTarget = 32 << 10
	// MaxFields is the largest number of fields.
	MaxFields = 256
	// MaxMethod is the length in bytes of the longest method.
	MaxMethod = 64

	// maxBlankLines is how many empty lines may precede a request (RFC 9112
	// section 2.2).
	maxBlankLines = 4
	// maxNominated is how many fields Connection may name.
	maxNominated = 64
)

// Error is why a message was refused.
type Error struct {
	// Status is the status code to answer with: of the 400 and 500 classes
	// for requests, 502 for responses.
	Status int
	// Text is a constant: it never holds input.
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

var (
	errRequestLine   = &Error{400, "malformed request line"}
	errMethod        = &Error{400, "malformed method"}
	errMethodLong    = &Error{501, "method too long"}
	errVersion       = &Error{400, "malformed HTTP version"}
	errVersionOther  = &Error{505, "HTTP version not supported"}
	errTarget        = &Error{400, "malformed request target"}
	errTargetLong    = &Error{414, "request target too long"}
	errTargetForm    = &Error{400, "request target does not fit the method"}
	errFragment      = &Error{400, "fragment in the request target"}
	errUserinfo      = &Error{400, "user information in the request target"}
	errAuthority     = &Error{400, "malformed host or port in the request target"}
	errScheme        = &Error{501, "URI scheme not supported"}
	errBareLF        = &Error{400, "line does not end with CRLF"}
	errBlankLines    = &Error{400, "too many empty lines before the request"}
	errHeadLong      = &Error{431, "head too large"}
	errFields        = &Error{431, "too many fields"}
	errFold          = &Error{400, "folded field line"}
	errFieldName     = &Error{400, "malformed field name"}
	errFieldColon    = &Error{400, "blank before the colon of a field"}
	errFieldValue    = &Error{400, "control character in a field value"}
	errHostMissing   = &Error{400, "Host missing"}
	errHostTwice     = &Error{400, "more than one Host"}
	errHost          = &Error{400, "malformed Host"}
	errLength        = &Error{400, "malformed Content-Length"}
	errLengthTwice   = &Error{400, "more than one Content-Length"}
	errCoding        = &Error{400, "transfer coding other than chunked"}
	errCodingTwice   = &Error{400, "more than one Transfer-Encoding"}
	errCodingVersion = &Error{400, "Transfer-Encoding in HTTP/1.0"}
	errAmbiguous     = &Error{400, "Content-Length together with Transfer-Encoding"}
	errNominated     = &Error{400, "Connection names too many fields"}
	errExpect        = &Error{417, "expectation not supported"}
	errMaxForwards   = &Error{400, "malformed Max-Forwards"}
	errProxyAuth     = &Error{400, "more than one Proxy-Authorization"}
	errContent       = &Error{400, "content in a request that cannot have any"}

	// ErrBodyLong refuses a body that is longer than its limit.
	ErrBodyLong = &Error{413, "the body is longer than allowed"}

	errChunkSize   = &Error{400, "malformed chunk size"}
	errChunkEnd    = &Error{400, "malformed end of a chunk"}
	errChunkExt    = &Error{400, "malformed chunk extension"}
	errChunkExtMax = &Error{400, "chunk extensions too long"}
	errTrailer     = &Error{400, "malformed trailer field"}
	errTrailerMax  = &Error{431, "trailer section too large"}
	errTrailerName = &Error{400, "field not allowed in a trailer section"}
	errChunkUse    = &Error{400, "chunked body used after its end or failure"}

	errStatusLine = &Error{502, "malformed status line"}
	errResponse   = &Error{502, "malformed response head"}
	errFraming    = &Error{502, "ambiguous response length"}
	errRespLong   = &Error{502, "response head too large"}
)
