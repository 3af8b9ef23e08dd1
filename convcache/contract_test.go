package convcache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/convcache/clocktest"
	"carryover/convcache/convcachetest"
)

// A ticket ends by the clock that is closer to its deadline. The monotonic one stands still while a machine is suspended, and the wall clock may be
// set back.
func TestMemory_KeepsTheContract(t *testing.T) {
	began := time.Now()
	for name, at := range map[string]func(passed time.Duration) time.Time{
		"wall clock alone": time.Unix(1_800_000_000, 0).Add,
		"suspended":        func(passed time.Duration) time.Time { return clocktest.Apart(t, began, passed) },
		"set back":         func(passed time.Duration) time.Time { return clocktest.Apart(t, began.Add(passed), -60*passed) },
	} {
		t.Run(name, func(t *testing.T) {
			convcachetest.Run(t, func(*testing.T) convcachetest.Harness {
				passed := time.Duration(0)
				now := func() time.Time { return at(passed) }
				return convcachetest.Harness{
					Store: convcache.NewMemory(convcache.MemoryConfig{Now: now}), Now: now, Advance: func(d time.Duration) { passed += d },
				}
			})
		})
	}
}

func TestMemory_KeepsTheContractByTheMonotonicClock(t *testing.T) {
	for _, check := range convcachetest.Checks() {
		play(t, 0, check)
	}
}

// play runs a check on a memory of so many entries, with the clock of the bubble.
func play(t *testing.T, entries int, check convcachetest.Check) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := convcache.NewMemory(convcache.MemoryConfig{MaxEntries: entries})
		wait := func(d time.Duration) { <-time.After(d) }
		if err := check.Run(t.Context(), convcachetest.Harness{Store: m, Now: time.Now, Advance: wait}); err != nil {
			t.Errorf("%s: %v", check.Name, err)
		}
	})
}

func TestMemory_MakesRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		entries int
		steps   string
	}{
		"of the conversation least recently used": {3, "put a, in 2, put b, in 1, put c, in 2, peek b," +
			"in 3, put d over c a, in 1, peek, in 2, peek b, in 3, peek d"},
		"of the oldest branch where one conversation fills it": {2, "put a b, put c over a, peek c b"},
		"of what has expired first":                            {2, "put a 1h, in 2, put b 1m, wait 1m, in 3, put c, in 1, peek a, in 2, peek"},
		"of notes like tickets":                                {2, "back a b, put a, in 2, put b, in 3, put c over a, in 1, peek, in 2, peek b"},
		"for a note beside what has expired": {0, "chain a 70 1 2, chain b 100 1 2 3, back a, put b c d e," +
			"put a superseded, wait 1m, put a, peek a"},
		// A put that stores nothing does not make its conversation one that was used.
		"of a conversation whose late note was refused": {2, "chain a 70 1 2, chain b 70 1 2, back b, put a, in 2, put c," +
			"in 1, put b superseded, in 3, put d over a"},
	} {
		play(t, tc.entries, convcachetest.Check{Name: name, Steps: tc.steps})
	}
}
