package scenario

import (
	"math"
	"math/rand/v2"
)

// The sizes of answers in a mix are spread as on web sites: by a log-normal
// distribution whose median is 12 KB, cut at 256 bytes and 8 MB.
const (
	mixCount  = 1024
	mixMedian = 12 << 10
	mixSpread = 2.0 // standard deviation of the logarithm
	mixMin    = 256
	mixMax    = 8 << 20
)

// MixSizes returns the sizes in bytes of a mix's answers in the order in which
// they are asked for, over and over. They are the distribution's quantiles in a
// random order that is always the same, so that every run moves the same bytes.
func MixSizes() []int64 {
	sizes := make([]int64, mixCount)
	for i := range sizes {
		p := (float64(i) + 0.5) / mixCount
		size := mixMedian * math.Exp(mixSpread*math.Sqrt2*math.Erfinv(2*p-1))
		sizes[i] = int64(min(max(size, mixMin), mixMax))
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}
