package fleet

import (
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// An engine that is taken for a slow one gets no legs that could show the contrary. After a while it is tried again.
func TestSpeed_IsForgotten(t *testing.T) {
	w := newWeighing(t)
	w.p[0].Engine().LearnPrefill(10, time.Minute, false) // its first leg
	w.p[1].Engine().LearnPrefill(1000, time.Second, false)
	delay := func(name string) time.Duration {
		t.Helper()
		_, done, err := w.Pick(upstream.RolePrefill, Hint{Tokens: 100}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done()
		return time.Duration(w.told.candidates[name].Delay).Round(time.Millisecond)
	}
	if got := delay("p0"); got != 10*time.Minute {
		t.Errorf("after its first leg: %v", got)
	}
	w.pass(facts.SpeedFor)
	if got := delay("p0"); got != 0 {
		t.Errorf("no speed counts: %v", got)
	}
	w.p[1].Engine().LearnPrefill(1000, time.Second, false)
	if got := delay("p0"); got != 100*time.Millisecond {
		t.Errorf("a minute later: %v, want that of the other", got)
	}
	w.p[0].Engine().LearnPrefill(1000, 2*time.Second, false)
	if got := delay("p0"); got != 200*time.Millisecond {
		t.Errorf("after another leg: %v, want what that one tells", got)
	}
}

func TestPick_TellsTheDelayOfPrefill(t *testing.T) {
	w := newWeighing(t)
	delays := func(tokens int) (d [2]time.Duration) {
		t.Helper()
		_, done, err := w.Pick(upstream.RolePrefill, Hint{Tokens: tokens}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done()
		for i, name := range []string{"p0", "p1"} {
			d[i] = time.Duration(w.told.candidates[name].Delay).Round(time.Microsecond)
		}
		return d
	}
	if got := delays(100); got != [2]time.Duration{} {
		t.Errorf("no speed is known: %v", got)
	}
	w.pass(time.Minute)
	w.p[0].Engine().LearnPrefill(1000, time.Second, false)
	if want := [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}; delays(100) != want {
		t.Errorf("one speed is known: %v, want the same for both", delays(100))
	}
	w.p[1].Engine().LearnPrefill(1000, 3*time.Second, false)
	_, done, err := w.Pick(upstream.RolePrefill, Hint{Tokens: 500}, nil) // picks the first
	if err != nil {
		t.Fatal(err)
	}
	if want := [2]time.Duration{600 * time.Millisecond, 300 * time.Millisecond}; delays(100) != want {
		t.Errorf("500 tokens before: %v, want %v", delays(100), want)
	}
	if got := w.p[0].Engine().Live(); got.Queued != 500 || got.InFlight != 1 {
		t.Errorf("%d tokens of %d attempts, want 500 of one", got.Queued, got.InFlight)
	}
	done()
	if want := [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond}; delays(100) != want {
		t.Errorf("after its end: %v, want %v", delays(100), want)
	}
	w.p[0].engine.reads(Load{Use: facts.Use{Running: 2}, Others: 2, Read: w.Now()})
	tells(w.p[0].engine, "1")
	if want := [2]time.Duration{2100 * time.Millisecond, 300 * time.Millisecond}; delays(100) != want {
		t.Errorf("two requests of others: %v, want %v", delays(100), want)
	}
	if got := delays(0); got[0] == 0 || got[1] == 0 {
		t.Errorf("a turn of which no tokens are known: %v, want one token", got)
	}
	if _, _, err := w.Pick(upstream.RoleDecode, Hint{Tokens: 100}, nil); err != nil || w.told.candidates["d0"].Delay != 0 {
		t.Errorf("decode: told %+v, %v", w.told.candidates["d0"], err)
	}
}
