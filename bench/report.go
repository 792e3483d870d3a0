package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"3proxyd/bench/result"
)

// reportCommand prints tables of CSV files, by default of the newest one.
func reportCommand(args []string) error {
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	data := f.String("data", "bench/data", "directory of the CSV files")
	refs := f.String("ref", "nginx,haproxy", "proxies that the tables compare to")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: bench report [OPTIONS] [FILE...]: tables of the files, or of the newest one")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	files := f.Args()
	if len(files) == 0 {
		newest, err := newestCSV(*data)
		if err != nil {
			return err
		}
		files = []string{newest}
	}
	var rows []result.Row
	for _, name := range files {
		more, err := readCSV(name)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if len(rows) == 0 {
		return errors.New("no runs in the results")
	}
	return result.Tables(os.Stdout, rows, strings.Split(*refs, ","))
}

func newestCSV(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		return "", fmt.Errorf("list results: %w", err)
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no results in %s", dir)
	}
	// The names are times.
	return slices.Max(names), nil
}

func readCSV(name string) ([]result.Row, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	defer f.Close()
	rows, err := result.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}
