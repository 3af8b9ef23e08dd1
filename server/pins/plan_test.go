package pins

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// What is chosen for a ticket follows the settings, and what was learnt of answers of its kind.
func TestPins_Choose(t *testing.T) {
	const fixed = 5 * time.Second
	idle, off := HandBackConfig{HandBack: HandBackIdle, HandBackAfter: fixed}, HandBackConfig{HandBack: HandBackOff}
	learns := func(cfg HandBackConfig) HandBackConfig {
		cfg.HandBackAuto = true
		return cfg
	}
	waits := continuation.Choice{Wait: fixed, End: continuation.HandBack}
	learnt := func(end continuation.End) continuation.Choice { return continuation.Choice{End: end, Learnt: true} }
	keep := continuation.Choice{End: continuation.Keep}
	for name, row := range map[string]struct {
		cfg       HandBackConfig
		release   bool
		answers   int           // that the learner knows
		continued time.Duration // after how long each of them was, 0 for never
		want      continuation.Choice
	}{
		"a fixed wait":                   {idle, true, 100, 0, waits},
		"at once":                        {learns(HandBackConfig{HandBack: HandBackNow}), true, 100, 0, continuation.Choice{End: continuation.HandBack}},
		"too little known":               {learns(idle), true, 7, 0, waits},
		"one-shot":                       {learns(idle), true, 100, 0, learnt(continuation.Release)},
		"one-shot that is not released":  {learns(idle), false, 100, 0, learnt(continuation.HandBack)},
		"without hand-back, one-shot":    {learns(off), true, 100, 0, learnt(continuation.Release)},
		"without hand-back, few known":   {learns(off), true, 20, 0, keep},
		"without hand-back, not learnt":  {off, true, 100, 0, keep},
		"without hand-back, chats":       {learns(off), true, 100, 30 * time.Second, keep},
		"without hand-back nor releases": {learns(off), false, 100, 0, keep},
	} {
		r := alone(t)
		if r.cfg.HandBackConfig, r.cfg.Release = row.cfg, row.release; row.cfg.HandBack == HandBackOff {
			r.arena = nil
		}
		kind, at := continuation.Kind{Explicit: true}, time.Now().Add(-20*time.Minute)
		for i := range row.answers {
			key := convcache.Key{byte(i), 1}
			r.Continuations.Answered("", "t", kind, key, body.Beginning{}, at)
			if row.continued > 0 {
				r.Continuations.Asked(continuation.Turn{Key: key, Explicit: true}, at.Add(row.continued))
			}
		}
		r.Continuations.Curve("t", kind, at.Add(10*time.Minute))
		ticket := convcache.Ticket{Branch: convcache.Branch{Tokens: 1000}}
		if got := r.choose(&Answer{Conversation: "c", Prefill: r.prefill, Decode: r.decode, PromptTokens: 800}, "t", kind, &ticket, r.arena != nil); got != row.want || r.choose(&Answer{}, "", kind, &ticket, false).Wait != 0 {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}

// A ticket whose wait is over is released once, unless a turn has taken it. One that is put back then is released at once.
func TestPins_ReleaseLate(t *testing.T) {
	r := alone(t)
	now := r.now()
	var tickets []convcache.Ticket
	for i := range 3 {
		ticket := r.put(byte(i), 10, "")
		r.plan(ticket.ID, time.Time{}, now.Add(time.Duration(3-i)*time.Minute))
		tickets = append(tickets, ticket)
	}
	claim, _, outcome := r.Take(
		t.Context(), convcache.Key{1}, tickets[1].ID, Claim{Holder: r.decode, Reader: r.prefill, PairState: r.prefill.PairWith(r.decode)}, "m", "turn",
	)
	if outcome != convcache.Taken {
		t.Fatal(outcome)
	}
	for after, want := range []int{2, 2, 1, 1, 0, 0} { // minutes
		if after == 5 {
			claim.End(t.Context(), func(ctx context.Context, ticket convcache.Ticket) { r.Put(ctx, convcache.Key{1}, ticket, "m") })
		}
		r.model.passed.Store(int64(time.Duration(after)*time.Minute - 10*time.Second))
		r.takeLate(t.Context())
		if got := r.Counts().Tickets; got != want {
			t.Errorf("after %d min %d tickets are kept, want %d", after, got, want)
		}
	}
}

// What one account has handed back leaves others room, and what is due soonest stays.
func TestPins_MakeRoomWithinTheAccountThatHasMost(t *testing.T) {
	r := alone(t)
	prompt := make([]uint32, 20)
	r.arena.Retain(prompt)
	each, _ := r.arena.Use()
	r.arena = proof.NewArena(5 * each)
	var ids []convcache.TicketID
	for i, from := range []string{"quiet", "inventor", "inventor", "inventor", "quiet", "inventor"} {
		ticket := r.put(byte(i), 10, from)
		n := r.pins[ticket.ID]
		n.ids = r.arena.Retain(prompt)
		r.move(n, stored)
		r.makeRoom()
		ids = append(ids, ticket.ID)
	}
	for i, want := range []bool{true, true, true, false, true, false} {
		if kept := r.pins[ids[i]].ids != nil; kept != want {
			t.Errorf("the ids of ticket %d are kept: %t, want %t", i, kept, want)
		}
	}
	if used, _ := r.arena.Use(); used != 4*each || r.retained.Len != 4 {
		t.Errorf("%d bytes are used for %d tickets", used, r.retained.Len)
	}
}

// A ticket is released when its wait is over. A defect costs the ticket that it meets, and none behind it.
func TestPass_ReleasesWhatNoTurnHasTaken(t *testing.T) {
	r := alone(t)
	r.deps.Store = &defective{r.store, 1}
	for i := range byte(3) {
		r.plan(r.put(i, 10, "").ID, time.Time{}, r.now().Add(time.Minute))
	}
	for passed, want := range []int{0, 2} {
		r.model.passed.Store(int64(time.Duration(passed) * time.Minute))
		for range 2 {
			func() {
				defer func() { _ = recover() }() // as what repeats the round does
				r.takeLate(t.Context())
			}()
		}
		if n, _, _ := r.Due(r.decode.Engine()); n != want {
			t.Errorf("%d tickets are released after %d m, want %d", n, passed, want)
		}
	}
}

// defective is a store that panics before some takes.
type defective struct {
	*modelStore
	defects int
}

func (s *defective) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	if s.defects > 0 {
		s.defects--
		panic("defect")
	}
	return s.modelStore.Take(ctx, key, id)
}

func TestHandBack_TurnWaitsForThatOfItsConversation(t *testing.T) {
	const short, long = 100 * time.Millisecond, time.Hour
	mine, both := []convcache.Key{{1}}, []convcache.Key{{1}, {2}}
	for name, tc := range map[string]struct {
		keys  []convcache.Key
		began time.Duration   // how long ago the legs began
		legs  []time.Duration // of the keys in turn
		want  time.Duration
	}{
		"none":                   {mine, 0, nil, 0},
		"one":                    {mine, 0, []time.Duration{short}, short},
		"another conversation's": {both[1:], 0, []time.Duration{long}, 0},
		"one that hangs":         {mine, 0, []time.Duration{long}, patienceForLeg},
		"under each key":         {both, 0, []time.Duration{short, 2 * short}, 2 * short},
		"under each key, hangs":  {both, 0, []time.Duration{long, long}, patienceForLeg},
		"waited for before":      {mine, short, []time.Duration{long}, patienceForLeg - short},
		"has hung for long":      {mine, long, []time.Duration{long}, 0},
		"the client leaves":      {mine, 0, []time.Duration{long}, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &Pins{deps: &Deps{Fleet: fleet.New(fleet.Config{})}}
			for i, lasts := range tc.legs {
				u := &underWay{pin: pin{Answer: Answer{Key: both[i]}}, began: time.Now().Add(-tc.began), ended: make(chan struct{})}
				p.underWay = append(p.underWay, u)
				time.AfterFunc(lasts, func() { close(u.ended) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if tc.want == time.Second {
				time.AfterFunc(time.Second, cancel)
			}
			defer cancel()
			began := time.Now()
			p.Await(ctx, tc.keys)
			if took := time.Since(began); took != tc.want {
				t.Errorf("%s: waited %s, want %s", name, took, tc.want)
			}
		})
	}
}
