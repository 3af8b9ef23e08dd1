package fleet

import (
	"testing"

	"carryover/upstream"
)

// What an engine publishes at once must not keep picks waiting until it is all noted: a batch may have the blocks of millions of tokens.
func TestHeld_PicksGetTheirTurnWithinAnEvent(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	ids := make([]uint32, 1<<18*usualBlock)
	for i := range ids {
		ids[i] = uint32(i)
	}
	all := blocksOf(ids, usualBlock)
	most := len(ids) / markEvery
	stored, removed := func() { p0.BlocksStored(all) }, func() { p0.BlocksRemoved(all.Hashes) }
	// Whether this goroutine runs while an event is noted is a matter of luck where many others want to run, too.
	amid := map[bool]bool{}
	for n := 0; n < 50 && (!amid[false] || !amid[true]); n++ {
		tell := stored
		if n%2 == 1 {
			tell = removed
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			tell()
		}()
		for running := true; running; {
			select {
			case <-over:
				running = false
			default:
			}
			w.prefixes.mu.Lock()
			marks := len(w.prefixes.marks)
			w.prefixes.mu.Unlock()
			amid[n%2 == 1] = amid[n%2 == 1] || marks > 0 && marks < most
		}
	}
	if !amid[false] || !amid[true] {
		t.Errorf("could a pick look at what engines hold before all of an event was noted: stored %t, removed %t", amid[false], amid[true])
	}
}

// An engine that publishes more than is kept of it takes no more memory than that.
func TestHeld_TooMuchAtOnce(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	all := Blocks{Root: true, Size: 1, Hashes: make([]uint64, maxHeld+2), Tokens: make([]uint32, maxHeld+2)}
	for i := range all.Hashes {
		all.Hashes[i] = uint64(i)
	}
	p0.BlocksStored(all)
	if p0.held.known || p0.held.blocks != nil || len(w.prefixes.marks) > 0 || p0.slot != 0 {
		t.Errorf("known %t, %d blocks, %d places, slot %d; want nothing of an engine with so much", p0.held.known, len(p0.held.blocks), len(w.prefixes.marks), p0.slot)
	}
}

// Where more engines hold the same than a pick looks at, all get their turn, and the one that holds more is always among them.
func TestHeld_ManyHoldTheSame(t *testing.T) {
	f, hint := told(t)
	var seen seen
	f.cfg.Prefill = &seen
	engines := f.engines[upstream.RolePrefill]
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
		if n < maxCredits || n > maxCredits+1 { // and the one that the prompt is sent to
			t.Fatalf("%d engines are looked at, want %d", n, maxCredits)
		}
		if got := seen.candidates[engines[500].Name].Prefix; got != len(hint.Chain) {
			t.Fatalf("the one that holds all of the prompt counts as having %d pieces of %d", got, len(hint.Chain))
		}
	}
	if len(credited) < len(engines)*9/10 {
		t.Errorf("%d engines of %d got their turn", len(credited), len(engines))
	}
}
