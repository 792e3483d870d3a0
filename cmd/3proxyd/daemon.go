package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"3proxyd/internal/version"
	"3proxyd/supervisor"
)

// daemon runs the supervisor until it has drained.
func daemon(line commandLine, stderr io.Writer) int {
	successor, err := supervisor.Succeed(version.String())
	if err != nil {
		fmt.Fprintf(stderr, "3proxyd: %v\n", err)
		return exitFailure
	}
	load := examined(loader(line.config))
	cfg, diags := load()
	if cfg == nil {
		printDiagnostics(stderr, diags)
		successor.Fail(&supervisor.Refused{Reason: "it has errors", Diagnostics: diags})
		return exitFailure
	}
	// The supervisor has little to do: a few threads and a small heap do.
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
	debug.SetGCPercent(50)
	// A reader of the daemon's messages that goes away must not end it.
	signal.Ignore(syscall.SIGPIPE)
	err = supervisor.Run(context.Background(), supervisor.Options{
		Config: cfg, Warnings: diags, Load: load, Version: version.String(), Successor: successor,
	})
	if err == nil {
		return exitOK
	}
	successor.Fail(err)
	refused, ok := supervisor.IsRefused(err)
	if !ok || len(refused.Diagnostics) == 0 {
		fmt.Fprintf(stderr, "3proxyd: %v\n", err)
		return exitFailure
	}
	printDiagnostics(stderr, refused.Diagnostics)
	fmt.Fprintf(stderr, "3proxyd: not started: %s\n", refused.Reason)
	return exitFailure
}
