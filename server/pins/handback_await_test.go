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
	waited := func(t *testing.T, ctx context.Context, key convcache.Key, legs ...time.Duration) time.Duration {
		t.Helper()
		h := &handBackQueues{retained: map[convcache.TicketID]*retainedTicket{}, queues: map[pairKey]*pairQueue{}, under: map[convcache.Key]*underWay{}, wake: make(chan struct{}, 1)}
		for _, lasts := range legs {
			k := &retainedTicket{key: convcache.Key{1}, homed: true, ids: noIDs{}, queue: &pairQueue{}, leg: legState{over: func() {}}}
			h.mu.Lock()
			h.setsOut(k)
			h.mu.Unlock()
			time.AfterFunc(lasts, func() { h.done(k) })
		}
		began := time.Now()
		h.await(ctx, key)
		took := time.Since(began)
		synctest.Wait()
		if under := h.isUnderWay(key); under != (took == patienceForLeg && len(legs) > 0) {
			t.Errorf("after %s a hand-back is under way: %v", took, under)
		}
		return took
	}
	const mine, other, short, long = 1, 2, 100 * time.Millisecond, time.Hour
	for name, tc := range map[string]struct {
		key  byte
		legs []time.Duration
		want time.Duration
	}{
		"none":                   {mine, nil, 0},
		"one":                    {mine, []time.Duration{short}, short},
		"two":                    {mine, []time.Duration{short, 2 * short}, 2 * short},
		"another conversation's": {other, []time.Duration{long}, 0},
		"one that hangs":         {mine, []time.Duration{long}, patienceForLeg},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := waited(t, t.Context(), convcache.Key{tc.key}, tc.legs...); got != tc.want {
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
		h.await(ctx, convcache.Key{})
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
