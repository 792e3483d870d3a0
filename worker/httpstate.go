package worker

import (
	"3proxyd/proto/http1"
	"3proxyd/relay"
)

// bodyKind is how the rest of a request's body is moved.
type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
)

// httpState is what the HTTP proxy keeps for a client connection. It goes when
// the session becomes a tunnel.
type httpState struct {
	free *httpState

	// The request.
	scan       http1.Scan
	minor      int8
	head       bool // HEAD: the response has no body
	keepClient bool // the client wants to keep its connection
	upgrade    bool
	retryable  bool         // may be sent again on another connection (RFC 9110 section 9.2.2)
	counted    bool         // its bytes have been counted
	pinned     bool         // authentication belongs to the connection: not shared
	pins       bool         // this request authenticates its connection
	expect     bool         // the client waits for 100 (Continue) before it sends the body
	asterisk   bool         // OPTIONS of the server as a whole
	format     http1.Format // of a page of the proxy's own
	body       bodyKind
	bodyLeft   int64
	chunks     http1.Chunked
	sent       bool // the whole request has been handed to the server
	// bodyMS is how long the client has been waited for within the body,
	// bodySeen when that was last added up, in the loop's time.
	bodyMS, bodySeen int64

	// out is the head to send: until there is a connection, and as long as
	// the request may have to be sent again.
	out relay.Buffer

	// The response.
	reused     bool // the server connection comes from the pool
	started    bool // the client has got part of the response
	answering  bool // the final head has been passed on
	closing    bool // the client connection ends after this response
	keepServer bool
	keepMS     int64 // how long the server connection may be idle
	dechunk    bool
	chunked    bool // the response's body is chunked
	untilClose bool // it ends with the connection
	respChunks http1.Chunked
	respScan   http1.Scan
	resp       relay.Buffer // part of a response head
	// interims and interimBytes are of the interim responses so far.
	interims, interimBytes int32

	active int64 // of bytes that do not pass through the flows
	served int   // requests answered on this connection
}

func (w *Worker) newHTTP() *httpState {
	st := w.freeHTTP
	if st == nil {
		return &httpState{}
	}
	w.freeHTTP = st.free
	st.free = nil
	return st
}

func (w *Worker) dropHTTP(s *session) {
	st := s.http
	if st == nil {
		return
	}
	s.http = nil
	st.out.Release(w.loop)
	st.resp.Release(w.loop)
	*st = httpState{free: w.freeHTTP}
	w.freeHTTP = st
}

// reset makes the state ready for the next request of the same client.
func (st *httpState) reset(l *relay.Loop) {
	st.out.Release(l)
	st.resp.Release(l)
	*st = httpState{served: st.served + 1, pinned: st.pinned}
}
