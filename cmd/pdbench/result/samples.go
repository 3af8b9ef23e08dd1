package result

import (
	"math"
	"slices"
	"time"
)

// Samples are durations, all of them: percentiles are exact.
type Samples []time.Duration

// Merge puts the samples of several together, in order.
func Merge(lists ...Samples) Samples {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return all
}

// At returns the sample at a rank, 0 without any: the smallest that at least that share of all is not above (nearest rank). The samples
// are in order.
func (s Samples) At(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

// P50 is the median.
func (s Samples) P50() time.Duration { return s.At(0.5) }

// P99 is the 99th percentile.
func (s Samples) P99() time.Duration { return s.At(0.99) }
