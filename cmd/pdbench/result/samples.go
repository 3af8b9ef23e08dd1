package result

import (
	"math"
	"slices"
	"time"
)

// Samples are all durations of a measurement, so percentiles are exact.
type Samples []time.Duration

// Merge returns the samples of all lists, in order.
func Merge(lists ...Samples) Samples {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

// At returns the sample at the nearest rank: the smallest one that at least this share of all samples does not exceed, 0 without samples. The
// samples are in order.
func (s Samples) At(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

// P50 returns the median.
func (s Samples) P50() time.Duration { return s.At(0.5) }

// P99 returns the 99th percentile.
func (s Samples) P99() time.Duration { return s.At(0.99) }
