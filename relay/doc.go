// Package relay is the event loop of a worker and the moving of bytes between
// sockets: edge-triggered epoll(7) or io_uring(7), copying through one shared
// buffer, splice(2) through pooled pipes, back pressure, half-close, timers.
//
// # Threads
//
// A Loop and everything that hangs on it (Conn, Flow, Listener, PacketConn,
// Timer) belong to the goroutine that calls Run, which is locked to its thread. Only Post
// may be called from elsewhere. No lock is taken and nothing is allocated for
// an event.
//
// # Interface
//
// The interface is completion-shaped. A Conn that was asked to read calls
// Handler.OnData with what came; Write takes all it is given and OnSent tells
// when the last of it is gone; a Flow moves bytes from one Conn to another by
// itself until a length, the end of the stream or an error ends it. A handler
// never learns whether a call was tried at once, batched or spliced.
//
// Callbacks are made from the loop only, never from within a call that a
// handler makes: StartRead, Write, StartFlow, Connect and Close return first.
// The bytes given to OnData lie in the shared buffer and are valid during the
// call.
//
// # Datagrams
//
// A PacketConn is a datagram socket. Its handler gets what has arrived in
// batches (recvmmsg(2)), at most one for each socket in a turn; Send gathers
// what it is given until the end of the turn and sends it in batches
// (sendmmsg(2)). The buffers are the loop's: a socket that waits has none. What
// the socket has no room for is held up to a limit; beyond it, and where the
// network refuses a datagram, it is dropped and counted. Errors that ICMP has
// told of a connected socket's peer are events; nothing but Close ends a
// PacketConn.
//
// # Descriptors
//
// A Conn owns its descriptor from Open or Connect until Close, which also
// takes it out of its flows and frees what they hold. A Listener borrows its
// descriptor: other processes hold the same socket, so it is taken out of the
// epoll set explicitly before its owner closes it.
//
// # Engines
//
// The engine epoll (epoll.go) learns of readiness and makes the calls itself.
// The engine io_uring (ring*.go) has small messages received into buffers that
// the kernel picks, and sends what was written in a turn with the call that
// waits for the next; so a turn costs one call, however many connections it
// serves. Bulk it polls for, and moves it by the same calls as epoll. At the
// end of a turn each connection that something has happened to (Loop.touch)
// has at most one request for input, one for room to write, and one that
// watches for a hang-up. A request that is under way when a connection is
// closed is cancelled; its completion carries slot and generation and is
// dropped. What a receive brings when nobody wants it is kept, and nothing is
// received until it has been taken.
//
// # Events
//
// With epoll each socket is registered once, for reading, writing, urgent data and
// hang-up, edge-triggered. The event data is a slot of the loop's table and a
// generation; an event of a closed socket finds another generation and is
// dropped. Readiness is remembered in the Conn and cleared by EAGAIN or a
// read that did not fill the buffer. A Conn may do a bounded amount of work in
// a turn; what is left waits in the run list for the next.
package relay
