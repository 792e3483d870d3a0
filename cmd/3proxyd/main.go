// Command 3proxyd is a proxy server configured by the 3proxy.cfg language.
//
//	3proxyd [FILE]                 run the daemon
//	3proxyd check [FILE] [--dump]  check a configuration, start nothing
//	3proxyd version                print the version (also --version, -V)
//	3proxyd help                   print how to use it
//
// It exits with 0 when it has drained or the configuration is good, with 1 on
// a failure and with 2 when the command line is wrong.
package main

import (
	"fmt"
	"io"
	"os"

	"3proxyd/internal/version"
	"3proxyd/ipc"
	"3proxyd/supervisor"
	"3proxyd/worker"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	switch os.Getenv(supervisor.RoleEnv) {
	case supervisor.RoleWorker:
		os.Exit(runWorker())
	case supervisor.RoleLauncher:
		os.Exit(runLauncher())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// runWorker is the process the supervisor starts; it has its end of the socket
// pair as a descriptor.
func runWorker() int {
	// Started from /proc/self/exe the process is named "exe"; ps(1) and
	// top(1) show this instead. Its failure changes nothing else.
	_ = os.WriteFile("/proc/self/comm", []byte("3proxyd"), 0)
	return worker.Run(ipc.WorkerFD)
}

// runLauncher is the process between a daemon and the one that is to replace
// it.
func runLauncher() int {
	_ = os.WriteFile("/proc/self/comm", []byte("3proxyd"), 0)
	return supervisor.RunLauncher()
}

const usage = `usage:
  3proxyd [FILE]                 run the daemon
  3proxyd check [FILE] [--dump]  check a configuration, start nothing;
                                 --dump prints what is in force as JSON
  3proxyd version                print the version; so do --version and -V
  3proxyd help                   print this

FILE may also be given as -c FILE. Without it the configuration is ` + defaultConfig + ` if it exists, else
a built-in one: an HTTP and a SOCKS proxy for this host only.
The running daemon is controlled by 3proxyctl. SIGHUP reloads; SIGUSR2 has the
binary that is now in the place of the running one take over; SIGTERM and
SIGINT drain, and end at once when they come again.
`

func run(args []string, stdout, stderr io.Writer) int {
	line, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(stderr, "3proxyd: %v\n\n%s", err, usage)
		return exitUsage
	}
	switch line.command {
	case "help":
		fmt.Fprint(stdout, usage)
		return exitOK
	case "version":
		fmt.Fprintf(stdout, "3proxyd %s\n", version.String())
		return exitOK
	case "check":
		return check(line, stdout, stderr)
	}
	return daemon(line, stderr)
}
