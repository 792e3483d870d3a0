// Package ipc holds everything the processes of the daemon say to each other:
//
//   - messages between the supervisor and a worker (messages.go), framed over
//     a SOCK_SEQPACKET socket pair with descriptors as SCM_RIGHTS (conn.go);
//   - messages between two workers that hand sessions over (move.go), versioned
//     apart, because they may be of different binaries;
//   - the handoff of everything a daemon owns to its successor (handoff.go);
//   - the shared memory with counters and limits (shm.go, ledger.go);
//   - the control API of the supervisor (control.go): JSON over HTTP on a Unix
//     socket, spoken by 3proxyctl.
//
// It knows nothing of sockets being served, of the configuration's meaning or
// of process life cycles.
package ipc
