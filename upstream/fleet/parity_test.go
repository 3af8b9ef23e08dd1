package fleet

import (
	"strconv"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

func TestParity_IsLearntPerIncarnationModelAndFeatures(t *testing.T) {
	engines := newRig(t).named(upstream.RolePrefill, "a", "b")
	a, b := tells(engines[0], "1"), tells(engines[1], "1")
	if got := a.Parity("m", "f"); got != facts.Unknown {
		t.Errorf("at first: got %d, want Unknown", got)
	}
	if got := a.LearnParity("m", "f", true); got != facts.Yes || a.Parity("m", "f") != facts.Yes {
		t.Errorf("equal ids: got %d, want Yes", got)
	}
	for _, other := range []struct {
		incarnation *Incarnation
		model, name string
	}{{b, "m", "f"}, {tells(engines[0], "2"), "m", "f"}, {a, "n", "f"}, {a, "m", "g"}, {a, "mf", ""}, {a, "", "mf"}} {
		if got := other.incarnation.Parity(other.model, other.name); got != facts.Unknown {
			t.Errorf("%v: got %d, want Unknown", other, got)
		}
	}
}

func TestParity_OneDifferenceDecidesForGood(t *testing.T) {
	for _, before := range []bool{true, false} {
		s, _ := newRig(t).incarnations()
		s.LearnParity("m", "f", before)
		if got := s.LearnParity("m", "f", false); got != facts.No {
			t.Errorf("after a difference: got %d, want No", got)
		}
		if got := s.LearnParity("m", "f", true); got != facts.No || s.Parity("m", "f") != facts.No {
			t.Errorf("equal ids after a difference: got %d, want No", got)
		}
	}
}

func TestParity_MemoryIsBounded(t *testing.T) {
	s, _ := newRig(t).incarnations()
	for i := range maxLearnt {
		s.LearnParity("m", strconv.Itoa(i), true)
	}
	s.LearnParity("m", "0", true) // known already: nothing has to go
	if len(s.parity) != maxLearnt {
		t.Errorf("remembers %d, want %d", len(s.parity), maxLearnt)
	}
	if s.LearnParity("m", "one more", true); len(s.parity) != 1 || s.Parity("m", "one more") != facts.Yes {
		t.Errorf("remembers %d, want the last one only", len(s.parity))
	}
}
