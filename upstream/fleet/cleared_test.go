package fleet

import (
	"fmt"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/unused"
)

func TestCleared_BlocksFromBeforeAreVoid(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	before := r.now()
	if decode.Pins.Void(before) || decode.Pins.Free(before) {
		t.Error("blocks are void before anything was cleared")
	}
	r.pass(time.Minute)
	decode.Engine().BlocksCleared(r.now())
	for _, row := range []struct {
		held       time.Time
		void, free bool
	}{
		{before, true, true},
		{time.Time{}, true, true}, // it is not known when they were held
		{r.now(), true, true},
		{r.now().Add(unused.ClearedMargin), true, false},
		{r.now().Add(unused.ClearedMargin).Round(0), true, false}, // as another replica has written it
		{r.now().Add(unused.ClearedMargin + 1), false, false},
	} {
		if void, free := decode.Pins.Void(row.held), decode.Pins.Free(row.held); void != row.void || free != row.free {
			t.Errorf("held %v after the event: void %v, free %v", row.held.Sub(r.now()), void, free)
		}
	}
}

// The monotonic clock stands still while a machine is suspended, and the other one may be set back.
func TestCleared_EitherClockDecides(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	decode.Engine().BlocksCleared(r.now())
	ahead := r.now().Add(time.Hour)
	if decode.Pins.Void(ahead) {
		t.Error("blocks of an hour later are void")
	}
	back := time.Now().Add(-time.Hour).Round(0)
	if !decode.Pins.Void(back) {
		t.Error("blocks of an hour before are not void")
	}
}

func TestCleared_NothingIsLeftToRelease(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	unused := unused.Ticket{Params: []byte("{}"), Deadline: r.now().Add(time.Hour), FreshAsOf: r.now()}
	decode.Pins.Leave(unused)
	r.pass(time.Second)
	decode.Engine().BlocksCleared(r.now())
	if n := decode.Pins.Unused(); n != 0 {
		t.Errorf("%d tickets wait after the event", n)
	}
	decode.Pins.Leave(unused)
	if n := decode.Pins.Unused(); n != 0 {
		t.Errorf("%d tickets from before the event wait", n)
	}
	unused.FreshAsOf = r.now().Add(1)
	decode.Pins.Leave(unused)
	if n := decode.Pins.Unused(); n != 1 {
		t.Errorf("%d tickets from after the event wait, want 1", n)
	}
}

// An instance that is elsewhere under the same name may have tickets of before.
func TestCleared_OutlastsTheEngine(t *testing.T) {
	r := newRig(t)
	_, decode := r.incarnations()
	held := r.now()
	r.pass(time.Second)
	decode.Engine().BlocksCleared(r.now())
	for i := range r.instances {
		r.instances[i].BaseURL += ".elsewhere"
	}
	r.Set(r.instances)
	again := tells(r.Engine(upstream.RoleDecode, "d"), "1")
	if again.Engine() == decode.Engine() || !again.Pins.Void(held) {
		t.Error("the changed instance has the blocks of before")
	}
	r.Set(nil)
	r.Set(r.instances)
	if again = tells(r.Engine(upstream.RoleDecode, "d"), "1"); !again.Pins.Void(held) || again.Pins.Void(r.now().Add(time.Minute)) {
		t.Error("the instance that is back has the blocks of before, or none of after")
	}
	for i := range 2 * maxCleared {
		e := r.newEngine(upstream.Instance{Role: upstream.RoleDecode, Name: fmt.Sprint(i)})
		e.BlocksCleared(r.now())
		r.removed.clearings.keep(e)
	}
	if len(r.removed.clearings) > maxCleared {
		t.Errorf("%d engines are remembered", len(r.removed.clearings))
	}
}

// A replay tells of what has long been: blocks that decode holds since then are as they were.
func TestCleared_CountsAsOfItsOwnTime(t *testing.T) {
	r := newRig(t)
	_, decode := expiringRig(r, time.Hour)
	unused := func() unused.Ticket {
		return unused.Ticket{Params: []byte("{}"), Tokens: 16, Deadline: r.now().Add(time.Hour), FreshAsOf: r.now()}
	}
	decode.Pins.Leave(unused())
	decode.Pins.AddExpiring(64, r.now())
	r.pass(10 * time.Minute)
	cleared := r.now().Round(0) // as an event tells it
	r.pass(10 * time.Minute)
	held := r.now()
	decode.Pins.Leave(unused())
	decode.Pins.AddExpiring(32, r.now())
	decode.Engine().BlocksCleared(cleared)
	if decode.Pins.Void(held) || decode.Pins.Free(held) || !decode.Pins.Void(cleared) || !decode.Pins.Free(cleared) {
		t.Error("want blocks from before the event gone, and those of after it there")
	}
	if live := decode.Engine().Live(); live.Pins.Waiting != 16 || live.Pins.Besides != 32 {
		t.Errorf("%d tokens wait and %d last, want 16 and 32 of after the event", live.Pins.Waiting, live.Pins.Besides)
	}
	decode.Engine().BlocksCleared(cleared.Add(-5 * time.Minute)) // another, from before
	if !decode.Pins.Void(cleared) {
		t.Error("an older event takes back a newer one")
	}
}
