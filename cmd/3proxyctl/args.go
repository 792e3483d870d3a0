package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"3proxyd/ipc"
)

// commandLine is what the arguments ask for.
type commandLine struct {
	command string
	socket  string
	json    bool
	worker  *int
	timeout *float64
}

// parseArgs reads the arguments; options may stand before and after the
// command.
func parseArgs(args []string) (commandLine, error) {
	line := commandLine{socket: defaultSocket()}
	rest, err := line.parseOptions(args)
	if err != nil || line.command == "help" {
		return line, err
	}
	if len(rest) == 0 {
		return line, errors.New("a command is missing")
	}
	line.command = rest[0]
	if rest, err = line.parseOptions(rest[1:]); err != nil {
		return line, err
	}
	if len(rest) > 0 {
		return line, fmt.Errorf("unexpected argument %q", rest[0])
	}
	if commands[line.command] == nil && line.command != "help" {
		return line, fmt.Errorf("unknown command %q", line.command)
	}
	if line.command != "drain" && (line.worker != nil || line.timeout != nil) {
		return line, errors.New("--worker and --timeout belong to drain")
	}
	return line, nil
}

func (l *commandLine) parseOptions(args []string) ([]string, error) {
	flags := flag.NewFlagSet("3proxyctl", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&l.socket, "s", l.socket, "")
	flags.StringVar(&l.socket, "socket", l.socket, "")
	flags.Func("o", "", l.setOutput)
	flags.Func("worker", "", func(s string) error {
		n, err := strconv.Atoi(s)
		l.worker = &n
		return err
	})
	flags.Func("timeout", "", func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		l.timeout = &f
		return err
	})
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		l.command = "help"
		return nil, nil
	}
	return flags.Args(), err
}

func (l *commandLine) setOutput(format string) error {
	if format != "text" && format != "json" {
		return errors.New("the formats are text and json")
	}
	l.json = format == "json"
	return nil
}

// defaultSocket is the control socket of the user's own daemon if there is
// one, else that of the system's.
func defaultSocket() string {
	own := ipc.DefaultControlPath(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	if _, err := os.Stat(own); err != nil {
		if _, err := os.Stat(ipc.SystemControlPath); err == nil {
			return ipc.SystemControlPath
		}
	}
	return own
}
