package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
)

// writePIDFile puts the process id into a file; "" is none.
func writePIDFile(path string) error {
	if path == "" {
		return nil
	}
	if err := renameio.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		return fmt.Errorf("pidfile: %w", err)
	}
	return nil
}

// removePIDFile removes the file unless another daemon has written its own.
func removePIDFile(path string) {
	if path == "" {
		return
	}
	data, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(data)) == strconv.Itoa(os.Getpid()) {
		_ = os.Remove(path)
	}
}
