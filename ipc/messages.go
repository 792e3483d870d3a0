package ipc

// Version is the version of the worker protocol. A supervisor and its workers
// are the same binary, so a difference is an error.
const Version = 1

// WorkerFD is the descriptor on which a worker finds its end of the socket
// pair.
const WorkerFD = 3

// Type is the type of a message.
type Type uint16

// Messages from the supervisor to a worker.
//
// A configuration is put in force in two steps: Prepare, any number of Files,
// then PrepareEnd, which the worker answers with Prepared; then Commit, or
// Abort when another worker could not prepare. Until Commit the previous
// generation stays in force.
const (
	// MsgWelcome is the first message. Descriptors: the shared memory.
	MsgWelcome Type = 1 + iota
	// MsgPrepare begins generation Gen. Descriptors: a memfd with the
	// config.Config as JSON.
	MsgPrepare
	// MsgFiles brings descriptors of generation Gen, one for each entry.
	MsgFiles
	// MsgPrepareEnd says that all descriptors have been sent.
	MsgPrepareEnd
	// MsgCommit puts generation Gen in force.
	MsgCommit
	// MsgAbort forgets the prepared generation Gen.
	MsgAbort
	// MsgAdopt brings listening sockets of another slot, to be served beside
	// the worker's own until MsgDisown (crash back-off, fewer workers).
	MsgAdopt
	// MsgDisown takes the sockets of a slot away again.
	MsgDisown
	// MsgDrain stops accepting; the worker exits when its last session ends
	// or the time is over.
	MsgDrain
	// MsgConns asks for the live sessions. Descriptors: the write end of a
	// pipe, to which the worker writes one Session as JSON per line and which
	// it then closes.
	MsgConns
)

// Messages from a worker to the supervisor.
const (
	// MsgHello is the first message of a worker.
	MsgHello Type = 64 + iota
	// MsgPrepared answers MsgPrepareEnd.
	MsgPrepared
	// MsgCommitted answers MsgCommit.
	MsgCommitted
	// MsgDraining answers MsgDrain: nothing will be accepted any more.
	MsgDraining
	// MsgDisowned answers MsgDisown: the sockets are no longer used.
	MsgDisowned
	// MsgUnrecognized answers a message whose type is not known.
	MsgUnrecognized
)

// Welcome is the body of MsgWelcome.
type Welcome struct {
	Version int `json:"version"`
	// Slot is the worker's slot: the index of its listening sockets.
	Slot int `json:"slot"`
	// Row is the worker's row in the shared memory.
	Row int `json:"row"`
	// Workers is the number of slots.
	Workers int `json:"workers"`
	// CPU is the CPU the worker is pinned to.
	CPU int `json:"cpu"`
	// MaxFDs is the limit of descriptors (RLIMIT_NOFILE) the worker has.
	MaxFDs int `json:"max_fds"`
	// MaxPipes is the worker's share of the pipes that may be open for
	// splicing, PipeSize the size in bytes each is asked to have.
	MaxPipes int `json:"max_pipes"`
	PipeSize int `json:"pipe_size"`
	// Engine is the engine of the event loop, as in the configuration.
	Engine string `json:"engine,omitempty"`
	// Accept is what the worker begins with.
	Accept Accept `json:"accept,omitzero"`
	// Family identifies the daemon to a successor of the supervisor (Family).
	Family string `json:"family,omitempty"`
	// Stored says that a store keeps the listening sockets for a successor.
	Stored bool `json:"stored,omitempty"`
}

// Hello is the body of MsgHello.
type Hello struct {
	Version int `json:"version"`
	PID     int `json:"pid"`
	// Thread is the id of the event loop's thread (gettid(2)).
	Thread int `json:"thread"`
}

// Prepare is the body of MsgPrepare.
type Prepare struct {
	Gen uint64 `json:"gen"`
	// Services has for each service of the configuration, in order, its
	// column in the shared memory and its effective limit of connections.
	Services []ServiceSlot `json:"services"`
	// Pipes is the worker's share of pipes from now on; nil leaves it as it is.
	Pipes *PipeShare `json:"pipes,omitempty"`
}

// PipeShare is how many pipes a worker may have open for splicing, and the size
// in bytes each is asked to have.
type PipeShare struct {
	Max  int `json:"max"`
	Size int `json:"size"`
}

// ServiceSlot is what the supervisor decides about one service.
type ServiceSlot struct {
	Column  int `json:"column"`
	MaxConn int `json:"max_conn"`
}

// FileKind tells what a descriptor of MsgFiles is.
type FileKind string

// The kinds of descriptor.
const (
	// FileListener is a listening socket of this worker's slot.
	FileListener FileKind = "listener"
	// FileSharedListener is a listening socket that all workers share; it is
	// registered with EPOLLEXCLUSIVE.
	FileSharedListener FileKind = "shared-listener"
	// FileLog is an access log opened for appending.
	FileLog FileKind = "log"
)

// FileEntry says what one descriptor of MsgFiles or MsgAdopt is for.
type FileEntry struct {
	Kind FileKind `json:"kind"`
	// Service is the ID of the service a listener belongs to.
	Service string `json:"service,omitempty"`
	// Slot is the slot the listener belongs to; those shared by all workers
	// are numbered from -1 down.
	Slot int `json:"slot,omitempty"`
	// Kept says that the socket goes on listening elsewhere when the daemon
	// gives it up: it must not be shut down.
	Kept bool `json:"kept,omitempty"`
	// Unit is the name of a kept socket in its socket unit
	// (FileDescriptorName=, systemd.socket(5)).
	Unit string `json:"unit,omitempty"`
	// Log is the path of a log, as in config.Log.Path.
	Log string `json:"log,omitempty"`
}

// Files is the body of MsgFiles and MsgAdopt. A message carries at most
// MaxFDs descriptors; more are sent in further messages. Listeners that a
// worker already holds are not sent again: an unchanged service keeps the
// sockets of the previous generation.
type Files struct {
	Gen     uint64      `json:"gen"`
	Entries []FileEntry `json:"entries"`
}

// Generation is the body of MsgPrepareEnd, MsgCommit, MsgAbort and
// MsgCommitted. Force, of MsgCommit, has every session checked against the new
// rules, and not only those of services that ask for it.
type Generation struct {
	Gen   uint64 `json:"gen"`
	Force bool   `json:"force,omitempty"`
}

// Prepared is the body of MsgPrepared; Error is "" on success.
type Prepared struct {
	Gen   uint64 `json:"gen"`
	Error string `json:"error,omitempty"`
	// Engine is the engine that the worker's event loop has.
	Engine string `json:"engine,omitempty"`
}

// Disown is the body of MsgDisown and MsgDisowned.
type Disown struct {
	Slot int `json:"slot"`
}

// Drain is the body of MsgDrain. TimeoutMS is in milliseconds; 0 ends every
// session at once. Final says that nobody takes the listening sockets over: the
// worker accepts what waits in their queues and then shuts them down. Unowned
// lists services to which that applies when Final does not hold for all.
type Drain struct {
	TimeoutMS int64    `json:"timeout_ms"`
	Final     bool     `json:"final,omitempty"`
	Unowned   []string `json:"unowned,omitempty"`
}

// Unrecognized is the body of MsgUnrecognized.
type Unrecognized struct {
	Type Type `json:"type"`
}
