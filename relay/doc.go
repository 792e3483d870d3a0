// Package relay is the event loop of a worker and the moving of bytes between
// sockets: edge-triggered epoll(7), copying through one shared buffer,
// splice(2) through pooled pipes, back pressure, half-close, timers.
//
// # Threads
//
// A Loop and everything that hangs on it (Conn, Flow, Listener, Timer) belong
// to the goroutine that calls Run, which is locked to its thread. Only Post
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
// # Descriptors
//
// A Conn owns its descriptor from Open or Connect until Close, which also
// takes it out of its flows and frees what they hold. A Listener borrows its
// descriptor: other processes hold the same socket, so it is taken out of the
// epoll set explicitly before its owner closes it.
//
// # Events
//
// Each socket is registered once, for reading, writing, urgent data and
// hang-up, edge-triggered. The event data is a slot of the loop's table and a
// generation; an event of a closed socket finds another generation and is
// dropped. Readiness is remembered in the Conn and cleared by EAGAIN or a
// read that did not fill the buffer. A Conn may do a bounded amount of work in
// a turn; what is left waits in the run list for the next.
package relay
