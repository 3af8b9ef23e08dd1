package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/prefixindex"
)

// Where more engines hold the same than a pick looks at, all get their turn, and the one that holds more is always among them.
func TestCachedBlocks_ManyEnginesCacheTheSame(t *testing.T) {
	f, hint := told(t)
	var seen seen
	f.picking.prefill = &seen
	engines := f.Engines(upstream.RolePrefill)
	credited := map[string]int{}
	const picks = 100
	for range picks {
		_, done, err := f.Pick(upstream.RolePrefill, hint, nil)
		if err != nil {
			t.Fatal(err)
		}
		done()
		n := 0
		for name, c := range seen.candidates {
			if c.Prefix > 0 {
				n++
				credited[name]++
			}
		}
		if n < prefixindex.MaxCredits || n > prefixindex.MaxCredits+1 { // and the one that the prompt is sent to
			t.Fatalf("%d engines are looked at, want %d", n, prefixindex.MaxCredits)
		}
		if got := seen.candidates[engines[500].Name].Prefix; got != len(hint.Chain) {
			t.Fatalf("the one that holds all of the prompt counts as having %d pieces of %d", got, len(hint.Chain))
		}
	}
	if len(credited) < len(engines)*9/10 {
		t.Errorf("%d engines of %d got their turn", len(credited), len(engines))
	}
}
