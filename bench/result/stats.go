package result

import (
	"math"
	"slices"
)

// Spread is the median of values and their range.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// NewSpread returns the spread of values; numbers that are not finite are left
// out. N is 0 when nothing is left.
func NewSpread(values []float64) Spread {
	var v []float64
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Spread{Median: median, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// PerUnit returns the CPU time that is spent for one unit of work: microseconds
// for a request, seconds for 10^9 bytes of a stream, or the share of a CPU when
// there is no work.
func (r *Row) PerUnit(seconds float64) float64 {
	switch {
	case r.Requests > 0:
		return seconds * 1e6 / float64(r.Requests)
	case r.Bytes > 0:
		return seconds * 1e9 / float64(r.Bytes)
	case r.Seconds > 0:
		return seconds / r.Seconds
	}
	return math.NaN()
}

// PerGB returns the CPU seconds for 10^9 body bytes; NaN without bytes.
func (r *Row) PerGB(seconds float64) float64 {
	if r.Bytes == 0 {
		return math.NaN()
	}
	return seconds * 1e9 / float64(r.Bytes)
}

// Unit names what PerUnit returns.
func (r *Row) Unit() string {
	switch {
	case r.Requests > 0:
		return "us/req"
	case r.Bytes > 0:
		return "s/GB"
	}
	return "CPUs"
}

// MemoryPerConn returns the memory of the proxy in bytes for each connection.
func (r *Row) MemoryPerConn() float64 {
	if r.Conns == 0 {
		return math.NaN()
	}
	return float64(r.MemoryPeak-r.MemoryBase) / float64(r.Conns)
}
