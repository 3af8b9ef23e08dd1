package pins

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
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
	r, o := alone(t), &others{pin: []int{400}}
	r.deps.Shared = o
	h := r.holder(r.decode)
	want := func(passed time.Duration, keep int) {
		t.Helper()
		h.heard = h.heard.Add(-passed)
		r.share(t.Context(), h)
		if got := h.keep(fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000}}}, 500); got != keep {
			t.Errorf("%v later: keeps %d, want %d", passed, got, keep)
		}
	}
	want(0, 250)
	o.pin = []int{100, 20}
	want(0, 250)
	want(budgetEvery, 380)
	o.pin = []int{200}
	want(0, 380)
	want(budgetEvery, 300)
	o.err = errors.New("down")
	want(convcache.PinnedLife-time.Second, 300)
	want(time.Second, 500)
}

// keeping is a holder on which stored tickets pin so much.
func keeping(tokens int, of holder) *holder {
	of.tokens[stored] = tokens
	return &of
}

// What else uses an engine's cache bounds tickets before it is full, and requests that wait for room have most of their share.
func TestKeep_LeavesRoomForWhatElseUsesTheCache(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		usage       float64
		short, then int // at the reading, of 400 now
		want        int
	}{
		{0.8, 3, 400, 500}, {0.85, 3, 400, 450}, {0.95, 0, 400, 350}, {0.85, 0, 300, 350}, {0.95, 0, 600, 500}, {1, 0, 100, 250}, {0.91, 1, 400, 125},
	} {
		live := fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000, Usage: row.usage, Running: 1, Short: row.short}, Read: now}}
		if got := keeping(400, holder{read: now, then: row.then}).keep(live, 500); got != row.want {
			t.Errorf("%+v: got %d tokens", row, got)
		}
	}
}

// The oldest go first, of the account that pins most, and the budget is asked for a round when a ticket exceeds it.
func TestBudget_GivesUpTheOldest(t *testing.T) {
	r := alone(t)
	r.cfg.PinnedShare = 0.05 // of 1,000 tokens
	for i := range byte(7) {
		r.put(i, 10, "")
		if asked := len(r.over) == 1; asked != (i >= 5) {
			t.Errorf("behind ticket %d a round is asked for: %t", i, asked)
		}
	}
	h := r.holder(r.decode)
	quiet := r.put(8, 10, "quiet")
	r.giveUpOldest(h, 30)
	if tickets := len(r.late); tickets != 5 {
		t.Fatalf("gave up %d tickets", tickets)
	}
	r.takeLate(t.Context())
	r.giveUpOldest(h, 30)
	if tickets := len(r.late); tickets != 0 || r.pins[quiet.ID].state != stored || r.Pinned(r.decode.Engine()) != 80 {
		t.Errorf("gave up %d tickets more; the quiet account's ticket is %s, %d pinned", tickets, r.pins[quiet.ID].state, r.Pinned(r.decode.Engine()))
	}
}

// The tickets of an engine that leaves are handed back for a while if they can be, and then released.
func TestEvacuate_ReleasesWhatWaitsForTooLong(t *testing.T) {
	r := alone(t)
	ticket, other := r.put(1, 10, ""), r.put(2, 10, "")
	r.plan(ticket.ID, r.now().Add(time.Hour), time.Time{})
	n, h := r.pins[ticket.ID], r.holder(r.decode)
	r.fleet.Drain(upstream.RoleDecode, "d", true)
	r.evacuate()
	r.takeLate(t.Context())
	if n.state != stored || n.in == nil || r.pins[other.ID].state != due {
		t.Fatalf("at first it is %s, and the other one is %s", n.state, r.pins[other.ID].state)
	}
	h.leaving = time.Now().Add(-handBackWithin)
	r.evacuate()
	r.takeLate(t.Context())
	if n.state != due || len(h.due) != 2 {
		t.Errorf("later it is %s, and %d wait for a release", n.state, len(h.due))
	}
}
