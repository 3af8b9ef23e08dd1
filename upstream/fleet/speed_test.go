package fleet

import (
	"math"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// perToken is what the fleet has learnt of an engine, in nanoseconds.
func learnt(e *Engine) float64 { return math.Round(e.perToken(e.fleet.clock())) }

func TestSpeed_OfOneLegAfterTheOther(t *testing.T) {
	r := newRig(t)
	s, _ := r.incarnations()
	s.LearnSpeed(0, time.Second) // says nothing
	s.LearnSpeed(10, 0)
	if got := s.Engine().Live().PerToken; got != 0 {
		t.Errorf("before any leg: %v a token", got)
	}
	for range 3 {
		r.pass(time.Second)
		s.LearnSpeed(1000, time.Second)
	}
	if got := s.Engine().Live().PerToken; got.Round(time.Microsecond) != time.Millisecond {
		t.Errorf("1000 tokens in a second: %v a token, want 1 ms", got)
	}
	again := tells(s.Engine(), "2")
	if got := again.Engine().Live().PerToken; got.Round(time.Microsecond) != time.Millisecond {
		t.Errorf("after a restart: %v a token, want the machine's as before", got)
	}
	for range 40 {
		r.pass(time.Second)
		again.LearnSpeed(500, time.Second)
	}
	if got := again.Engine().Live().PerToken; got.Round(10*time.Microsecond) != 2*time.Millisecond {
		t.Errorf("after many of half the speed: %v a token, want 2 ms", got)
	}
}

// Ten prompts that arrive at once are answered one after the other. Each takes a second of the engine, the last one ten.
func TestSpeed_QueueingIsNoSlowness(t *testing.T) {
	for _, legs := range []int{10, 3 * maxCompleted} {
		r := newRig(t)
		s, _ := r.incarnations()
		for i := range legs {
			r.pass(time.Second)
			s.LearnSpeed(1000, time.Duration(i+1)*time.Second)
		}
		if got := s.Engine().Live().PerToken; got.Round(10*time.Microsecond) != time.Millisecond {
			t.Errorf("%d legs: %v a token, want 1 ms", legs, got)
		}
		if n := len(s.engine.habits.speed.legs); n > maxCompleted {
			t.Errorf("%d legs are remembered", n)
		}
	}
}

// An engine that is taken for a slow one gets no legs that could show the contrary. After a while it is tried again.
func TestSpeed_IsForgotten(t *testing.T) {
	w := newWeighing(t)
	w.p[0].LearnSpeed(10, time.Minute) // its first leg
	w.p[1].LearnSpeed(1000, time.Second)
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
	w.pass(speedFor)
	if got := delay("p0"); got != 0 {
		t.Errorf("no speed counts: %v", got)
	}
	w.p[1].LearnSpeed(1000, time.Second)
	if got := delay("p0"); got != 100*time.Millisecond {
		t.Errorf("a minute later: %v, want that of the other", got)
	}
	w.p[0].LearnSpeed(1000, 2*time.Second)
	if got := delay("p0"); got != 200*time.Millisecond {
		t.Errorf("after another leg: %v, want what that one tells", got)
	}
}

func TestSpeed_ATinyPromptSaysLittle(t *testing.T) {
	r := newRig(t)
	s, _ := r.incarnations()
	for range 5 {
		r.pass(time.Second)
		s.LearnSpeed(10_000, time.Second)
		r.pass(time.Second)
		s.LearnSpeed(10, 20*time.Millisecond) // 2 ms a token, because of the rest of a leg
	}
	if got := learnt(s.Engine()); got < 90_000 || got > 120_000 {
		t.Errorf("got %v ns a token, want about 100,000", got)
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
	w.p[0].LearnSpeed(1000, time.Second)
	if want := [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}; delays(100) != want {
		t.Errorf("one speed is known: %v, want the same for both", delays(100))
	}
	w.p[1].LearnSpeed(1000, 3*time.Second)
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
	done()
	if want := [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond}; delays(100) != want {
		t.Errorf("after its end: %v, want %v", delays(100), want)
	}
	w.p[0].engine.load = load{Use: facts.Use{Running: 2}, others: 2, read: w.now()}
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
