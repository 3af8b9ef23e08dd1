package facts

import (
	"strconv"
	"testing"
)

func TestParity_IsLearntPerIncarnationModelAndFeatures(t *testing.T) {
	a, b := plain(t), plain(t)
	if got := a.Parity.Of("m", "f"); got != Unknown {
		t.Errorf("at first: got %d, want Unknown", got)
	}
	if got := a.Parity.Learn("", "m", "f", true); got != Yes || a.Parity.Of("m", "f") != Yes {
		t.Errorf("equal ids: got %d, want Yes", got)
	}
	for _, other := range []struct {
		incarnation *incarnation
		model, name string
	}{{b, "m", "f"}, {a.next(), "m", "f"}, {a, "n", "f"}, {a, "m", "g"}, {a, "mf", ""}, {a, "", "mf"}} {
		if got := other.incarnation.Parity.Of(other.model, other.name); got != Unknown {
			t.Errorf("%v: got %d, want Unknown", other, got)
		}
	}
}

func TestParity_OneDifferenceDecidesForGood(t *testing.T) {
	for _, before := range []bool{true, false} {
		s := plain(t)
		s.Parity.teach("m", "f", before)
		if got := s.Parity.Learn("", "m", "f", false); got != No {
			t.Errorf("after a difference: got %d, want No", got)
		}
		if got := s.Parity.Learn("", "m", "f", true); got != No || s.Parity.Of("m", "f") != No {
			t.Errorf("equal ids after a difference: got %d, want No", got)
		}
	}
}

// A client that invents shapes takes the place of its own, neither of those of others nor of what lessons have taught.
func TestParity_WhoInventsShapesForgetsTheirs(t *testing.T) {
	s := plain(t)
	s.Parity.teach("m", "lesson", true)
	s.Parity.Learn("quiet", "m", "seen", true)
	for i := range 2 * maxLearnt {
		s.Parity.Learn("loud", "m", strconv.Itoa(i), true)
	}
	for shape, want := range map[string]Finding{"lesson": Yes, "seen": Yes, "0": Unknown, strconv.Itoa(2*maxLearnt - 1): Yes} {
		if got := s.Parity.Of("m", shape); got != want {
			t.Errorf("%s: got %d, want %d", shape, got, want)
		}
	}
	if n := s.Parity.Equal(); n != maxLearnt+1 {
		t.Errorf("remembers %d, want %d and the lesson", n, maxLearnt)
	}
}
