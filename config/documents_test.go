package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The configurations in the documents are good.
func TestDocuments(t *testing.T) {
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, path := range append(documents, "../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range configurationsIn(string(text)) {
			found[filepath.Base(path)]++
			if _, diags := loadText(example, nil); len(diags) > 0 {
				t.Errorf("%s:\n%s\n%s", path, example, strings.Join(lines(diags), "\n"))
			}
		}
	}
	if found["README.md"] == 0 || found["howto.md"] < 6 {
		t.Errorf("configurations found: %v", found)
	}
}

// configurationsIn returns the indented blocks of a Markdown text that consist
// of commands and begin a service.
func configurationsIn(text string) []string {
	var blocks []string
	for block := range strings.SplitSeq(text, "\n\n") {
		if example, ok := configurationOf(block); ok {
			blocks = append(blocks, example)
		}
	}
	return blocks
}

func configurationOf(block string) (example string, ok bool) {
	for line := range strings.Lines(block) {
		line, indented := strings.CutPrefix(line, "    ")
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, known := commandTable[name]; !indented || !known {
			return "", false
		}
		switch name {
		case "proxy", "socks", "tlspr", "auto", "tcppm", "udppm", "dnspr":
			ok = true
		}
		example += line
	}
	return example, ok
}

// TestManual looks for every command and option in the document that the manual
// page 3proxyd.cfg(5) is made of.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Clone(allOptions)
	for name, cmd := range commandTable {
		if cmd.run != nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "([^a-z]|[A-Z]|`)").Match(text) {
			t.Errorf("%s is not explained", name)
		}
	}
}
