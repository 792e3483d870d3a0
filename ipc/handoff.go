package ipc

import (
	"time"

	"3proxyd/config"
)

// The versions of the handoff protocol this binary speaks. It is spoken by two
// builds of the daemon, so that unlike Version it need not be the same on both
// sides: the greatest version both know is used.
const (
	HandoffMin = 1
	HandoffMax = 1
)

// HandoffFD is the descriptor on which a successor finds its end of the
// handoff socket, and a launcher its end of the socket to its supervisor.
const HandoffFD = 3

// LauncherHandoffFD is the descriptor on which a launcher finds the handoff
// socket it passes on.
const LauncherHandoffFD = 4

// Messages of the handoff, by which a running supervisor (the predecessor)
// gives everything it owns to another one (the successor), usually of a newer
// binary. In this order:
//
//	predecessor                     successor
//	                              ← Hello
//	Manifest (memory, table)      →
//	HandoffFiles (64 at most)     → …
//	                              ← HandoffAck, for each HandoffFiles
//	                              ← Ready: its workers wait
//	Go                            →
//	                              ← Serving: its workers accept
//	(the predecessor's workers pause, the trial time passes)
//	Check                         →
//	                              ← Serving: they still do
//	Takeover                      →
//	                              ← TakenOver
//	Released: no parent any more  →
//	HandoffMove, for each worker  →
//
// HandoffProcess tells of a worker that the predecessor has started meanwhile.
// Until TakenOver either side can end it: the successor with Failed, the
// predecessor with Cancel. A successor that has everything and finds the
// predecessor dead takes over by itself.
const (
	MsgHandoffHello Type = 200 + iota
	// MsgHandoffManifest: descriptors are a memfd with a Manifest as JSON and
	// the shared memory.
	MsgHandoffManifest
	// MsgHandoffFiles brings the next descriptors of the manifest: one for
	// each of Sockets, a pidfd of the predecessor, one of each of Workers, and
	// for each of Old one of the supervisor and one of each worker.
	MsgHandoffFiles
	MsgHandoffAck
	MsgHandoffReady
	MsgHandoffFailed
	MsgHandoffCancel
	MsgHandoffGo
	MsgHandoffServing
	MsgHandoffCheck
	// MsgHandoffProcess has a HandoffWorker as body, which takes the place of
	// an earlier one of the same row. Descriptors: its pidfd.
	MsgHandoffProcess
	MsgHandoffTakeover
	MsgHandoffTakenOver
	MsgHandoffReleased
	// MsgHandoffMove brings one end of a socket over which a worker of the
	// predecessor hands its sessions to the successor's worker of that slot.
	MsgHandoffMove
)

// Messages between a supervisor and the launcher, the process that starts the
// successor, is its parent until the takeover, and ends all of it when the
// upgrade fails.
const (
	// MsgLaunch starts the successor.
	MsgLaunch Type = 240 + iota
	// MsgLaunched answers MsgLaunch. Descriptors: a pidfd, on success.
	MsgLaunched
	// MsgLaunchEnded says that the successor has ended.
	MsgLaunchEnded
	// MsgLaunchKill ends the successor and all of its descendants but those
	// kept; the launcher closes its socket when they are gone.
	MsgLaunchKill
)

// HandoffHello is the body of MsgHandoffHello.
type HandoffHello struct {
	// Min and Max are the versions the successor speaks.
	Min int `json:"min"`
	Max int `json:"max"`
	// Version is the version of its build.
	Version string `json:"version"`
	PID     int    `json:"pid"`
}

// HandoffManifest is the body of MsgHandoffManifest.
type HandoffManifest struct {
	// Version is the version of the protocol in use from here on.
	Version int `json:"version"`
}

// Manifest says what the predecessor hands over. A successor ignores fields it
// does not know, and closes sockets of kinds it does not know.
type Manifest struct {
	// Version, PID and Started describe the predecessor.
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Generation is the number of its configuration.
	Generation uint64 `json:"generation"`
	// Services are the IDs of its services.
	Services []string        `json:"services"`
	Sockets  []HandoffSocket `json:"sockets"`
	// Columns and Past are the places of the counters: of each service by its
	// ID, and the totals of services that are gone, by row.
	Columns     map[string]int   `json:"columns"`
	ColumnsUsed int              `json:"columns_used"`
	Past        map[int][]uint64 `json:"past,omitempty"`
	Slots       []HandoffSlot    `json:"slots"`
	// Workers are the predecessor's processes that are alive.
	Workers []HandoffWorker `json:"workers"`
	// Old are the daemons it has replaced, and those before, that still
	// drain.
	Old []HandoffOld `json:"old,omitempty"`
}

// HandoffKind is the kind of a socket that is handed over.
type HandoffKind string

// The kinds of socket.
const (
	// HandoffListener is a listening stream socket of a service.
	HandoffListener HandoffKind = "listener"
	// HandoffDatagram is a UDP socket of a service.
	HandoffDatagram HandoffKind = "datagram"
	// HandoffControl is the listening control socket.
	HandoffControl HandoffKind = "control"
)

// HandoffSocket describes one socket. The successor checks it against what the
// kernel says of the descriptor.
type HandoffSocket struct {
	Kind HandoffKind `json:"kind"`
	// Key names the listener the socket belongs to.
	Key string `json:"key"`
	// Slot is the slot of the socket, -1 for one that all workers share.
	Slot int `json:"slot"`
	// Network is tcp, udp or unix, Address what getsockname(2) returns:
	// address and port, a path, or @ and an abstract name.
	Network   string `json:"network"`
	Address   string `json:"address"`
	Listening bool   `json:"listening,omitempty"`
	V6Only    bool   `json:"v6only,omitempty"`
	ReusePort bool   `json:"reuse_port,omitempty"`
	// Unit is the name of a socket of a socket unit, which goes on listening
	// whatever the daemon does; "" is the daemon's own.
	Unit string `json:"unit,omitempty"`
	// Stored says that the service manager keeps the socket.
	Stored bool `json:"stored,omitempty"`
	// File says that the predecessor made the socket's file, which the
	// successor is to remove some day.
	File bool `json:"file,omitempty"`
	// Backlog and Options are those in force.
	Backlog int              `json:"backlog,omitempty"`
	Options []config.SockOpt `json:"options,omitempty"`
}

// HandoffSlot has the rows of the shared memory of one slot's processes.
type HandoffSlot struct {
	// Idle are free for the successor's processes.
	Idle []int `json:"idle,omitempty"`
	// Busy belong to processes of the predecessor or of older daemons.
	Busy []int `json:"busy,omitempty"`
}

// HandoffWorker is a worker process of the predecessor or an older daemon.
type HandoffWorker struct {
	Slot    int       `json:"slot"`
	Row     int       `json:"row"`
	PID     int       `json:"pid"`
	CPU     int       `json:"cpu"`
	Started time.Time `json:"started"`
}

// HandoffOld is an old generation of the predecessor's: a daemon that has been
// replaced before, and still drains.
type HandoffOld struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Replaced is when its successor took over.
	Replaced time.Time `json:"replaced"`
	// LeftMS is the time left to its sessions, in milliseconds.
	LeftMS  int64           `json:"left_ms"`
	Workers []HandoffWorker `json:"workers,omitempty"`
}

// HandoffFiles is the body of MsgHandoffFiles and MsgHandoffAck: First is the
// number of the first descriptor, Count how many there are.
type HandoffFiles struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// HandoffReady is the body of MsgHandoffReady.
type HandoffReady struct {
	Generation uint64 `json:"generation"`
	// ColumnsUsed is the number of columns of the shared memory that are in
	// use now.
	ColumnsUsed int `json:"columns_used"`
	// Unused are the keys of listeners that the successor's configuration
	// does not have.
	Unused   []string            `json:"unused,omitempty"`
	Added    []string            `json:"added,omitempty"`
	Removed  []string            `json:"removed,omitempty"`
	Kept     []string            `json:"kept,omitempty"`
	Warnings []config.Diagnostic `json:"warnings,omitempty"`
	// Own are the services whose sockets only the successor has.
	Own []string `json:"own,omitempty"`
	// Family is that of its workers, see Family.
	Family string `json:"family,omitempty"`
}

// HandoffFailed is the body of MsgHandoffFailed.
type HandoffFailed struct {
	Reason string `json:"reason"`
	// Diagnostics are those of a refused configuration.
	Diagnostics []config.Diagnostic `json:"diagnostics,omitempty"`
}

// HandoffCancel is the body of MsgHandoffCancel.
type HandoffCancel struct {
	Reason string `json:"reason"`
	// TimeoutMS is how long the sessions of the successor may go on, in
	// milliseconds.
	TimeoutMS int64 `json:"timeout_ms"`
	// Leave asks the successor, which may not know it, to leave its workers
	// behind instead: the predecessor takes them over with their sessions.
	Leave bool `json:"leave,omitempty"`
}

// HandoffTakeover is the body of MsgHandoffTakeover.
type HandoffTakeover struct {
	// LeftMS is the time the predecessor's sessions have, in milliseconds.
	LeftMS int64 `json:"left_ms"`
}

// HandoffMove is the body of MsgHandoffMove.
type HandoffMove struct {
	Slot int `json:"slot"`
}

// Launch is the body of MsgLaunch.
type Launch struct {
	Binary string   `json:"binary"`
	Args   []string `json:"args"`
	Env    []string `json:"env"`
}

// LaunchKill is the body of MsgLaunchKill.
type LaunchKill struct {
	// Kept are processes that go on.
	Kept []int `json:"kept,omitempty"`
}

// Launched is the body of MsgLaunched and MsgLaunchEnded.
type Launched struct {
	PID int `json:"pid,omitempty"`
	// Error says why nothing was started, or how the process has ended.
	Error string `json:"error,omitempty"`
}
