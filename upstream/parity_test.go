package upstream

import (
	"strconv"
	"testing"
)

func TestParity_IsLearntPerStartModelAndFeatures(t *testing.T) {
	p := NewParity()
	a, b := &Instance{BaseURL: "http://a"}, &Instance{BaseURL: "http://b"}
	if got := p.Known(a, "1", "m", "f"); got != Unknown {
		t.Errorf("at first: got %d, want Unknown", got)
	}
	if got := p.Learn(a, "1", "m", "f", true); got != Trusted || p.Known(a, "1", "m", "f") != Trusted {
		t.Errorf("equal ids: got %d, want Trusted", got)
	}
	for _, other := range []struct {
		instance           *Instance
		start, model, name string
	}{{b, "1", "m", "f"}, {a, "2", "m", "f"}, {a, "1", "n", "f"}, {a, "1", "m", "g"}} {
		if got := p.Known(other.instance, other.start, other.model, other.name); got != Unknown {
			t.Errorf("%v: got %d, want Unknown", other, got)
		}
	}
}

func TestParity_OneDifferenceBarsForGood(t *testing.T) {
	a := &Instance{BaseURL: "http://a"}
	for _, before := range []bool{true, false} {
		p := NewParity()
		p.Learn(a, "1", "m", "f", before)
		if got := p.Learn(a, "1", "m", "f", false); got != Barred {
			t.Errorf("after a difference: got %d, want Barred", got)
		}
		if got := p.Learn(a, "1", "m", "f", true); got != Barred || p.Known(a, "1", "m", "f") != Barred {
			t.Errorf("equal ids after a difference: got %d, want Barred", got)
		}
	}
}

func TestParity_MemoryIsBounded(t *testing.T) {
	p, a := NewParity(), &Instance{BaseURL: "http://a"}
	for i := range maxRemembered {
		p.Learn(a, "1", "m", strconv.Itoa(i), true)
	}
	p.Learn(a, "1", "m", "0", true) // known already: nothing has to go
	if len(p.known) != maxRemembered {
		t.Errorf("remembers %d, want %d", len(p.known), maxRemembered)
	}
	if p.Learn(a, "1", "m", "one more", true); len(p.known) != 1 || p.Known(a, "1", "m", "one more") != Trusted {
		t.Errorf("remembers %d, want the last one only", len(p.known))
	}
}
