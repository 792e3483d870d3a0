package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// commandLine is what the arguments ask for.
type commandLine struct {
	// command is run, check, version or help.
	command string
	config  string
	dump    bool
}

// parseArgs reads the arguments; options may stand before and after the
// command. The configuration may also be given without -c, as 3proxy takes it:
// 3proxyd FILE, 3proxyd check FILE.
func parseArgs(args []string) (commandLine, error) {
	line := commandLine{command: "run"}
	words, err := line.parseWords(args)
	if err != nil || line.command == "help" || line.command == "version" {
		return line, err
	}
	if len(words) > 0 && !looksLikeFile(words[0]) {
		line.command, words = words[0], words[1:]
	}
	switch line.command {
	case "run", "check":
		words, err = line.takeFile(words)
	case "version", "help":
	default:
		return line, fmt.Errorf("unknown command %q; a configuration whose name has no \".\" or \"/\" is given as -c %s", line.command, line.command)
	}
	if err != nil {
		return line, err
	}
	if len(words) > 0 {
		return line, fmt.Errorf("unexpected argument %q", words[0])
	}
	if line.dump && line.command != "check" {
		return line, errors.New("--dump belongs to check")
	}
	return line, nil
}

// looksLikeFile tells the name of a configuration from a mistyped command.
func looksLikeFile(word string) bool {
	return strings.ContainsAny(word, "./")
}

// takeFile takes the first word as the configuration.
func (l *commandLine) takeFile(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	if l.config != "" {
		return nil, fmt.Errorf("two configurations: %q and %q", l.config, words[0])
	}
	l.config = words[0]
	return words[1:], nil
}

// parseWords reads the options, wherever they stand, and returns the rest.
func (l *commandLine) parseWords(args []string) ([]string, error) {
	var words []string
	for {
		rest, err := l.parseOptions(args)
		if err != nil || len(rest) == 0 {
			return words, err
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

// optionSet is the options of all commands; version says that the version is
// asked for.
func (l *commandLine) optionSet() (flags *flag.FlagSet, version *bool) {
	flags = flag.NewFlagSet("3proxyd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.StringVar(&l.config, "c", l.config, "")
	flags.BoolVar(&l.dump, "dump", l.dump, "")
	version = flags.Bool("version", false, "")
	flags.BoolVar(version, "V", false, "")
	return flags, version
}

func (l *commandLine) parseOptions(args []string) ([]string, error) {
	flags, version := l.optionSet()
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
