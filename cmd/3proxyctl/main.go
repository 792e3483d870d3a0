// Command 3proxyctl asks and controls a running 3proxyd.
//
//	3proxyctl [-s SOCKET] [-o text|json] [--wait S] COMMAND
//
//	status                          what runs, and since when
//	stats                           counters of every service and worker
//	conns                           the live sessions
//	reload [--dry-run] [--force]    read the configuration again
//	rebalance                       move sessions from busy workers to others
//	drain [--worker N] [--timeout S] [--follow]  stop accepting and end
//	upgrade [--binary PATH] [--trial S] [--timeout S]
//	                                a new binary takes over
//	version                         print the version (also --version, -V)
//
// S is a number of seconds, or a time such as 5m or 1h. --wait is how long the
// daemon may be silent: unless given, 15 seconds, 60 for reload, drain and
// rebalance, which may have to wait for workers, and 25 minutes for upgrade.
//
// It exits with 0 on success, 1 on a failure, 2 when the command line is wrong
// and 3 when no daemon answers or the user may not connect to it. With -o json
// a failure is a JSON object with error, and diagnostics if there are any, on
// standard output as well.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"3proxyd/internal/version"
	"3proxyd/ipc"
)

// The exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNoDaemon = 3
)

const synopsis = "usage: 3proxyctl [-s SOCKET] [-o text|json] [--wait S] COMMAND\n"

const usage = synopsis + `  status                            what runs, and since when
  stats                             counters of every service and worker
  conns                             the live sessions
  reload [--dry-run] [--force]      read the configuration again; --dry-run only
                                    says what would change, --force ends the
                                    sessions that are not allowed any more
  drain [--worker N] [--timeout S] [--follow]
                                    stop accepting, finish what runs, and end;
                                    a single worker is replaced; --follow shows
                                    what is left until it is over
  rebalance                         move sessions from busy workers to others
  upgrade [--binary PATH] [--trial S] [--timeout S]
                                    have the binary at PATH, or the one now in
                                    the daemon's own place, take over; it must
                                    be ready within --timeout (30) and stay up
                                    for --trial (upgrade_trial)
  version                           print the version; so do --version and -V
  help                              print this

  -s SOCKET   the control socket, instead of that of your own daemon or, if you
              have none, the system's
  -o json     print JSON instead of text
  --wait S    how long the daemon may be silent: 15 unless given, 60 for reload,
              drain and rebalance, 25m for upgrade

S is a number of seconds, or a time such as 5m or 1h.
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
	"status":    (*session).status,
	"stats":     (*session).stats,
	"conns":     (*session).conns,
	"reload":    (*session).reload,
	"drain":     (*session).drain,
	"rebalance": (*session).rebalance,
	"upgrade":   (*session).upgrade,
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	line, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(stderr, "3proxyctl: %v\n%s3proxyctl help lists the commands and their options\n", err, synopsis)
		return exitUsage
	}
	switch line.command {
	case "help":
		fmt.Fprint(stdout, usage)
		return exitOK
	case "version":
		fmt.Fprintf(stdout, "3proxyctl %s\n", version.String())
		return exitOK
	}
	out := &output{w: stdout}
	s := &session{client: ipc.NewClient(line.socket), line: line, out: out}
	s.client.SetWait(line.waitTime())
	code := report(s, commands[line.command](s, ctx), stderr)
	if out.err != nil {
		fmt.Fprintf(stderr, "3proxyctl: %s: cannot write the output: %v\n", line.command, out.err)
		return exitFailure
	}
	return code
}

// output keeps the first error of writing.
type output struct {
	w   io.Writer
	err error
}

// Write writes, unless it has failed before.
func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.w.Write(b)
	return n, o.err
}

// The times the daemon may be silent. A reload may have to wait for a worker
// that does not answer.
const (
	waitAnswer = 15 * time.Second
	waitChange = 60 * time.Second
	// waitUpgrade is longer than a start and a trial can take.
	waitUpgrade = 25 * time.Minute
)

func (l *commandLine) waitTime() time.Duration {
	switch {
	case l.wait > 0:
		return l.wait
	case l.command == "reload" || l.command == "drain" || l.command == "rebalance":
		return waitChange
	case l.command == "upgrade":
		return waitUpgrade
	}
	return waitAnswer
}

// report prints an error and returns the exit code.
func report(s *session, err error, stderr io.Writer) int {
	var failed *ipc.RequestError
	if err == nil {
		return exitOK
	}
	if s.line.json {
		e := ipc.APIError{Error: err.Error()}
		if errors.As(err, &failed) {
			e.Diagnostics = failed.Diagnostics
		}
		_ = s.asJSON(e)
	}
	switch {
	case errors.Is(err, ipc.ErrNotAllowed):
		fmt.Fprintf(stderr, "3proxyctl: you may not connect to %s; run as %s\n", s.client.Path(), allowed(s.client.Path()))
		return exitNoDaemon
	case errors.Is(err, ipc.ErrSilent):
		fmt.Fprintf(stderr, "3proxyctl: %s: %v (waited %v; --wait S waits longer)\n", s.client.Path(), err, s.line.waitTime())
		return exitNoDaemon
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

// allowed names who may connect to a socket.
func allowed(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "root or as the user of the daemon"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return "root (owner of the socket)"
	}
	name := strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return fmt.Sprintf("root or as %s (owner of the socket)", name)
}
