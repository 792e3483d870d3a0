package ipc

// Messages about accepting, between a supervisor and its workers; they are
// needed while two daemons hold the same listening sockets.
const (
	// MsgAccept says whether the worker accepts connections, and whether
	// another daemon holds its listening sockets as well. The worker answers
	// MsgAccepting with the same body.
	MsgAccept Type = 32
	// MsgAccepting answers MsgAccept: what it asks for is in force.
	MsgAccepting Type = 96
)

// Accept is the body of MsgAccept and MsgAccepting. The zero value is what a
// worker does outside an upgrade.
type Accept struct {
	// Paused takes the listening sockets for streams out of the event loop and
	// keeps them: what arrives waits in their queues.
	Paused bool `json:"paused,omitempty"`
	// HoldDatagrams leaves datagrams in the queues of their sockets: unlike
	// connections they belong to sessions, so that one daemon takes them at a
	// time.
	HoldDatagrams bool `json:"hold_datagrams,omitempty"`
	// Keep lists the services for which neither holds.
	Keep []string `json:"keep,omitempty"`
	// Lent says that another daemon has the listening sockets as well: a
	// worker that is left alone must not shut them down.
	Lent bool `json:"lent,omitempty"`
}
