package pins

import (
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream/fleet"
)

// A pair has one hand-back at a time, and the next begins once that has ended.
func TestHandBacks_OneAtATimeForEachPair(t *testing.T) {
	r := alone(t)
	for i := range byte(2) {
		ticket := r.put(i, 10, "")
		r.plan(ticket.ID, r.now(), time.Time{})
	}
	begin := func() []*underWay { return r.begin(r.now()) }
	first, second := begin(), begin()
	if len(first) != 1 || len(second) != 0 || r.Counts().Waiting != 1 {
		t.Fatalf("%d and %d begin, %d wait", len(first), len(second), r.Counts().Waiting)
	}
	r.handBack(t.Context(), first[0])
	next := begin()
	if len(next) != 1 || r.Counts().Waiting != 0 {
		t.Fatalf("%d begin behind the first, %d wait", len(next), r.Counts().Waiting)
	}
	r.handBack(t.Context(), next[0])
	if n := r.Pinned(r.decode.Engine()); n != 0 || r.Counts().HandBacks.Done != 2 {
		t.Errorf("%d tokens are pinned after %+v", n, r.Counts().HandBacks)
	}
}

// The blocks of a hand-back without an answer are not released before prefill has heard that its leg was dropped, however long the ticket has waited
// for the leg.
func TestHandBack_WithoutAnAnswerWaitsForItsReader(t *testing.T) {
	r := alone(t)
	ticket := r.put(1, 10, "")
	r.plan(ticket.ID, r.now(), time.Time{})
	n := r.pins[ticket.ID]
	r.model.passed.Add(int64(time.Minute))
	for _, engine := range []*fleet.Engine{r.prefill.Engine(), r.decode.Engine()} {
		engine.Refresh(t.Context())
	}
	r.model.hangs = true
	if begun := r.HandBacks(t.Context(), r.now()); begun != 1 || n.state != due || n.reader != r.prefill {
		t.Fatalf("%d begun, the pin is %s", begun, n.state)
	}
	if n.releasable(r.prefill, true, r.now()) || !n.releasable(r.prefill, true, r.now().Add(readerHears)) {
		t.Error("it is released at once, or never")
	}
}

// The runner is asked for a round at the moment at which a ticket that is put becomes due.
func TestPut_AsksForTheHandBackThatIsDue(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Millisecond} {
		r := alone(t)
		ticket := r.answer(10)
		r.answered(&ticket)
		n := r.pins[ticket.ID]
		began := time.Now()
		n.until, n.Prefill, n.Decode, n.ids = r.now().Add(after), r.prefill, r.decode, r.arena.Retain(nil)
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
	r.underWay = []*underWay{{pin: pin{Answer: Answer{Key: convcache.Key{1}}}}}
	r.HandBacks(t.Context(), r.now())
	if len(r.underWay) != 1 || r.WhyGone(convcache.Key{1}) == "" {
		t.Error("the other hand-back is not waited for")
	}
}
