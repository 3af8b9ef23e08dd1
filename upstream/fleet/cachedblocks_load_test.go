package fleet

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
)

// What an engine publishes at once must not keep picks waiting until it is all noted: a batch may have the blocks of millions of tokens.
func TestCachedBlocks_PicksGetTheirTurnWithinAnEvent(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	ids := make([]uint32, 1<<18*usualBlock)
	for i := range ids {
		ids[i] = uint32(i)
	}
	all := blocksOf(ids, usualBlock)
	most := len(ids) / markEvery
	for _, event := range []struct {
		name string
		tell func()
	}{
		{"stored", func() { p0.BlocksStored(all) }},
		{"removed", func() { p0.BlocksRemoved(all.Hashes) }},
	} {
		// Some pick always waits, and for more than a millisecond, so that the lock goes round in the order of those that wait for it
		// (sync.Mutex). Whether a single one runs while an event is noted would be a matter of luck.
		var amid atomic.Bool
		over := make(chan struct{})
		var picks sync.WaitGroup
		for range 4 {
			picks.Go(func() {
				for !amid.Load() {
					select {
					case <-over:
						return
					default:
					}
					w.prefixes.mu.Lock()
					if marks := len(w.prefixes.marks); marks > 0 && marks < most {
						amid.Store(true)
					}
					<-time.After(2 * time.Millisecond)
					w.prefixes.mu.Unlock()
				}
			})
		}
		event.tell()
		close(over)
		picks.Wait()
		if !amid.Load() {
			t.Errorf("%s: no pick could look at what engines hold before all of the event was noted", event.name)
		}
	}
}

// An engine that publishes more than is kept of it takes no more memory than that.
func TestCachedBlocks_TooMuchAtOnce(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	all := Blocks{Root: true, Size: 1, Hashes: make([]uint64, maxCachedBlocks+2), Tokens: make([]uint32, maxCachedBlocks+2)}
	for i := range all.Hashes {
		all.Hashes[i] = uint64(i)
	}
	p0.BlocksStored(all)
	if p0.cached.known || p0.cached.blocks != nil || len(w.prefixes.marks) > 0 || p0.slot != 0 {
		t.Errorf("known %t, %d blocks, %d places, slot %d; want nothing of an engine with so much", p0.cached.known, len(p0.cached.blocks), len(w.prefixes.marks), p0.slot)
	}
}

// Where more engines hold the same than a pick looks at, all get their turn, and the one that holds more is always among them.
func TestCachedBlocks_ManyEnginesCacheTheSame(t *testing.T) {
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
