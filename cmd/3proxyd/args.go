package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// commandLine is what the arguments ask for.
type commandLine struct {
	// command is run, check, version or help.
	command string
	config  string
	dump    bool
}

// parseArgs reads the arguments; options may stand before and after the
// command.
func parseArgs(args []string) (commandLine, error) {
	line := commandLine{command: "run"}
	rest, err := line.parseOptions(args)
	if err != nil {
		return line, err
	}
	if len(rest) > 0 {
		line.command = rest[0]
		if rest, err = line.parseOptions(rest[1:]); err != nil {
			return line, err
		}
		if len(rest) > 0 {
			return line, fmt.Errorf("unexpected argument %q", rest[0])
		}
	}
	switch line.command {
	case "run", "check", "version", "help":
	default:
		return line, fmt.Errorf("unknown command %q", line.command)
	}
	if line.dump && line.command != "check" {
		return line, errors.New("--dump belongs to check")
	}
	return line, nil
}

func (l *commandLine) parseOptions(args []string) ([]string, error) {
	flags := flag.NewFlagSet("3proxyd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&l.config, "c", l.config, "")
	flags.BoolVar(&l.dump, "dump", l.dump, "")
	version := flags.Bool("version", false, "")
	flags.BoolVar(version, "V", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		l.command = "help"
		return nil, nil
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "c" && l.config == "" && err == nil {
			err = errors.New("-c: a file name is missing")
		}
	})
	if *version && err == nil {
		l.command = "version"
		return nil, nil
	}
	return flags.Args(), err
}
