package fleet

import (
	"testing"
	"time"

	"carryover/upstream/fleet/unused"
)

func TestRegistered_BlocksFromBeforeAreFree(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	at := func(seconds int) time.Time { return r.now().Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		generation, sent int
		free             int // blocks held then or before are free, those of a second later are not; -1: none are
	}{
		{0, 1, -1}, // before 0.33
		{1, 2, -1}, // the first that is known
		{1, 3, -1},
		{2, 10, 9},
		{2, 20, 9}, // another answer, or another rank of the engine
		{1, 30, 9}, // an answer from before that comes late
		{4, 40, 39},
	} {
		decode.Pins.Registered(step.generation, at(step.sent))
		if step.free >= 0 && !decode.Pins.Free(at(step.free)) {
			t.Errorf("%+v: blocks of %d s are not free", step, step.free)
		}
		if decode.Pins.Free(at(step.free + 1)) {
			t.Errorf("%+v: blocks of %d s are free", step, step.free+1)
		}
	}
}

func TestRegistered_NothingIsLeftToRelease(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	decode.Pins.Registered(1, r.now())
	decode.Pins.Leave(unused.Ticket{Params: []byte("{}"), Deadline: r.now().Add(time.Hour), FreshAsOf: r.now()})
	decode.Pins.AddExpiring(160, r.now())
	r.pass(time.Minute)
	decode.Pins.Registered(2, r.now())
	if n := decode.Pins.Unused(); n != 0 {
		t.Errorf("%d tickets wait after the sleep", n)
	}
	if n := decode.Pins.Pinned().Waiting; n != 0 {
		t.Errorf("%d tokens are pinned after the sleep", n)
	}
}
