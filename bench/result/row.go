// Package result keeps what runs measured: rows of CSV, and tables made of
// them.
package result

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Row is one run of one scenario through one proxy. Times of CPUs and
// processes cover the measurement only. Fields that do not apply are 0.
type Row struct {
	Time     string // when the run ended, RFC 3339
	Rep      int    // repetition, from 1
	Attempt  int    // from 1; more if earlier ones were disturbed
	Scenario string
	Proxy    string
	Group    string // how the proxy moves bulk data: copy, splice, or "" for none
	Version  string
	Machine  string // the CPUs' model and number
	Kernel   string
	CPUs     string
	Link     string // the client's network; "" is a veth pair as it is
	Conns    int
	Active   int // requests under way at a time; 0 is one for each connection
	Seconds  float64
	Requests int64
	Bytes    int64 // body bytes both ways

	// Latency in microseconds.
	P50, P75, P90, P99, P999, Max float64

	Errors   int64
	ErrorsBy string // "kind=count ..."
	Reopened int64
	Unserved int64

	ProxyBusy  float64 // seconds of the proxy's CPUs not idle
	ProxyOwn   float64 // seconds of the proxy's processes
	ClientOwn  float64 // seconds of the load generator
	OriginOwn  float64 // seconds of the origin
	ProxyLoad  float64 // share of the proxy's CPUs that was busy, 0 to 1
	ClientLoad float64 // the same of the client's CPUs
	OriginLoad float64 // the same of the origin's CPUs
	Pace       string  // the roles whose CPUs were busy 90% or more

	MemoryBase int64 // bytes before the first connection
	MemoryPeak int64 // bytes under load

	Syscalls   float64 // for each request, from a pass of its own
	SyscallsBy string  // "name=count ..." for each request

	// Packets both ways on a link made by the wire, while the load ran.
	LinkPackets int64
	LinkLost    int64 // by chance, as the link is to
	LinkDropped int64 // by a connection's full queue
	LinkLate    int64 // carried more than 1 ms after they were due

	Foreign   float64 // share of the roles' CPUs taken by other processes
	Steal     float64 // share of the roles' CPUs taken by the hypervisor
	Disturbed bool    // Foreign or Steal was over the limit

	Failed string // why the run has no figures; "" if it has them
}

// column names a field of Row and converts it.
type column struct {
	name string
	get  func(*Row) string
	set  func(*Row, string) error
}

func text(name string, f func(*Row) *string) column {
	return column{name, func(r *Row) string { return *f(r) }, func(r *Row, s string) error { *f(r) = s; return nil }}
}

func number(name string, f func(*Row) *float64) column {
	return column{name,
		func(r *Row) string { return strconv.FormatFloat(*f(r), 'g', 8, 64) },
		func(r *Row, s string) (err error) { *f(r), err = strconv.ParseFloat(s, 64); return err },
	}
}

func count(name string, f func(*Row) *int64) column {
	return column{name,
		func(r *Row) string { return strconv.FormatInt(*f(r), 10) },
		func(r *Row, s string) (err error) { *f(r), err = strconv.ParseInt(s, 10, 64); return err },
	}
}

func small(name string, f func(*Row) *int) column {
	return column{name,
		func(r *Row) string { return strconv.Itoa(*f(r)) },
		func(r *Row, s string) (err error) { *f(r), err = strconv.Atoi(s); return err },
	}
}

func truth(name string, f func(*Row) *bool) column {
	return column{name,
		func(r *Row) string { return strconv.FormatBool(*f(r)) },
		func(r *Row, s string) (err error) { *f(r), err = strconv.ParseBool(s); return err },
	}
}

var columns = []column{
	text("time", func(r *Row) *string { return &r.Time }),
	small("rep", func(r *Row) *int { return &r.Rep }),
	small("attempt", func(r *Row) *int { return &r.Attempt }),
	text("scenario", func(r *Row) *string { return &r.Scenario }),
	text("proxy", func(r *Row) *string { return &r.Proxy }),
	text("group", func(r *Row) *string { return &r.Group }),
	text("version", func(r *Row) *string { return &r.Version }),
	text("machine", func(r *Row) *string { return &r.Machine }),
	text("kernel", func(r *Row) *string { return &r.Kernel }),
	text("cpus", func(r *Row) *string { return &r.CPUs }),
	text("link", func(r *Row) *string { return &r.Link }),
	small("conns", func(r *Row) *int { return &r.Conns }),
	small("active", func(r *Row) *int { return &r.Active }),
	number("seconds", func(r *Row) *float64 { return &r.Seconds }),
	count("requests", func(r *Row) *int64 { return &r.Requests }),
	count("bytes", func(r *Row) *int64 { return &r.Bytes }),
	number("p50_us", func(r *Row) *float64 { return &r.P50 }),
	number("p75_us", func(r *Row) *float64 { return &r.P75 }),
	number("p90_us", func(r *Row) *float64 { return &r.P90 }),
	number("p99_us", func(r *Row) *float64 { return &r.P99 }),
	number("p999_us", func(r *Row) *float64 { return &r.P999 }),
	number("max_us", func(r *Row) *float64 { return &r.Max }),
	count("errors", func(r *Row) *int64 { return &r.Errors }),
	text("errors_by", func(r *Row) *string { return &r.ErrorsBy }),
	count("reopened", func(r *Row) *int64 { return &r.Reopened }),
	count("unserved", func(r *Row) *int64 { return &r.Unserved }),
	number("proxy_busy_s", func(r *Row) *float64 { return &r.ProxyBusy }),
	number("proxy_own_s", func(r *Row) *float64 { return &r.ProxyOwn }),
	number("client_own_s", func(r *Row) *float64 { return &r.ClientOwn }),
	number("origin_own_s", func(r *Row) *float64 { return &r.OriginOwn }),
	number("proxy_load", func(r *Row) *float64 { return &r.ProxyLoad }),
	number("client_load", func(r *Row) *float64 { return &r.ClientLoad }),
	number("origin_load", func(r *Row) *float64 { return &r.OriginLoad }),
	text("pace", func(r *Row) *string { return &r.Pace }),
	count("memory_base", func(r *Row) *int64 { return &r.MemoryBase }),
	count("memory_peak", func(r *Row) *int64 { return &r.MemoryPeak }),
	number("syscalls", func(r *Row) *float64 { return &r.Syscalls }),
	text("syscalls_by", func(r *Row) *string { return &r.SyscallsBy }),
	count("link_packets", func(r *Row) *int64 { return &r.LinkPackets }),
	count("link_lost", func(r *Row) *int64 { return &r.LinkLost }),
	count("link_dropped", func(r *Row) *int64 { return &r.LinkDropped }),
	count("link_late", func(r *Row) *int64 { return &r.LinkLate }),
	number("foreign", func(r *Row) *float64 { return &r.Foreign }),
	number("steal", func(r *Row) *float64 { return &r.Steal }),
	truth("disturbed", func(r *Row) *bool { return &r.Disturbed }),
	text("failed", func(r *Row) *string { return &r.Failed }),
}

// Writer appends rows to a CSV file.
type Writer struct{ csv *csv.Writer }

// NewWriter writes the line of names.
func NewWriter(w io.Writer) (*Writer, error) {
	out := &Writer{csv.NewWriter(w)}
	return out, out.line(Names())
}

// AppendWriter goes on with a file that begins with the line of names.
func AppendWriter(w io.Writer) *Writer { return &Writer{csv.NewWriter(w)} }

// Names returns the names of the columns in their order.
func Names() []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

// Write appends r, and has it in the file when it returns.
func (w *Writer) Write(r Row) error {
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i] = c.get(&r)
	}
	return w.line(values)
}

func (w *Writer) line(values []string) error {
	if err := w.csv.Write(values); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	w.csv.Flush()
	return w.csv.Error()
}

// Read reads what Writer wrote. Columns are found by name: those it does not
// know are skipped, and those that are missing stay 0.
func Read(r io.Reader) ([]Row, error) {
	in := csv.NewReader(r)
	names, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("read names of columns: %w", err)
	}
	byName := make(map[string]column)
	for _, c := range columns {
		byName[c.name] = c
	}
	var rows []Row
	for {
		values, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		row, err := readRow(names, values, byName)
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		rows = append(rows, row)
	}
}

func readRow(names, values []string, byName map[string]column) (Row, error) {
	var row Row
	for i, name := range names {
		c, ok := byName[name]
		if !ok {
			continue
		}
		if err := c.set(&row, values[i]); err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
	}
	return row, nil
}
