package supervisor

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestImports keeps the supervisor and what moves bytes apart.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			for _, bad := range []string{"3proxyd/worker", "3proxyd/relay", "3proxyd/proto/", "unsafe"} {
				if name == bad || strings.HasPrefix(name, bad+"/") {
					t.Errorf("%s imports %s", path, name)
				}
			}
		}
	}
}
