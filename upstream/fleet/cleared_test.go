package fleet

import (
	"fmt"
	"testing"
	"time"

	"carryover/upstream"
)

func TestCleared_BlocksFromBeforeAreVoid(t *testing.T) {
	r := newRig(t)
	_, decode := r.starts()
	before := r.now()
	if decode.Void(before) || decode.Free(before) {
		t.Error("blocks are void before anything was cleared")
	}
	r.pass(time.Minute)
	decode.Engine().BlocksCleared()
	for _, row := range []struct {
		held       time.Time
		void, free bool
	}{
		{before, true, true},
		{time.Time{}, true, true}, // it is not known when they were held
		{r.now(), true, true},
		{r.now().Add(clearedMargin), true, false},
		{r.now().Add(clearedMargin).Round(0), true, false}, // as another replica has written it
		{r.now().Add(clearedMargin + 1), false, false},
	} {
		if void, free := decode.Void(row.held), decode.Free(row.held); void != row.void || free != row.free {
			t.Errorf("held %v after the event: void %v, free %v", row.held.Sub(r.now()), void, free)
		}
	}
}

// The monotonic clock stands still while a machine is suspended, and the other one may be set back.
func TestCleared_EitherClockDecides(t *testing.T) {
	r := newRig(t)
	_, decode := r.starts()
	decode.Engine().BlocksCleared()
	ahead := r.now().Add(time.Hour)
	if decode.Void(ahead) {
		t.Error("blocks of an hour later are void")
	}
	back := time.Now().Add(-time.Hour).Round(0)
	if !decode.Void(back) {
		t.Error("blocks of an hour before are not void")
	}
}

func TestCleared_NothingIsLeftToRelease(t *testing.T) {
	r := newRig(t)
	_, decode := r.starts()
	unused := Unused{Params: []byte("{}"), Deadline: r.now().Add(time.Hour), Held: r.now()}
	decode.Leave(unused)
	r.pass(time.Second)
	decode.Engine().BlocksCleared()
	if n := decode.Unused(); n != 0 {
		t.Errorf("%d tickets wait after the event", n)
	}
	decode.Leave(unused)
	if n := decode.Unused(); n != 0 {
		t.Errorf("%d tickets from before the event wait", n)
	}
	unused.Held = r.now().Add(1)
	decode.Leave(unused)
	if n := decode.Unused(); n != 1 {
		t.Errorf("%d tickets from after the event wait, want 1", n)
	}
}

// A reload that changes an instance makes another Engine of the same process.
func TestCleared_OutlastsTheEngine(t *testing.T) {
	r := newRig(t)
	_, decode := r.starts()
	held := r.now()
	r.pass(time.Second)
	decode.Engine().BlocksCleared()
	for i := range r.instances {
		r.instances[i].Weight = 2
	}
	r.Set(r.instances)
	again := tells(r.Engine(upstream.RoleDecode, "d"), "1")
	if again.Engine() == decode.Engine() || !again.Void(held) {
		t.Error("the changed instance has the blocks of before")
	}
	r.Set(nil)
	r.Set(r.instances)
	if again = tells(r.Engine(upstream.RoleDecode, "d"), "1"); !again.Void(held) || again.Void(r.now().Add(time.Minute)) {
		t.Error("the instance that is back has the blocks of before, or none of after")
	}
	for i := range 2 * maxCleared {
		e := r.newEngine(upstream.Instance{Role: upstream.RoleDecode, Name: fmt.Sprint(i)})
		e.BlocksCleared()
		r.keepCleared(e)
	}
	if len(r.clearings) > maxCleared {
		t.Errorf("%d engines are remembered", len(r.clearings))
	}
}
