package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"3proxyd/config"
)

// defaultConfig is read when no file is named.
const defaultConfig = "/etc/3proxy/3proxy.cfg"

// loader returns the function that loads the configuration the command line
// names.
func loader(path string) func() (*config.Config, []config.Diagnostic) {
	if path == "" {
		if _, err := os.Stat(defaultConfig); errors.Is(err, fs.ErrNotExist) {
			return config.LoadBuiltin
		}
		path = defaultConfig
	}
	return func() (*config.Config, []config.Diagnostic) { return config.Load(path) }
}

func printDiagnostics(w io.Writer, diags []config.Diagnostic) {
	for _, d := range diags {
		fmt.Fprintln(w, d)
	}
}
