package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits of what is read. The totals keep files that include each other many
// times without a cycle from growing without bound.
const (
	maxFileSize  = 16 << 20
	maxTotalSize = 64 << 20
	maxFileReads = 4096
	maxNesting   = 16
	readTimeout  = 10 * time.Second
)

// resolvePath returns the path of a file named in another: a relative path
// starts at the directory of the file that names it.
func resolvePath(from, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(from), path)
}

// readFile reads the file that the file from calls path. It returns the
// content and the name to use in positions.
func (l *loader) readFile(from, path string) ([]byte, string, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return nil, "", errors.New("a path cannot hold a NUL byte")
	}
	name := resolvePath(from, path)
	if l.reads++; l.reads > maxFileReads {
		return nil, "", fmt.Errorf("more than %d files were read", maxFileReads)
	}
	data, err := l.env.open(name)
	if err != nil {
		return nil, "", plainError(err)
	}
	if len(data) > maxFileSize {
		return nil, "", fmt.Errorf("the file has more than %d bytes", maxFileSize)
	}
	if l.bytes += len(data); l.bytes > maxTotalSize {
		return nil, "", fmt.Errorf("all files together have more than %d bytes", maxTotalSize)
	}
	l.addFile(name)
	return data, name, nil
}

func (l *loader) addFile(name string) {
	if !slices.Contains(l.cfg.Files, name) {
		l.cfg.Files = append(l.cfg.Files, name)
	}
}

// checkText refuses text with a NUL byte.
func (l *loader) checkText(name string, data []byte) bool {
	i := bytes.IndexByte(data, 0)
	if i < 0 {
		return true
	}
	line := 1 + bytes.Count(data[:i], []byte("\n"))
	column := i - bytes.LastIndexByte(data[:i], '\n')
	l.errorf(Pos{name, line, column}, "NUL byte; this is not a text file")
	return false
}

// plainError drops the operation and path that os puts around an error.
func plainError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// openFile reads a file from disk, at most one byte more than maxFileSize.
// Opening does not wait for the writer of a FIFO, and reading from one is
// bounded in time.
func openFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Regular files have no deadline and need none.
	_ = f.SetReadDeadline(time.Now().Add(readTimeout))
	return io.ReadAll(io.LimitReader(f, maxFileSize+1))
}
