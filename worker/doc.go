// Package worker is one worker process: it takes its listening sockets and the
// configuration from the supervisor, accepts connections and serves them.
//
// One goroutine, locked to its thread, runs the event loop (package relay) and
// owns every session, connection, counter and cache of this package. What can
// block runs elsewhere and hands its result to the loop with Loop.Post: the
// goroutine that reads the supervisor's messages, name lookups, the writers of
// access logs, and the listing of sessions.
//
// A session keeps the service, and so the rules, of the generation in which it
// was accepted. Its phases are types over the same struct (httpClient, tunnel
// and so on), each with the callbacks that may come in that phase.
package worker
