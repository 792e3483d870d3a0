package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestManual looks for every command and option in the manual page and in what
// help prints.
func TestManual(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/3proxyd.8")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"check", "version", "help"} {
		if !regexp.MustCompile(`(?m)^\.(It )?Cm .*\b`+name+`\b`).Match(page) || !strings.Contains(usage, name) {
			t.Errorf("the command %s is not explained", name)
		}
	}
	flags, _ := new(commandLine).optionSet()
	flags.VisitAll(func(f *flag.Flag) {
		option, written := "-"+f.Name, f.Name
		if len(f.Name) > 1 {
			option, written = "--"+f.Name, "-"+f.Name
		}
		if !regexp.MustCompile(`(?m)(Fl |, )` + regexp.QuoteMeta(written) + `\b`).Match(page) {
			t.Errorf("the manual page has no option %s", option)
		}
		if !strings.Contains(usage, option) {
			t.Errorf("help has no option %s", option)
		}
	})
}
