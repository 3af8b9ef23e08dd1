package fleet

import (
	"testing"

	"carryover/upstream"
)

// What is freed is free when it is said, and said once; and the caller that is told may pick at once.
func TestFleet_SaysWhatIsFreed(t *testing.T) {
	r := newRig(t)
	r.Set(nil) // nothing is told of it
	said, free := 0, -1
	r.OnFreed(func() {
		said++
		free = 0
		for _, e := range r.Engines(upstream.RoleDecode) {
			free += e.Live().InFlight
		}
	})
	r.named(upstream.RoleDecode, "d")
	if said != 1 {
		t.Errorf("got %d calls when an engine was added, want 1", said)
	}
	_, done, err := r.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil || said != 1 {
		t.Fatalf("got %v and %d calls, want a pick and none", err, said)
	}
	done()
	if said != 2 || free != 0 {
		t.Errorf("got %d calls and %d attempts in flight then, want 2 and 0", said, free)
	}
}

// Turns that wait while others are full learn of an engine that is back.
func TestFleet_SaysThatAnEngineIsBack(t *testing.T) {
	r := newRig(t)
	e := r.named(upstream.RoleDecode, "d")[0]
	said := 0
	r.OnFreed(func() { said++ })
	e.Refused()
	e.Health.Answered()
	e.Health.Answered()
	if said != 1 {
		t.Errorf("got %d calls, want 1", said)
	}
}
