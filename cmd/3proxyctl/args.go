package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"3proxyd/ipc"
)

// commandLine is what the arguments ask for.
type commandLine struct {
	command string
	socket  string
	json    bool
	worker  *int
	timeout *float64
	// dryRun and force belong to reload, follow to drain.
	dryRun, force, follow bool
	// binary and trial belong to upgrade.
	binary string
	trial  *float64
	// wait is how long the daemon may be silent; 0 means the command's own.
	wait time.Duration
}

// parseArgs reads the arguments; options may stand before and after the
// command.
func parseArgs(args []string) (commandLine, error) {
	line := commandLine{socket: defaultSocket()}
	rest, err := line.parseOptions(args)
	if err != nil || line.command != "" {
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
	if commands[line.command] == nil && line.command != "help" && line.command != "version" {
		return line, fmt.Errorf("unknown command %q%s", line.command, elsewhere[line.command])
	}
	return line, line.checkOptions()
}

// elsewhere says where to find what other programs of the kind call by these
// names.
var elsewhere = map[string]string{
	"check":   "; 3proxyd check FILE does it",
	"stop":    "; drain stops the daemon, with --timeout 0 at once",
	"restart": "; upgrade has the binary that is now in place take over, reload the configuration",
	"start":   "; 3proxyd FILE, or systemctl start 3proxyd, does it",
	"top":     "; conns and stats show what goes on",
}

// checkOptions refuses options of other commands.
func (l *commandLine) checkOptions() error {
	switch {
	case l.worker != nil && l.command != "drain":
		return errors.New("--worker belongs to drain")
	case l.timeout != nil && l.command != "drain" && l.command != "upgrade":
		return errors.New("--timeout belongs to drain and upgrade")
	case (l.binary != "" || l.trial != nil) && l.command != "upgrade":
		return errors.New("--binary and --trial belong to upgrade")
	}
	return l.checkSwitches()
}

func (l *commandLine) checkSwitches() error {
	switch {
	case l.command != "reload" && (l.dryRun || l.force):
		return errors.New("--dry-run and --force belong to reload")
	case l.command != "drain" && l.follow:
		return errors.New("--follow belongs to drain")
	case l.follow && l.json:
		return errors.New("--follow prints text only")
	}
	return nil
}

// optionSet is the options of all commands; version says that the version is
// asked for.
func (l *commandLine) optionSet() (flags *flag.FlagSet, version *bool) {
	flags = flag.NewFlagSet("3proxyctl", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&l.socket, "s", l.socket, "")
	flags.StringVar(&l.socket, "socket", l.socket, "")
	flags.Func("o", "", l.setOutput)
	flags.BoolVar(&l.dryRun, "dry-run", l.dryRun, "")
	flags.BoolVar(&l.force, "force", l.force, "")
	flags.BoolVar(&l.follow, "follow", l.follow, "")
	flags.Func("worker", "", func(s string) error {
		n, err := strconv.Atoi(s)
		l.worker = &n
		if err != nil {
			return errors.New("it must be the number of a worker")
		}
		return nil
	})
	flags.Func("timeout", "", func(s string) error { return setSeconds(&l.timeout, s) })
	flags.Func("trial", "", func(s string) error { return setSeconds(&l.trial, s) })
	flags.Func("binary", "", l.setBinary)
	flags.Func("wait", "", func(s string) (err error) {
		if l.wait, err = parseSeconds(s); err == nil && l.wait == 0 {
			err = errors.New("it must be longer than 0")
		}
		return err
	})
	version = flags.Bool("version", false, "")
	flags.BoolVar(version, "V", false, "")
	return flags, version
}

func (l *commandLine) parseOptions(args []string) ([]string, error) {
	flags, version := l.optionSet()
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		l.command = "help"
		return nil, nil
	case err == nil && *version:
		l.command = "version"
		return nil, nil
	}
	return flags.Args(), plainFlagError(err)
}

// plainFlagError names an option as it is written here.
func plainFlagError(err error) error {
	if err == nil {
		return nil
	}
	text := strings.Replace(err.Error(), "flag provided but not defined: -", "unknown option --", 1)
	return errors.New(strings.Replace(text, "for flag -", "for --", 1))
}

func setSeconds(to **float64, s string) error {
	d, err := parseSeconds(s)
	seconds := d.Seconds()
	*to = &seconds
	return err
}

// setBinary makes the path absolute: the daemon has another working directory.
func (l *commandLine) setBinary(path string) (err error) {
	if path == "" {
		return errors.New("the path is empty")
	}
	l.binary, err = filepath.Abs(path)
	return err
}

// parseSeconds reads a number of seconds, or a time with units such as 1h30m.
func parseSeconds(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if f, numErr := strconv.ParseFloat(s, 64); numErr == nil {
		if !(f >= 0 && f <= maxSeconds) {
			return 0, fmt.Errorf("it must be from 0 to %d seconds", int(maxSeconds))
		}
		return time.Duration(f * float64(time.Second)), nil
	}
	if err != nil {
		return 0, errors.New("it must be a number of seconds, or a time such as 90s, 5m or 1h")
	}
	if d < 0 || d.Seconds() > maxSeconds {
		return 0, fmt.Errorf("it must be from 0 to %d seconds", int(maxSeconds))
	}
	return d, nil
}

// maxSeconds bounds a time in seconds: 30 days.
const maxSeconds = 30 * 24 * 3600

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
	own := ipc.ControlPaths(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	for _, path := range own {
		if isSocketOf(path, os.Geteuid()) {
			return path
		}
	}
	for _, path := range ipc.ControlPaths(0, "") {
		if isSocketOf(path, 0) {
			return path
		}
	}
	return own[0]
}

// isSocketOf says whether there is a file at path, in a directory that belongs
// to the user: anybody may make one in /tmp.
func isSocketOf(path string, uid int) bool {
	dir, err := os.Lstat(filepath.Dir(path))
	if err != nil || !dir.IsDir() {
		return false
	}
	st, ok := dir.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != uid || dir.Mode().Perm()&0o022 != 0 {
		return false
	}
	// A directory one may not search is left to connect(2) to complain about.
	_, err = os.Lstat(path)
	return err == nil || errors.Is(err, os.ErrPermission)
}
