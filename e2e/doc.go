// Package e2e holds the end-to-end tests. They build 3proxyd and 3proxyctl, run
// them with configurations of their own and drive them with curl, ssh, nc,
// nginx and raw sockets.
//
// Every daemon is checked when its test ends: no session may be open, no
// descriptor may have been added since the start, no process may be left, and
// nothing may have panicked.
//
// Tests that measure run one at a time, before the others. What a test needs
// and the machine does not have makes it skip; the skips are listed at the end.
package e2e
