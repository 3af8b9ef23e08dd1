package pins

import (
	"context"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/upstream/body"
)

// What is chosen for a ticket follows the settings, and what was learnt of answers of its kind.
func TestHandBacks_Choose(t *testing.T) {
	const fixed = 5 * time.Second
	for name, row := range map[string]struct {
		cfg       HandBackConfig
		release   bool
		answers   int           // that the learner knows
		continued time.Duration // after how long each of them was, 0 for never
		want      continuation.Choice
	}{
		"a fixed wait":                   {HandBackConfig{HandBack: HandBackIdle, HandBackAfter: fixed}, true, 100, 0, continuation.Choice{Wait: fixed, End: continuation.HandBack}},
		"at once":                        {HandBackConfig{HandBack: HandBackNow, HandBackAuto: true}, true, 100, 0, continuation.Choice{End: continuation.HandBack}},
		"too little known":               {HandBackConfig{HandBack: HandBackIdle, HandBackAuto: true, HandBackAfter: fixed}, true, 7, 0, continuation.Choice{Wait: fixed, End: continuation.HandBack}},
		"one-shot":                       {HandBackConfig{HandBack: HandBackIdle, HandBackAuto: true, HandBackAfter: fixed}, true, 100, 0, continuation.Choice{End: continuation.Release, Learnt: true}},
		"one-shot that is not released":  {HandBackConfig{HandBack: HandBackIdle, HandBackAuto: true, HandBackAfter: fixed}, false, 100, 0, continuation.Choice{End: continuation.HandBack, Learnt: true}},
		"without hand-back, one-shot":    {HandBackConfig{HandBack: HandBackOff, HandBackAuto: true}, true, 100, 0, continuation.Choice{End: continuation.Release, Learnt: true}},
		"without hand-back, few known":   {HandBackConfig{HandBack: HandBackOff, HandBackAuto: true}, true, 20, 0, continuation.Choice{End: continuation.Keep}},
		"without hand-back, not learnt":  {HandBackConfig{HandBack: HandBackOff}, true, 100, 0, continuation.Choice{End: continuation.Keep}},
		"without hand-back, chats":       {HandBackConfig{HandBack: HandBackOff, HandBackAuto: true}, true, 100, 30 * time.Second, continuation.Choice{End: continuation.Keep}},
		"without hand-back nor releases": {HandBackConfig{HandBack: HandBackOff, HandBackAuto: true}, false, 100, 0, continuation.Choice{End: continuation.Keep}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 1)
			m.cfg.HandBackConfig, m.cfg.Release = row.cfg, row.release
			if row.cfg.HandBack == HandBackOff {
				m.HandBacks.arena = nil
			}
			kind, at := continuation.Kind{Explicit: true}, time.Now().Add(-20*time.Minute)
			for i := range row.answers {
				key := convcache.Key{byte(i), 1}
				m.Continuations.Answered("", "t", kind, key, body.Beginning{}, at)
				if row.continued > 0 {
					m.Continuations.Asked(continuation.Turn{Key: key, Explicit: true}, at.Add(row.continued))
				}
			}
			m.Continuations.Curve("t", kind, at.Add(10*time.Minute))
			ticket := convcache.Ticket{Branch: convcache.Branch{Tokens: 1000}}
			if got := m.HandBacks.Choose(Answer{Prefill: m.prefill, Decode: m.decode, PromptTokens: 800}, "t", kind, &ticket); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
			if chosen := m.Counts().Choices; chosen.Ticket+chosen.HandBack+chosen.Release != 1 || (chosen.Ticket == 1) != (row.want.Wait > 0 || row.want.End == continuation.Keep) {
				t.Errorf("counted %+v", chosen)
			}
		})
	}
}

// A ticket whose wait is over is released once, unless a turn has taken it. One that is put back then is released at once.
func TestPins_ReleasesLate(t *testing.T) {
	m := newModel(t, 1)
	m.cfg.Release = true
	now := time.Now()
	var tickets []convcache.Ticket
	for i := range 3 {
		ticket, parsed := m.answer()
		m.Fresh("d", parsed)
		if outcome := m.Put(t.Context(), convcache.Key{byte(i)}, ticket, "m"); outcome != convcache.Stored {
			t.Fatal(outcome)
		}
		choice := continuation.Choice{Wait: time.Duration(3-i) * time.Second, End: continuation.Release}
		m.HandBacks.Stored(Answer{Prefill: m.prefill, Decode: m.decode, Key: convcache.Key{byte(i)}, Model: "m"}, &ticket, choice)
		tickets = append(tickets, ticket)
	}
	taken, outcome := m.Take(t.Context(), convcache.Key{1}, tickets[1].ID)
	if outcome != convcache.Taken {
		t.Fatal(outcome)
	}
	claim := m.Hold(&taken, Claim{Holder: m.decode, Reader: m.prefill, PairState: m.prefill.PairWith(m.decode)}, "m", "turn")
	for after, want := range []int{2, 2, 1, 1, 0, 0} { // seconds
		if after == 5 {
			claim.End(t.Context(), func(ctx context.Context, ticket convcache.Ticket) { m.Put(ctx, convcache.Key{1}, ticket, "m") })
		}
		m.releaseLate(t.Context(), now.Add(time.Duration(after)*time.Second-time.Millisecond))
		if got := m.Ledger.Tickets(); got != want {
			t.Errorf("after %d s %d tickets are kept, want %d", after, got, want)
		}
	}
}
