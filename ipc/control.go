package ipc

import (
	"time"

	"3proxyd/config"
)

// The control API is HTTP/1.1 with JSON bodies over the control socket, under
// /v1/. GET asks, POST changes. An answer other than 2xx carries an APIError.
const (
	PathStatus    = "/v1/status"    // GET → Status
	PathStats     = "/v1/stats"     // GET → Stats
	PathConns     = "/v1/conns"     // GET → a stream of Session, one JSON object a line
	PathReload    = "/v1/reload"    // POST ReloadRequest → ReloadResult or ReloadPlan (200, or 422 with the errors)
	PathRebalance = "/v1/rebalance" // POST → RebalanceResult
	PathDrain     = "/v1/drain"     // POST DrainRequest → DrainResult
	// PathUpgrade takes an UpgradeRequest by POST and answers UpgradeResult
	// (200), 422 with the errors of the configuration, or 500 with the reason
	// why the old daemon goes on.
	PathUpgrade = "/v1/upgrade"
)

// APIVersion is the version of the control API.
const APIVersion = 1

// APIError is the body of an answer that reports a failure.
type APIError struct {
	Error string `json:"error"`
	// Diagnostics are the errors and warnings of a refused configuration.
	Diagnostics []config.Diagnostic `json:"diagnostics,omitempty"`
}

// Status is the answer to PathStatus.
type Status struct {
	API        int       `json:"api"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	UptimeSec  float64   `json:"uptime_seconds"`
	State      string    `json:"state"` // running, draining
	Generation uint64    `json:"generation"`
	Config     string    `json:"config"`
	// Drain is missing unless the daemon drains.
	Drain      *DrainProgress `json:"drain,omitempty"`
	LastReload *ReloadOutcome `json:"last_reload,omitempty"`
	// Upgrade is the upgrade under way, LastUpgrade how the last one ended.
	Upgrade     *UpgradeStatus  `json:"upgrade,omitempty"`
	LastUpgrade *UpgradeOutcome `json:"last_upgrade,omitempty"`
	// OldGenerations are the daemons this one and those before have replaced
	// that still have sessions, the latest last.
	OldGenerations []OldGeneration `json:"old_generations,omitempty"`
	Workers        []WorkerStatus  `json:"workers"`
	Services       []ServiceStatus `json:"services"`
	Limits         LimitStatus     `json:"limits"`
	// Warnings are those of the configuration in force and of the limits.
	Warnings []string `json:"warnings,omitempty"`
}

// DrainProgress is what is left of a drain: sessions, and the seconds until the
// last of them is ended.
type DrainProgress struct {
	Sessions    int64   `json:"sessions"`
	SecondsLeft float64 `json:"seconds_left"`
}

// ReloadOutcome says how the last reload ended.
type ReloadOutcome struct {
	Time  time.Time `json:"time"`
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
}

// UpgradeStatus is an upgrade under way.
type UpgradeStatus struct {
	// State is starting or trial.
	State   string  `json:"state"`
	Binary  string  `json:"binary"`
	Version string  `json:"version,omitempty"`
	PID     int     `json:"pid,omitempty"`
	AgeSec  float64 `json:"age_seconds"`
}

// UpgradeOutcome says how the last upgrade ended: in the new daemon that it has
// taken over, and from which version, in the old one why not.
type UpgradeOutcome struct {
	Time    time.Time `json:"time"`
	OK      bool      `json:"ok"`
	Binary  string    `json:"binary,omitempty"`
	Version string    `json:"version,omitempty"`
	From    string    `json:"from,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// OldGeneration is a daemon that has been replaced and drains.
type OldGeneration struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Replaced is when its successor took over, AgeSec the time since, LeftSec
	// what its sessions still have.
	Replaced time.Time      `json:"replaced"`
	AgeSec   float64        `json:"age_seconds"`
	LeftSec  float64        `json:"left_seconds"`
	Sessions int64          `json:"sessions"`
	Workers  []WorkerStatus `json:"workers"`
}

// UpgradeRequest is the body of PathUpgrade. Without Binary it is the file the
// daemon was started from, which a newer one has taken the place of.
type UpgradeRequest struct {
	// Binary is an absolute path. Only root and the daemon's user may name
	// another file than the daemon's own.
	Binary string `json:"binary,omitempty"`
	// TrialSec is how long the new daemon must stay up beside the old one
	// before it takes over; nil means upgrade_trial.
	TrialSec *float64 `json:"trial_seconds,omitempty"`
	// TimeoutSec is how long it may take until it is ready; nil means 30
	// seconds.
	TimeoutSec *float64 `json:"timeout_seconds,omitempty"`
}

// UpgradeResult is the answer to PathUpgrade when the new daemon has taken
// over.
type UpgradeResult struct {
	PID        int                 `json:"pid"`
	Version    string              `json:"version"`
	Generation uint64              `json:"generation"`
	Warnings   []config.Diagnostic `json:"warnings,omitempty"`
	Added      []string            `json:"added,omitempty"`
	Removed    []string            `json:"removed,omitempty"`
	Kept       []string            `json:"kept,omitempty"`
	// Left is the number of sessions the old daemon finishes.
	Left    int     `json:"left"`
	Seconds float64 `json:"seconds"`
}

// WorkerStatus is one worker slot.
type WorkerStatus struct {
	Slot int `json:"slot"`
	PID  int `json:"pid"` // 0 when none runs
	CPU  int `json:"cpu"`
	// Engine is the engine of the event loop, epoll or io_uring; it is missing
	// when none runs.
	Engine string `json:"engine,omitempty"`
	// State is starting, running, draining, stalled (it gives no sign of
	// life), backoff or stopped.
	State string `json:"state"`
	// Started is missing when none runs.
	Started   time.Time `json:"started,omitzero"`
	UptimeSec float64   `json:"uptime_seconds"`
	Restarts  int       `json:"restarts"`
	// LastExit says how the previous worker of this slot ended.
	LastExit string `json:"last_exit,omitempty"`
	// RetryInSec is the time left of the back-off.
	RetryInSec float64 `json:"retry_in_seconds,omitempty"`
	// DrainLeftSec is, for a draining worker, the time left of the drain.
	DrainLeftSec float64 `json:"drain_left_seconds,omitempty"`
	Sessions     int64   `json:"sessions"`
}

// ServiceStatus is one service.
type ServiceStatus struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Target  string `json:"target,omitempty"`
	MaxConn int    `json:"max_conn"`
	Backlog int    `json:"backlog"`
	Open    int64  `json:"open"`
}

// LimitStatus shows the limits that were reached or set at the start.
type LimitStatus struct {
	FDsNeeded  int `json:"fds_needed"`
	FDsGranted int `json:"fds_granted"`
	Somaxconn  int `json:"somaxconn"`
	PidsMax    int `json:"pids_max"` // -1 unlimited
	LocalPorts int `json:"local_ports"`
}

// Stats is the answer to PathStats.
type Stats struct {
	API      int            `json:"api"`
	Time     time.Time      `json:"time"`
	Services []ServiceStats `json:"services"`
	Workers  []WorkerStats  `json:"workers"`
	Total    CounterValues  `json:"total"`
}

// ServiceStats are the counters of one service over all workers, dead ones
// included.
type ServiceStats struct {
	ID       string        `json:"id"`
	Counters CounterValues `json:"counters"`
}

// WorkerStats are the counters of one slot over all services.
type WorkerStats struct {
	Slot     int           `json:"slot"`
	PID      int           `json:"pid"`
	Counters CounterValues `json:"counters"`
	// Loop are the counters of the event loop.
	Loop map[string]uint64 `json:"loop"`
}

// CounterValues maps the name of a counter (Counter.String) to its value.
type CounterValues map[string]uint64

// PathHandOver is answered by a daemon that an upgrade has replaced, at the socket
// of ReplacedName: its workers hand their sessions to another daemon.
const PathHandOver = "/v1/handover"

// HandOverRequest is the body of PathHandOver: the process of the daemon that
// takes the sessions (ListenMoves).
type HandOverRequest struct {
	PID int `json:"pid"`
}

// Session is one live session.
type Session struct {
	ID     uint64 `json:"id"`
	Worker int    `json:"worker"`
	// OldPID is the process of the old generation that has the session, 0 for
	// one of the daemon's own.
	OldPID  int    `json:"old_pid,omitempty"`
	Service string `json:"service"`
	// Protocol is what the client of an auto service speaks: http, socks or tls;
	// it is missing before the first byte has come.
	Protocol string `json:"protocol,omitempty"`
	Client   string `json:"client"`
	User     string `json:"user,omitempty"`
	// Op is the operation of the access lists that the session is for; it is
	// missing while nothing has been asked for.
	Op string `json:"op,omitempty"`
	// Target is the requested host:port, Server the address in use.
	Target string  `json:"target,omitempty"`
	Server string  `json:"server,omitempty"`
	State  string  `json:"state"`
	AgeSec float64 `json:"age_seconds"`
	// BytesIn came from the server, BytesOut from the client.
	BytesIn  uint64 `json:"bytes_in"`
	BytesOut uint64 `json:"bytes_out"`
	// DatagramsIn and DatagramsOut are theirs, of a session of datagrams.
	DatagramsIn  uint64 `json:"datagrams_in,omitempty"`
	DatagramsOut uint64 `json:"datagrams_out,omitempty"`
}

// ReloadResult is the answer to a successful PathReload.
type ReloadResult struct {
	Generation uint64              `json:"generation"`
	Changed    bool                `json:"changed"`
	Warnings   []config.Diagnostic `json:"warnings,omitempty"`
	Added      []string            `json:"added,omitempty"`
	Removed    []string            `json:"removed,omitempty"`
	Kept       []string            `json:"kept,omitempty"`
}

// DrainRequest is the body of PathDrain. Worker is a slot, or nil for the
// whole daemon; a drained worker is replaced, a drained daemon exits.
// TimeoutSec is nil for drain_timeout.
type DrainRequest struct {
	Worker     *int     `json:"worker,omitempty"`
	TimeoutSec *float64 `json:"timeout_seconds,omitempty"`
}

// DrainResult is the answer to PathDrain; it is sent when draining has begun.
type DrainResult struct {
	Draining []int `json:"draining"`
	// TimeoutSec is how long their sessions may go on.
	TimeoutSec float64 `json:"timeout_seconds"`
}

// RebalanceResult is the answer to PathRebalance. Sessions is how many have
// moved in all.
type RebalanceResult struct {
	Sessions int             `json:"sessions"`
	Moves    []RebalanceMove `json:"moves"`
}

// RebalanceMove says how many sessions have moved from one slot to another.
type RebalanceMove struct {
	From     int    `json:"from"`
	To       int    `json:"to"`
	Sessions int    `json:"sessions"`
	Error    string `json:"error,omitempty"`
}
