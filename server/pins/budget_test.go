package pins

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// Replicas that know what all of them pin give up at the same time what is too much, and no more, and none goes below its equal part.
func TestPart(t *testing.T) {
	const most = 1000
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		all := make([]int, 1+random.IntN(6))
		before, after := 0, 0
		for i := range all {
			all[i] = random.IntN(most)
			before += all[i]
		}
		for i, own := range all {
			keeps := min(own, part(most, slices.Concat(all[:i], all[i+1:])))
			if after += keeps; keeps < min(own, most/len(all)) {
				t.Fatalf("%v: %d keeps %d", all, own, keeps)
			}
		}
		if want := min(before, most); after > want || after < want-len(all) {
			t.Fatalf("%v: %d are kept, want %d", all, after, want)
		}
	}
}

// others are other replicas, as one hears of them.
type others struct {
	pin []int
	err error
}

func (o *others) SharePinned(context.Context, string, int) ([]int, error) { return o.pin, o.err }

func TestBudget_IsOfAllReplicasWhileTheyAreHeard(t *testing.T) {
	c, o := newCached(t, 0.5), &others{pin: []int{400}}
	b := &budget{cfg: &Config{}, deps: &Deps{Shared: o}, ledger: c.Ledger}
	of := c.all(time.Now())[0]
	want := func(passed time.Duration, keep int) {
		t.Helper()
		of.rounds.asked, of.rounds.heard = of.rounds.asked.Add(-passed), of.rounds.heard.Add(-passed)
		b.share(t.Context(), of, 500)
		if got, _ := c.keep(of, fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000}}}, 500); got != keep {
			t.Errorf("%v later: keeps %d, want %d", passed, got, keep)
		}
	}
	want(0, 250)
	o.pin = []int{100, 20}
	want(0, 250)
	want(budgetEvery, 380)
	o.pin = []int{200}
	c.put(convcache.Key{1}, c.ticket(1, 10, 1), "m")
	want(0, 300)
	o.err = errors.New("down")
	want(convcache.PinnedLife-time.Second, 300)
	want(time.Second, 500)
}

// What else uses an engine's cache bounds tickets before it is full, and requests that wait for room have most of their share.
func TestLedger_LeavesRoomForWhatElseUsesTheCache(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		usage       float64
		short, then int // at the reading, of 400 now
		want        int
	}{
		{0.8, 3, 400, 500}, {0.85, 3, 400, 450}, {0.95, 0, 400, 350}, {0.85, 0, 300, 350}, {0.95, 0, 600, 500}, {1, 0, 100, 250}, {0.91, 1, 400, 125},
	} {
		c := newCached(t, 0.5)
		c.put(convcache.Key{1}, c.ticket(1, 400, 1), "m")
		of := c.all(now)[0]
		of.rounds = rounds{read: now, then: row.then}
		live := fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000, Usage: row.usage, Running: 1, Short: row.short}, Read: now}}
		if got, says := c.keep(of, live, 500); got != row.want || says != (got < 500) {
			t.Errorf("%+v: got %d tokens", row, got)
		}
	}
}
