package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"3proxyd/bench/plots"
	"3proxyd/bench/result"
)

// reportCommand makes a page and pictures of CSV files, by default of the
// newest one.
func reportCommand(args []string) error {
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	data := f.String("data", "bench/data", "directory of the CSV files")
	refs := f.String("ref", defaultRefs, "proxies that throughput is shown in relation to")
	out := f.String("out", "bench/RESULTS.md", "the page; pictures go into the directory pictures beside it")
	text := f.Bool("text", false, "print tables as run does, and make no page")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: bench report [OPTIONS] [FILE...]: a page of the runs in the files, or in the newest one")
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
	if !*text {
		if err := growthPage(*data, filepath.Join(filepath.Dir(*out), growthFile)); err != nil {
			return err
		}
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
	if *text {
		return result.Tables(os.Stdout, rows, strings.Split(*refs, ","))
	}
	return writePage(*out, files, rows, strings.Split(*refs, ","))
}

// picturesDir is where a page's pictures are, beside it.
const picturesDir = "pictures"

func writePage(name string, sources []string, rows []result.Row, refs []string) error {
	pictures, err := plots.Draw(filepath.Join(filepath.Dir(name), picturesDir), rows, refs)
	if err != nil {
		return err
	}
	page := result.Page{Plots: picturesDir, Files: pictures}
	for _, s := range sources {
		page.Sources = append(page.Sources, filepath.Base(s))
	}
	if err := replaceFile(name, func(w io.Writer) error { return result.Markdown(w, rows, page) }); err != nil {
		return err
	}
	fmt.Printf("%s, and %d pictures in %s\n", name, len(pictures), filepath.Join(filepath.Dir(name), picturesDir))
	return nil
}

// growthPage makes the page of the growth tests in the directory data, if there
// are any.
func growthPage(data, name string) error {
	rows, err := readCSV(filepath.Join(data, growthCSV))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := replaceFile(name, func(w io.Writer) error { return result.Growth(w, rows, growthCSV) }); err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}

func replaceFile(name string, write func(io.Writer) error) error {
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("create page: %w", err)
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Cleanup())
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

func newestCSV(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		return "", fmt.Errorf("list results: %w", err)
	}
	// The growth tests have a page of their own.
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == growthCSV })
	if len(names) == 0 {
		return "", fmt.Errorf("no results in %s", dir)
	}
	newest, last := "", time.Time{}
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			return "", fmt.Errorf("list results: %w", err)
		}
		if !st.ModTime().Before(last) {
			newest, last = name, st.ModTime()
		}
	}
	return newest, nil
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
