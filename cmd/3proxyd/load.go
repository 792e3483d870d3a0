package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"3proxyd/config"
)

// defaultConfig is read when no file is named.
const defaultConfig = "/etc/3proxy/3proxy.cfg"

// loader returns the function that loads the configuration the command line
// names. The path is made absolute, so that a reload reads the same file.
func loader(path string) (func() (*config.Config, []config.Diagnostic), error) {
	if path == "" {
		_, err := os.Stat(defaultConfig)
		if errors.Is(err, fs.ErrNotExist) {
			return config.LoadBuiltin, nil
		}
		path = defaultConfig
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return func() (*config.Config, []config.Diagnostic) { return config.Load(path) }, nil
}

func printDiagnostics(w io.Writer, diags []config.Diagnostic) {
	for _, d := range diags {
		fmt.Fprintln(w, d)
	}
}
