package facts

import (
	"strconv"
	"testing"

	"carryover/upstream"
)

func TestParity_IsLearntPerIncarnationModelAndFeatures(t *testing.T) {
	engines := newRig(t).named(upstream.RolePrefill, "a", "b")
	a, b := tells(engines[0], "1"), tells(engines[1], "1")
	if got := a.Parity.Of("m", "f"); got != Unknown {
		t.Errorf("at first: got %d, want Unknown", got)
	}
	if got := a.Parity.Learn("m", "f", true); got != Yes || a.Parity.Of("m", "f") != Yes {
		t.Errorf("equal ids: got %d, want Yes", got)
	}
	for _, other := range []struct {
		incarnation *incarnation
		model, name string
	}{{b, "m", "f"}, {tells(engines[0], "2"), "m", "f"}, {a, "n", "f"}, {a, "m", "g"}, {a, "mf", ""}, {a, "", "mf"}} {
		if got := other.incarnation.Parity.Of(other.model, other.name); got != Unknown {
			t.Errorf("%v: got %d, want Unknown", other, got)
		}
	}
}

func TestParity_OneDifferenceDecidesForGood(t *testing.T) {
	for _, before := range []bool{true, false} {
		s, _ := newRig(t).incarnations()
		s.Parity.Learn("m", "f", before)
		if got := s.Parity.Learn("m", "f", false); got != No {
			t.Errorf("after a difference: got %d, want No", got)
		}
		if got := s.Parity.Learn("m", "f", true); got != No || s.Parity.Of("m", "f") != No {
			t.Errorf("equal ids after a difference: got %d, want No", got)
		}
	}
}

func TestParity_MemoryIsBounded(t *testing.T) {
	s, _ := newRig(t).incarnations()
	for i := range maxLearnt {
		s.Parity.Learn("m", strconv.Itoa(i), true)
	}
	s.Parity.Learn("m", "0", true) // known already: nothing has to go
	if len(s.Parity.findings) != maxLearnt {
		t.Errorf("remembers %d, want %d", len(s.Parity.findings), maxLearnt)
	}
	if s.Parity.Learn("m", "one more", true); len(s.Parity.findings) != 1 || s.Parity.Of("m", "one more") != Yes {
		t.Errorf("remembers %d, want the last one only", len(s.Parity.findings))
	}
}
