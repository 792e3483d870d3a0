package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMisplacedLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "log")
	fd, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	l := logFile{path, fd}
	defer closeLogs([]logFile{l})
	check := func(want string) {
		t.Helper()
		err := l.misplaced()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v instead of %q", err, want)
		}
	}
	check("")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	check("is gone")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("another file")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	check("is gone")
}
