package pins

import (
	"testing"
	"time"

	"carryover/convcache"
)

// A pair has one hand-back at a time, and the next begins once that has ended.
func TestHandBacks_OneAtATimeForEachPair(t *testing.T) {
	r := alone(t)
	for i := range byte(2) {
		ticket := r.put(i, 10, "")
		r.plan(ticket.ID, r.now(), time.Time{})
	}
	var legs []func() bool
	begin := func() int {
		return r.HandBacks(t.Context(), r.now(), func(_ string, leg func() bool) { legs = append(legs, leg) })
	}
	if first, second := begin(), begin(); first != 1 || second != 0 || r.Waiting() != 1 {
		t.Fatalf("%d and %d begin, %d wait", first, second, r.Waiting())
	}
	legs[0]()
	if next := begin(); next != 1 || r.Waiting() != 0 {
		t.Errorf("%d begin behind the first", next)
	}
	legs[1]()
	if n := r.Pinned(r.decode.Engine()); n != 0 || r.Counts().HandBacks.Done != 2 {
		t.Errorf("%d tokens are pinned after %+v", n, r.Counts().HandBacks)
	}
}

// The runner is asked for a round at the moment at which a ticket that is put becomes due.
func TestPut_AsksForTheHandBackThatIsDue(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Millisecond} {
		r := alone(t)
		ticket := r.answer(10)
		r.Answered(Answer{}, &ticket)
		n := r.pins[ticket.ID]
		began := time.Now()
		n.retreat, n.back = r.now().Add(after), &handBack{pair: pair{r.prefill, r.decode}, ids: noIDs{}}
		r.Put(t.Context(), convcache.Key{1}, ticket, "m")
		select {
		case <-r.wake:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody asks")
		}
		if took := time.Since(began); took < after {
			t.Errorf("asked after %s, want %s", took, after)
		}
	}
}

// A turn waits for all hand-backs of its conversation, which may be of two pairs.
func TestBegin_CountsTheHandBacksOfAConversation(t *testing.T) {
	r := alone(t)
	ticket := r.put(1, 10, "")
	r.plan(ticket.ID, r.now(), time.Time{})
	var legs []func() bool
	r.legs[convcache.Key{1}] = &underWay{legs: 1, ended: make(chan struct{})}
	r.HandBacks(t.Context(), r.now(), func(_ string, leg func() bool) { legs = append(legs, leg) })
	legs[0]()
	if under := r.legs[convcache.Key{1}]; under == nil || under.legs != 1 {
		t.Error("the other hand-back is not waited for")
	}
}
