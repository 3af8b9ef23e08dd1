package convcache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
)

func TestMemory_KeepsTheContract(t *testing.T) {
	convcachetest.Run(t, func(*testing.T) convcachetest.Harness {
		at := time.Unix(1_800_000_000, 0) // without a monotonic reading
		now := func() time.Time { return at }
		return convcachetest.Harness{
			Store: convcache.NewMemory(convcache.MemoryConfig{Now: now}), Now: now, Advance: func(d time.Duration) { at = at.Add(d) },
		}
	})
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
	for _, tc := range []struct {
		entries int
		convcachetest.Check
	}{
		{3, convcachetest.Check{Name: "of the conversation least recently used", Steps: "put a, in 2, put b, in 1, put c, in 2, peek b," +
			"in 3, put d over c a, in 1, peek, in 2, peek b, in 3, peek d"}},
		{2, convcachetest.Check{Name: "of the oldest branch where one conversation fills it", Steps: "put a b, put c over a, peek c b"}},
		{2, convcachetest.Check{Name: "of what has expired first", Steps: "put a 1h, in 2, put b 1m, wait 1m, in 3, put c, in 1, peek a, in 2, peek"}},
		{2, convcachetest.Check{Name: "of notes like tickets", Steps: "back a b, put a, in 2, put b, in 3, put c over a, in 1, peek, in 2, peek b"}},
		{0, convcachetest.Check{Name: "for a note beside what has expired", Steps: "chain a 70 1 2, chain b 100 1 2 3, back a, put b c d e," +
			"put a superseded, wait 1m, put a, peek a"}},
		// A put that stores nothing does not make its conversation one that was used.
		{2, convcachetest.Check{Name: "of a conversation whose late note was refused", Steps: "chain a 70 1 2, chain b 70 1 2, back b, put a, in 2, put c," +
			"in 1, put b superseded, in 3, put d over a"}},
	} {
		play(t, tc.entries, tc.Check)
	}
}
