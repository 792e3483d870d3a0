package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// The histogram covers 1 us to 100 s with three significant digits.
const (
	minLatency = int64(time.Microsecond)
	maxLatency = int64(100 * time.Second)
)

// record collects one measurement.
type record struct {
	active   bool
	start    int64
	end      int64
	requests int64
	bytes    int64
	reopened int64
	errors   map[string]int64
	hist     *hdrhistogram.Histogram
	cpu      int64
}

func newRecord() record {
	return record{errors: make(map[string]int64), hist: hdrhistogram.New(minLatency, maxLatency, 3)}
}

// begin starts a measurement of length d at the time now.
func (r *record) begin(now int64, d time.Duration) error {
	r.hist.Reset()
	clear(r.errors)
	r.requests, r.bytes, r.reopened = 0, 0, 0
	r.start, r.end, r.active = now, now+int64(d), true
	cpu, err := ownCPU()
	r.cpu = cpu
	return err
}

func (r *record) latency(ns int64) {
	// Out of range is impossible after the clamp.
	_ = r.hist.RecordValue(min(max(ns, minLatency), maxLatency))
}

// finish ends the measurement at the time now.
func (r *record) finish(now int64) (*Result, error) {
	r.active = false
	cpu, err := ownCPU()
	if err != nil {
		return nil, err
	}
	res := &Result{
		Nanos: now - r.start, Requests: r.requests, Bytes: r.bytes,
		Reopened: r.reopened, Errors: r.errors, CPU: cpu - r.cpu,
	}
	if r.hist.TotalCount() > 0 {
		q := r.hist.ValueAtQuantile
		res.Latency = Latency{
			P50: q(50), P75: q(75), P90: q(90), P99: q(99), P999: q(99.9),
			Max: r.hist.Max(), Mean: int64(r.hist.Mean()),
		}
	}
	return res, nil
}

// ownCPU returns the user and system time of this process in nanoseconds.
func ownCPU() (int64, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return ru.Utime.Nano() + ru.Stime.Nano(), nil
}
