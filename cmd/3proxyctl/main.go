// Command 3proxyctl asks and controls a running 3proxyd.
//
//	3proxyctl [-s SOCKET] [-o text|json] COMMAND
//
//	status                          what runs, and since when
//	stats                           counters of every service and worker
//	conns                           the live sessions
//	reload                          read the configuration again
//	drain [--worker N] [--timeout S]  stop accepting and end
//
// It exits with 0 on success, 1 on a failure, 2 when the command line is wrong
// and 3 when no daemon answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"3proxyd/ipc"
)

// The exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNoDaemon = 3
)

const usage = `usage: 3proxyctl [-s SOCKET] [-o text|json] COMMAND
  status                            what runs, and since when
  stats                             counters of every service and worker
  conns                             the live sessions
  reload                            read the configuration again
  drain [--worker N] [--timeout S]  stop accepting, finish what runs, and end;
                                    a single worker is replaced
  help                              print this
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// session is one run of the command.
type session struct {
	client *ipc.Client
	line   commandLine
	out    io.Writer
}

var commands = map[string]func(*session, context.Context) error{
	"status": (*session).status,
	"stats":  (*session).stats,
	"conns":  (*session).conns,
	"reload": (*session).reload,
	"drain":  (*session).drain,
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	line, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(stderr, "3proxyctl: %v\n\n%s", err, usage)
		return exitUsage
	}
	if line.command == "help" {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	s := &session{client: ipc.NewClient(line.socket), line: line, out: stdout}
	return report(s, commands[line.command](s, ctx), stderr)
}

// report prints an error and returns the exit code.
func report(s *session, err error, stderr io.Writer) int {
	var failed *ipc.RequestError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, ipc.ErrNoDaemon):
		fmt.Fprintf(stderr, "3proxyctl: %s: %v\n", s.client.Path(), err)
		fmt.Fprintln(stderr, "The daemon prints the path of its control socket when it starts; -s PATH names another.")
		return exitNoDaemon
	case errors.As(err, &failed):
		for _, d := range failed.Diagnostics {
			fmt.Fprintln(stderr, d)
		}
	}
	fmt.Fprintf(stderr, "3proxyctl: %s: %v\n", s.line.command, err)
	return exitFailure
}
