package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"3proxyd/bench/result"
)

// results is the CSV file that runs are written to, one by one, so that a run
// that was interrupted can be gone on with.
type results struct {
	file *os.File
	out  *result.Writer
	rows []result.Row
}

// openResults goes on with the file --out names, or makes a new one.
func openResults(o *options) (*results, error) {
	name := o.out
	if name == "" {
		name = filepath.Join(o.data, time.Now().Format("20060102-150405")+".csv")
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("make directory for results: %w", err)
	}
	rows, err := readCSV(name)
	if errors.Is(err, fs.ErrNotExist) {
		return createResults(name)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil || strings.TrimRight(line, "\r\n") != strings.Join(result.Names(), ",") {
		_ = f.Close()
		return nil, fmt.Errorf("%s has other columns than this version writes: name another file", name)
	}
	return &results{file: f, out: result.AppendWriter(f), rows: rows}, nil
}

func createResults(name string) (*results, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create results: %w", err)
	}
	w, err := result.NewWriter(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &results{file: f, out: w}, nil
}

func (r *results) name() string { return r.file.Name() }

// add writes a row.
func (r *results) add(row result.Row) error {
	if err := r.out.Write(row); err != nil {
		return err
	}
	r.rows = append(r.rows, row)
	return nil
}

// has tells whether the job has been done.
func (r *results) has(link string, j job) bool {
	for _, row := range r.rows {
		if row.Rep == j.rep && row.Proxy == j.subject.label && row.Scenario == j.sc.Name && row.Link == link && row.Failed == "" {
			return true
		}
	}
	return false
}

// close closes the file, and removes it when nothing was measured. Every row
// has been written and checked before.
func (r *results) close() {
	_ = r.file.Close()
	if len(r.rows) == 0 {
		_ = os.Remove(r.file.Name())
	}
}
