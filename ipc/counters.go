package ipc

// Counter is the index of a per-service, per-worker counter in the shared
// memory. All count up, but for Open, which is a gauge. New ones are added at
// the end: the memory outlives an upgrade to another build.
type Counter int

// The counters of a service. Each of the Failed counters belongs to one range
// of the error codes of the log (%E).
const (
	// Open is the number of sessions now open; their sum over all workers
	// never exceeds maxconn.
	Open Counter = iota
	// Accepted counts sessions since the start.
	Accepted
	// Requests counts requests: HTTP requests, or sessions that reached their
	// server.
	Requests
	// Denied counts requests refused by a rule or for want of one (1-3).
	Denied
	// AuthFailed counts requests without a valid user (4-10).
	AuthFailed
	// ConnectFailed counts servers that could not be reached (11-13).
	ConnectFailed
	// NoResources counts failures for want of descriptors or memory (21).
	NoResources
	// TimedOut counts sessions ended for silence (92).
	TimedOut
	// ResetByClient, ResetByServer count sessions ended by a reset (95, 96).
	ResetByClient
	ResetByServer
	// NameFailed counts host names that did not resolve (100).
	NameFailed
	// ProtocolErrors counts requests that could not be understood (4xx, 5xx).
	ProtocolErrors
	// BytesIn came from servers, BytesOut from clients; BytesSpliced is the
	// part of both that went through splice(2).
	BytesIn
	BytesOut
	BytesSpliced
	// MaxConnPauses counts the times accepting stopped at maxconn.
	MaxConnPauses
	// LogDropped counts log lines lost because the log could not keep up.
	LogDropped
	// EndedByRules counts sessions that a reload ended because the new rules
	// do not allow them.
	EndedByRules
	// DatagramsIn came from servers, DatagramsOut from clients; DatagramsDropped
	// is the part of the latter that was not passed on.
	DatagramsIn
	DatagramsOut
	DatagramsDropped

	// NumCounters is the number of counters.
	NumCounters
)

var counterNames = [NumCounters]string{
	"open", "accepted", "requests", "denied", "auth_failed", "connect_failed",
	"no_resources", "timed_out", "reset_by_client", "reset_by_server",
	"name_failed", "protocol_errors", "bytes_in", "bytes_out", "bytes_spliced",
	"maxconn_pauses", "log_dropped", "ended_by_rules",
	"datagrams_in", "datagrams_out", "datagrams_dropped",
}

// String returns the name of the counter in the control API.
func (c Counter) String() string { return counterNames[c] }

// LoopCounter is the index of a per-worker counter of the event loop.
type LoopCounter int

// The counters of an event loop.
const (
	// LoopTurns counts turns, LoopEvents the events they brought.
	LoopTurns LoopCounter = iota
	LoopEvents
	// FDPauses counts the times accepting stopped for want of descriptors.
	FDPauses
	// PipesOpen is the number of pipes now open (a gauge), PipeMisses counts
	// the times a direction had to copy because none was left.
	PipesOpen
	PipeMisses
	// NameQueries counts lookups sent to a name server, NameHits those
	// answered from the cache.
	NameQueries
	NameHits
	// Heartbeat is the time of the last turn or idle check, in milliseconds
	// of CLOCK_MONOTONIC.
	Heartbeat
	// PacketsDropped counts datagrams that could not be sent: the network has
	// refused them, or a socket had no room.
	PacketsDropped

	// NumLoopCounters is the number of counters.
	NumLoopCounters
)

var loopCounterNames = [NumLoopCounters]string{
	"turns", "events", "fd_pauses", "pipes_open", "pipe_misses", "name_queries",
	"name_hits", "heartbeat_ms", "packets_dropped",
}

// String returns the name of the counter in the control API.
func (c LoopCounter) String() string { return loopCounterNames[c] }
