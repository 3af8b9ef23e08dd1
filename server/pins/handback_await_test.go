package pins

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
)

func TestHandBack_TurnWaitsForThatOfItsConversation(t *testing.T) {
	waited := func(t *testing.T, keys []convcache.Key, before time.Duration, legs ...time.Duration) time.Duration {
		t.Helper()
		h := &handBackQueues{retained: map[convcache.TicketID]*retainedTicket{}, queues: map[pairKey]*pairQueue{}, under: map[convcache.Key]*underWay{}, wake: make(chan struct{}, 1)}
		for i, lasts := range legs {
			k := &retainedTicket{key: convcache.Key{byte(i % len(keys))}, homed: true, ids: noIDs{}, queue: &pairQueue{}, leg: legState{over: func() {}}}
			h.mu.Lock()
			h.setsOut(k)
			h.mu.Unlock()
			time.AfterFunc(lasts, func() { h.done(k) })
		}
		began := time.Now()
		all := h.await(t.Context(), keys, before)
		if took := time.Since(began); took != all-before {
			t.Errorf("took %s after %s, told %s", took, before, all)
		}
		synctest.Wait()
		if under := h.isUnderWay(keys[0]); under != (all == patienceForLeg && len(legs) > 0) {
			t.Errorf("after %s a hand-back is under way: %v", all, under)
		}
		return all
	}
	const short, long = 100 * time.Millisecond, time.Hour
	mine, both := []convcache.Key{{}}, []convcache.Key{{}, {1}}
	for name, tc := range map[string]struct {
		keys   []convcache.Key
		before time.Duration
		legs   []time.Duration
		want   time.Duration
	}{
		"none":                   {mine, 0, nil, 0},
		"one":                    {mine, 0, []time.Duration{short}, short},
		"two":                    {mine, 0, []time.Duration{short, 2 * short}, 2 * short},
		"another conversation's": {both[1:], 0, []time.Duration{long}, 0},
		"one that hangs":         {mine, 0, []time.Duration{long}, patienceForLeg},
		"under each key":         {both, 0, []time.Duration{short, 2 * short}, 2 * short},
		"under each key, hangs":  {both, 0, []time.Duration{long, long}, patienceForLeg},
		"of an attempt before":   {mine, short, []time.Duration{long}, patienceForLeg},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := waited(t, tc.keys, tc.before, tc.legs...); got != tc.want {
					t.Errorf("waited %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestHandBack_ClientThatLeavesEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handBackQueues{under: map[convcache.Key]*underWay{{}: {legs: 1, ended: make(chan struct{})}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		h.await(ctx, []convcache.Key{{}}, 0)
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("waited %s for a client that has left", took)
		}
	})
}

func TestHandBack_QueuesAreLookedThroughWhenATicketIsDue(t *testing.T) {
	for _, after := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := &handBackQueues{wake: make(chan struct{}, 1)}
			began := time.Now()
			h.remind(continuation.Choice{Wait: after, End: continuation.HandBack})
			<-h.wake
			if took := time.Since(began); took != after {
				t.Errorf("after %s, want %s", took, after)
			}
		})
	}
}
