package result

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSamples_NearestRank(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 9, 10, 11, 99, 100, 101, 1000} {
		var lists []Samples
		var all []time.Duration
		random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // a test that is the same each time
		for range n {
			d := time.Duration(random.IntN(50)) // so that some are equal
			if all = append(all, d); len(lists) == 0 || random.IntN(4) == 0 {
				lists = append(lists, nil)
			}
			lists[len(lists)-1] = append(lists[len(lists)-1], d)
		}
		slices.Sort(all)
		s := Merge(lists...)
		for percent, got := range map[int]time.Duration{50: s.P50(), 90: s.At(0.9), 99: s.P99(), 100: s.At(1)} {
			want := time.Duration(0)
			for _, d := range all { // the smallest that percent of all are not above
				if want = d; 100*countUpTo(all, d) >= percent*n {
					break
				}
			}
			if got != want {
				t.Errorf("%d samples, %d %%: got %d, want %d", n, percent, got, want)
			}
		}
	}
}

func countUpTo(sorted []time.Duration, d time.Duration) (n int) {
	for _, other := range sorted {
		if other <= d {
			n++
		}
	}
	return n
}
