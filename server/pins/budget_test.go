package pins

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
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
		h.rounds.asked, h.rounds.heard = h.rounds.asked.Add(-passed), h.rounds.heard.Add(-passed)
		r.share(t.Context(), h, 500)
		if got := h.keep(fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000}}}, 500); got != keep {
			t.Errorf("%v later: keeps %d, want %d", passed, got, keep)
		}
	}
	want(0, 250)
	o.pin = []int{100, 20}
	want(0, 250)
	want(budgetEvery, 380)
	o.pin = []int{200}
	r.put(1, 10, "")
	want(0, 300)
	o.err = errors.New("down")
	want(convcache.PinnedLife-time.Second, 300)
	want(time.Second, 500)
}

// keeping is a holder on which stored tickets pin so much.
func keeping(tokens int, of rounds) *holder {
	h := &holder{rounds: of}
	h.tokens[stored] = tokens
	return h
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
		if got := keeping(400, rounds{read: now, then: row.then}).keep(live, 500); got != row.want {
			t.Errorf("%+v: got %d tokens", row, got)
		}
	}
}

// Of an idle engine all that is in use is pinned: each replica keeps its part of the budget.
func TestKeep_ReplicasKeepTheirPart(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		change func(*fleet.Live)
		b      rounds
		want   int
	}{
		"others pin as much":        {nil, rounds{}, 250},
		"it runs something":         {func(l *fleet.Live) { l.Running = 1 }, rounds{}, 500},
		"something waits":           {func(l *fleet.Live) { l.Waiting = 1 }, rounds{}, 500},
		"a turn of ours runs":       {func(l *fleet.Live) { l.InFlight = 1 }, rounds{}, 500},
		"it is within the budget":   {func(l *fleet.Live) { l.Usage = 0.5 }, rounds{}, 500},
		"it was never read":         {func(l *fleet.Live) { l.Read = time.Time{} }, rounds{}, 500},
		"it was read before":        {nil, rounds{changed: now.Add(time.Millisecond)}, 500},
		"it was compared just now":  {nil, rounds{compared: now.Add(-time.Second)}, 500},
		"it was compared long ago":  {nil, rounds{compared: now.Add(-time.Minute), changed: now.Add(-time.Second)}, 250},
		"what is in use is our own": {func(l *fleet.Live) { l.Usage = 0.4 }, rounds{}, 500},
	} {
		idle := fleet.Live{Load: fleet.Load{Use: facts.Use{KVTokens: 1000, Usage: 0.8}, Read: now}}
		if tc.change != nil {
			tc.change(&idle)
		}
		if got := keeping(400, tc.b).keep(idle, 500); got != tc.want {
			t.Errorf("%s: got %d tokens, want %d", name, got, tc.want)
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
	if tickets := r.giveUpOldest(h, 30, continuation.Release, ""); tickets != 5 {
		t.Fatalf("gave up %d tickets", tickets)
	}
	r.takeLate(t.Context())
	if tickets := r.giveUpOldest(h, 30, continuation.Release, ""); tickets != 0 || r.pins[quiet.ID].state != stored || r.Pinned(r.decode.Engine()) != 80 {
		t.Errorf("gave up %d tickets more; the quiet account's ticket is %s, %d pinned", tickets, r.pins[quiet.ID].state, r.Pinned(r.decode.Engine()))
	}
}

// The tickets of an engine that leaves are handed back for a while, and then released, those that still wait for a hand-back too.
func TestEvacuate_ReleasesWhatWaitsForTooLong(t *testing.T) {
	r := alone(t)
	ticket := r.answer(10)
	r.Answered(Answer{}, &ticket)
	n, h := r.pins[ticket.ID], r.holder(r.decode)
	n.Prefill, n.Decode, n.ids = r.prefill, r.decode, noIDs{}
	if !r.HandBack(ticket, 0) {
		t.Fatal("it is not to be handed back")
	}
	r.fleet.Drain(upstream.RoleDecode, "d", true)
	if r.evacuate(); n.state != due || n.end != continuation.HandBack {
		t.Fatalf("at first it is %s, with the end %v", n.state, n.end)
	}
	h.leaving = time.Now().Add(-handBackWithin)
	if r.evacuate(); n.end != continuation.Release || len(h.releases.due) != 1 {
		t.Errorf("later it has the end %v, and %d wait for a release", n.end, len(h.releases.due))
	}
}
