package main

import (
	"math"
	"slices"
	"time"
)

// maxSamples bounds what is kept of one kind: 128 MB. A measurement that has more is refused, because percentiles of a part are not exact.
const maxSamples = 1 << 24

// merge puts the samples of several together, in order.
func merge(lists ...samples) samples {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	all := make(samples, 0, n)
	for _, list := range lists {
		all = append(all, list...)
	}
	slices.Sort(all)
	return all
}

// at returns the sample at a rank, 0 without any: the smallest that at least that share of all is not above (nearest rank). The samples
// are in order.
func (s samples) at(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

func (s samples) p50() time.Duration { return s.at(0.5) }
func (s samples) p90() time.Duration { return s.at(0.9) }
func (s samples) p99() time.Duration { return s.at(0.99) }
func (s samples) max() time.Duration { return s.at(1) }
