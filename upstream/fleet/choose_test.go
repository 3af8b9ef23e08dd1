package fleet

import (
	"errors"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// Choosing begins nothing: no attempt is counted, no trial of a circuit begun, and no prompt remembered.
func TestChoose_BeginsNothing(t *testing.T) {
	w := newWeighing(t)
	chain := []uint64{1, 2, 3}
	for range 3 {
		e, err := w.Choose(upstream.RolePrefill, Hint{Key: "k", Tokens: 500, Chain: chain}, nil)
		if err != nil || e.Name != "p0" {
			t.Fatalf("got %v, %v", e, err)
		}
		if live := e.Live(); live.InFlight != 0 || live.Queued != 0 {
			t.Errorf("chosen, and %d attempts of %d tokens are counted", live.InFlight, live.Queued)
		}
	}
	if got := w.told.candidates["p0"].Prefix; got != 0 {
		t.Errorf("a prompt that was not sent is said to have been computed: %d pieces", got)
	}
	e, err := w.Choose(upstream.RoleDecode, Hint{}, func(e *Engine) bool { return e.Name == "d0" })
	if err != nil || e.Name != "d1" {
		t.Errorf("d0 excluded: got %v, %v", e, err)
	}
	if _, err = w.Choose(upstream.RoleDecode, Hint{}, func(*Engine) bool { return true }); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("all excluded: got %v", err)
	}
	w.SetMaxInFlight(1)
	_, done, err := w.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if e, err = w.Choose(upstream.RoleDecode, Hint{}, func(e *Engine) bool { return e.inFlight.Load() == 0 }); !errors.Is(err, upstream.ErrBusy) {
		t.Errorf("all busy: got %v, %v", e, err)
	}
}

func TestStatusWith_IsWhatBeginWouldReturn(t *testing.T) {
	w := newWeighing(t)
	check := func(when string, want pairs.Status) {
		t.Helper()
		for range 2 {
			if got := w.p[0].StatusWith(w.d[0]); got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
	}
	check("never met", pairs.Trial)
	ps := w.p[0].PairWith(w.d[0])
	check("linked", pairs.Trial)
	if got := ps.Begin(""); got != pairs.Trial {
		t.Fatalf("after standing was asked, Begin says %v", got)
	}
	check("on trial", pairs.Busy)
	ps.End(pairs.Answered, "")
	check("answered", pairs.Proven)
	w.stop(0, 1)
	if got := w.p[0].StatusWith(w.d[1]); got != pairs.NoReuse {
		t.Errorf("stopped: got %v", got)
	}
	if got := (*Incarnation)(nil).StatusWith(w.d[0]); got != pairs.NoReuse {
		t.Errorf("a start that is not known: got %v", got)
	}
}
