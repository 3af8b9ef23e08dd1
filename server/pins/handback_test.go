package pins

import (
	"testing"
	"time"
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
