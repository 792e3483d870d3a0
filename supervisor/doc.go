// Package supervisor runs the daemon: it checks the machine's limits, opens
// every listening socket, starts one worker process per slot and replaces those
// that die, puts new configurations in force, drains, and answers the control
// socket. It relays no traffic.
//
// # Ownership
//
// A snapshot is one generation: configuration, listening sockets, log files.
// Snapshots and listeners are counted; a socket is closed only when no snapshot
// that is in force or still being sent refers to it, so a connection waiting in
// the accept queue of a slot survives its worker.
//
// A slot is the place of one worker: a CPU, its sockets in each listener's
// SO_REUSEPORT group, its rows in the shared memory. One goroutine per slot
// (slot.run) starts, watches and replaces the slot's process; nobody else does.
// A drained process leaves its slot and keeps its row until it ends.
//
// # Upgrades
//
// An upgrade is made by two supervisors: the running one (upgrade.go,
// manifest.go) and its successor (successor.go, takeover.go), which becomes the
// daemon; the other is an old generation then (oldgeneration.go).
//
// # Locks
//
// daemon.change serialises what changes several workers at once: reload,
// adoption of a slot's sockets by another worker, the start of a drain. It may
// be held for some exchanges. process.talk serialises the exchanges with one
// worker. daemon.mu guards plain state and is never held while waiting. They
// are taken in this order.
package supervisor
