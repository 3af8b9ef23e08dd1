package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// lists makes an engine one whose list of models has been read.
func lists(e *Engine, models ...string) {
	list := make([]facts.Model, len(models))
	for i, name := range models {
		list[i] = facts.Model{ID: name}
	}
	e.served.Store(e.fleet.shared(list))
}

// What a pick has found of a model holds for that pick, also when the instances have changed since: picks are told apart by
// numbers.
func TestPick_ChangeOfInstancesMixesUpNoModels(t *testing.T) {
	r := newRig(t)
	one := r.named(upstream.RoleDecode, "one")[0]
	lists(one, "a")
	pick := func(model string) error {
		_, done, err := r.Pick(upstream.RoleDecode, Hint{Model: model}, nil)
		if err == nil {
			done()
		}
		return err
	}
	for n := range 10 {
		if err := pick("a"); err != nil {
			t.Fatalf("pick %d of its model: %v", n, err)
		}
		r.named(upstream.RolePrefill, string(rune('k'+n)))
		if err := pick("b"); err == nil {
			t.Fatalf("the first pick of a foreign model after change %d of the instances gets the engine", n)
		}
		r.named(upstream.RolePrefill, string(rune('K'+n)))
	}
}

// The same holds for the place of an engine among the candidates.
func TestPick_ChangeOfInstancesMixesUpNoCandidates(t *testing.T) {
	r := newRig(t)
	for _, e := range r.named(upstream.RoleDecode, "one", "two", "three") {
		tells(e, "1")
	}
	pick := func(exclude func(*Engine) bool) {
		_, done, err := r.Pick(upstream.RoleDecode, Hint{Holds: []Holding{{Instance: "three", Incarnation: "1", Tokens: 16}}}, exclude)
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	pick(nil)
	r.named(upstream.RolePrefill, "p")
	pick(func(e *Engine) bool { return e.Name == "three" })
}

// failing panics when it is asked the first time.
type failing struct{ asked *bool }

func (d failing) Pick([]upstream.Candidate, string) int {
	if !*d.asked {
		*d.asked = true
		panic("a defect")
	}
	return 0
}

// A defect of a policy costs the turn that it meets, and no other waits for it.
func TestPick_PolicyThatPanicsLeavesTheFleetUsable(t *testing.T) {
	r := newRig(t)
	one := r.named(upstream.RoleDecode, "one")[0]
	asked := false
	r.SetPolicies(first{}, failing{&asked})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the policy was not asked")
			}
		}()
		_, _, _ = r.Pick(upstream.RoleDecode, Hint{}, nil)
	}()
	if !r.mu.TryLock() {
		t.Fatal("the fleet is locked for good")
	}
	r.mu.Unlock()
	_, done, err := r.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil || one.inFlight.Load() != 1 {
		t.Fatalf("got %v with %d attempts, want the engine with one", err, one.inFlight.Load())
	}
	done()
}
