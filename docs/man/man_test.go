package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// harmless are the findings of mandoc(1) about pages that are not installed.
var harmless = []string{"referenced manual not found", "mandoc.db"}

func TestPages(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed")
	}
	markdown, err := os.ReadFile("../configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "3proxyd.cfg.5")
	if err := os.WriteFile(made, []byte(configurationPage(string(markdown))), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"3proxyd.8", "3proxyctl.1", made} {
		found, err := exec.Command(mandoc, "-T", "lint", page).CombinedOutput()
		if _, failed := err.(*exec.ExitError); err != nil && !failed {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(found)) {
			if !strings.Contains(line, harmless[0]) && !strings.Contains(line, harmless[1]) {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
}

func TestMdoc(t *testing.T) {
	for name, c := range map[string]struct{ markdown, want string }{
		"title":   {"# Title", ""},
		"section": {"## The access log\n\nIt is [there](x.md).", ".Sh THE ACCESS LOG\nIt is there.\n"},
		"first":   {"## Names\n\nA.", ".Sh NAME RESOLUTION\nA.\n"},
		"text":    {"One `two -x`. Three 33.\nFour", "One \\fBtwo \\-x\\fR.\nThree 33.\nFour\n"},
		"list":    {"* one\n  more\n* .two", ".Bl -bullet\n.It\none more\n.It\n\\&.two\n.El\n"},
		"example": {"    a \\ b\n    .c", ".Bd -literal -offset indent\na \\e b\n\\&.c\n.Ed\n"},
		"table":   {"| Code | |\n|---|---|\n| `a|b` | done |", ".Bl -tag -width Ds\n.It \\fBa|b\\fR\ndone\n.El\n"},
		"3 columns": {"| Name | Default | |\n|---|---|---|\n| x | 1 | text |\n| y | | text |",
			".Bl -tag -width Ds\n.It x\nDefault: 1\n.br\ntext\n.It y\ntext\n.El\n"},
		"long": {"# T\n\na\n\n" + strings.Repeat("word ", 20), "a\n.Pp\n" + strings.Repeat(" word", 15)[1:] + "\n" + strings.Repeat(" word", 5)[1:] + "\n"},
	} {
		if got := mdoc(c.markdown); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
