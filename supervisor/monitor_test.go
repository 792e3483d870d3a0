package supervisor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestMonitorLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var m monitor
	paths := []string{path}
	m.noteFiles(paths)
	now := time.Now()
	for i, step := range []struct {
		change  func()
		changed bool
		gone    bool
	}{
		{func() {}, false, false},
		{func() { write("two!") }, false, false}, // may still be being written
		{func() { write("three!!") }, false, false},
		{func() {}, true, false},
		{func() { m.noteFiles(paths) }, false, false},
		{func() { _ = os.Remove(path) }, false, true},
		{func() {}, false, false},
		{func() { write("three!!") }, false, false},
		{func() {}, true, false},
		{func() { m.noteFiles(paths) }, false, false},
		{func() { write("four"); m.noteFiles(paths) }, false, false}, // read by another reload
		{func() { m.retryLater(now) }, false, false},
		{func() { now = now.Add(monitorRetry + time.Second) }, true, false},
	} {
		step.change()
		changed, gone := m.look(paths, now)
		if changed != step.changed || (len(gone) > 0) != step.gone {
			t.Errorf("step %d: changed %v, gone %v", i, changed, gone)
		}
	}
	other := filepath.Join(filepath.Dir(path), "g")
	if changed, gone := m.look([]string{other}, now); changed || !slices.Equal(gone, []string{other}) {
		t.Errorf("a file that was never there: changed %v, gone %v", changed, gone)
	}
}
