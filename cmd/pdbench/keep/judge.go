package keep

import (
	"fmt"
	"math"

	"carryover/cmd/pdbench/result"
)

// tolerated is how much worse than the best fixed policy the learnt one may be, in each figure.
const tolerated = 0.1

// bestFixed is the fixed policy with the least total.
func bestFixed(results map[string]*figures) (name string) {
	least := math.Inf(1)
	for _, p := range policies() {
		if f := results[p.name]; f != nil && p.name != learnt && f.total() < least {
			name, least = p.name, f.total()
		}
	}
	return name
}

// judge compares the learnt policy with the best fixed one.
func judge(workload string, results map[string]*figures) []result.Bar {
	best := bestFixed(results)
	got, want := results[learnt], results[best]
	if got == nil || want == nil {
		return []result.Bar{result.Least(workload, "policies to compare", 0, 2)}
	}
	what := func(figure string) string { return fmt.Sprintf("%s of %s, times those of %s,", figure, learnt, best) }
	return []result.Bar{
		result.Most(workload, what("pinned token-seconds"), ratio(got.pinned, want.pinned), 1+tolerated),
		result.Least(workload, what("tokens that are not computed, by their share,"), ratio(got.hits(), want.hits()), 1-tolerated),
		result.Most(workload, what("seconds of prefill"), ratio(got.prefill(), want.prefill()), 1+tolerated),
	}
}

// ratio of nothing to nothing is 1.
func ratio(got, want float64) float64 {
	if got == want {
		return 1
	}
	return got / want
}

// right says that nothing has gone wrong.
func (f *figures) right(row string) []result.Bar {
	what, failed := "failed turns", f.turns.Failed()
	if len(failed) > 0 {
		what += fmt.Sprintf(" (the first: %v)", failed[0].Err)
	}
	return []result.Bar{
		result.Most(row, what, float64(len(failed)), 0),
		result.Least(row, "turns", float64(len(f.turns)), 1),
		result.Most(row, "misuse", float64(f.counted.Misuse), 0),
		result.Most(row, "preemptions", float64(f.counted.Preempted), 0),
	}
}
