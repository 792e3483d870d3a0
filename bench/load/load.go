// Package load is the load generator: one event loop on one thread that opens
// connections through a proxy, sends requests or streams and records how long
// they took.
//
// It runs as a process of its own and is led over a pipe: it reads commands, a
// line each, from its standard input and writes Events as lines of JSON.
//
//	run            begin or go on with the load
//	pause          finish the requests under way, start no more
//	measure SECS   count and time what happens in the next SECS seconds
//	stop           end; so does the end of the input
package load

import (
	"net/netip"

	"3proxyd/bench/scenario"
)

// Config is what one process of load does.
type Config struct {
	Scenario scenario.Scenario `json:"scenario"`
	// Proxy is where connections go; Origin is what they ask the proxy for.
	Proxy  netip.AddrPort `json:"proxy"`
	Origin netip.AddrPort `json:"origin"`
	// Verify compares every received byte with the test pattern; otherwise
	// bodies are counted but not looked at.
	Verify bool `json:"verify"`
}

// The events.
const (
	Ready  = "ready"  // every connection is open
	Start  = "start"  // a measurement began
	End    = "end"    // a measurement ended; Result is set
	Paused = "paused" // no request is under way; Total is set
	Failed = "failed" // the load cannot run; Error is set
)

// Event is one line of output.
type Event struct {
	Event  string  `json:"event"`
	Result *Result `json:"result,omitempty"`
	// Total is the number of requests completed since the process started.
	Total int64  `json:"total,omitempty"`
	Error string `json:"error,omitempty"`
}

// Result is what happened between the start and the end of a measurement.
type Result struct {
	Nanos    int64 `json:"nanos"`
	Requests int64 `json:"requests"`
	// Bytes are the body bytes moved, both ways together.
	Bytes int64 `json:"bytes"`
	// Latency is in nanoseconds, from the moment a request was started, or was
	// due, to the last byte of its answer.
	Latency Latency `json:"latency"`
	// Errors counts failed requests and connections by kind.
	Errors map[string]int64 `json:"errors,omitempty"`
	// Reopened counts kept-alive connections that the proxy closed between
	// two requests or after an answer.
	Reopened int64 `json:"reopened"`
	// Unserved counts requests that were due but not started when the
	// measurement ended.
	Unserved int64 `json:"unserved"`
	// Open is the number of connections open at the end.
	Open int `json:"open"`
	// CPU is the process's user and system time in nanoseconds.
	CPU int64 `json:"cpu"`
}

// Latency holds the quantiles of a histogram in nanoseconds.
type Latency struct {
	P50  int64 `json:"p50"`
	P75  int64 `json:"p75"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
	Mean int64 `json:"mean"`
}

// The kinds of errors in Result.Errors.
const (
	errConnect = "connect" // the connection was refused or not made
	errProxy   = "proxy"   // the proxy refused the handshake
	errReset   = "reset"   // the connection broke
	errEOF     = "eof"     // the connection ended too early
	errTimeout = "timeout" // nothing happened for too long
	errStatus  = "status"  // the answer's status is not 200
	errAnswer  = "answer"  // the answer's head cannot be used
	errLength  = "length"  // the answer has another length than asked for
	errContent = "content" // the answer's bytes are wrong
)
