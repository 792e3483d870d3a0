package config

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fakeFiles is an environment whose files are those of the map.
func fakeFiles(files map[string]string) environment {
	return environment{
		open: func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(text), nil
		},
		realPath: func(path string) string { return path },
		uid:      fakeID("nobody", 65534),
		gid:      fakeID("nogroup", 65533),
	}
}

func fakeID(known string, id int) func(string) (int, error) {
	return func(name string) (int, error) {
		if name != known {
			return 0, errors.New("there is no such name")
		}
		return id, nil
	}
}

const testFile = "/etc/t.cfg"

// loadText loads text as testFile, beside the files given.
func loadText(text string, files map[string]string) (*Config, []Diagnostic) {
	return load(testFile, []byte(text), fakeFiles(files))
}

// lines formats diagnostics without the path of testFile.
func lines(diags []Diagnostic) []string {
	var out []string
	for _, d := range diags {
		out = append(out, strings.ReplaceAll(d.String(), testFile+":", ""))
	}
	return out
}

// mustLoad loads text that has neither errors nor warnings.
func mustLoad(t *testing.T, text string) *Config {
	t.Helper()
	c, diags := loadText(text, nil)
	if c == nil || len(diags) > 0 {
		t.Fatalf("load %q:\n%s", text, strings.Join(lines(diags), "\n"))
	}
	return c
}

func wantLines(t *testing.T, got []Diagnostic, want ...string) {
	t.Helper()
	have := strings.Join(lines(got), "\n")
	if have != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", have, strings.Join(want, "\n"))
	}
}

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

func itoa(n int) string { return strconv.Itoa(n) }

// service returns the service with that ID, or nil.
func service(c *Config, id string) *Service {
	for i := range c.Services {
		if c.Services[i].ID == id {
			return &c.Services[i]
		}
	}
	return nil
}
