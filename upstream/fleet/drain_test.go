package fleet

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"weak"

	"carryover/upstream"
)

func TestDrain_AnEngineOutOfServiceIsKnownAndGetsNothingNew(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b")
	if !r.Drain(upstream.RolePrefill, "a", true) || r.Drain(upstream.RolePrefill, "c", true) || r.Drain(upstream.RoleDecode, "a", true) {
		t.Error("want a drained, and to be told that there are no others")
	}
	if got := r.pick(); got != "b" || r.Up(upstream.RolePrefill) != 1 {
		t.Errorf("picked %s, %d up, want b alone", got, r.Up(upstream.RolePrefill))
	}
	if !engines[0].Reachable() || r.Engine(upstream.RolePrefill, "a") != engines[0] {
		t.Error("an engine that is drained can't be reached any more, so that its tickets are lost")
	}
	if got := r.pick("b"); got != "a" {
		t.Errorf("picked %s, want a, as no other is left", got)
	}
	engines[0].Health.Probed(true)
	engines[0].Health.Answered()
	engines[0].Health.Served()
	if engines[0].up() {
		t.Error("an answer ends the drain")
	}
	changed := r.instances[0]
	changed.Weight = 5
	r.Set([]upstream.Instance{changed, r.instances[1]})
	if got := r.pick(); got != "b" {
		t.Errorf("picked %s, want b: another weight does not end the drain", got)
	}
	r.Drain(upstream.RolePrefill, "a", false)
	if got := r.pick(); got != "a" {
		t.Errorf("picked %s, want a, which is in service again", got)
	}
	r.Drain(upstream.RolePrefill, "a", true)
	r.Set(r.instances[1:])
	r.Set(r.instances)
	if got := r.pick(); got != "a" {
		t.Errorf("picked %s, want a: the drain ended when the instance was removed", got)
	}
}

// What is in flight keeps an engine that was removed, and nothing else does.
func TestDraining_IsListedUntilItsLastTurnEnds(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "b")
	var gone weak.Pointer[Engine]
	var incarnation weak.Pointer[Incarnation]
	var ends []func()
	func() {
		kept := r.instances
		a := r.named(upstream.RolePrefill, "a")[0]
		for range 2 {
			_, done := r.attempt("b")
			ends = append(ends, done)
		}
		gone, incarnation = weak.Make(a), weak.Make(tells(a, "1"))
		r.instances = kept
		r.Set(kept)
		if got := r.pick(); got != "b" {
			t.Errorf("picked %s, want b", got)
		}
		if _, _, err := r.Pick(upstream.RolePrefill, Hint{}, excluding("b")); !errors.Is(err, upstream.ErrNoInstance) {
			t.Errorf("an engine that was removed is picked: %v", err)
		}
		a.Health.Served() // a leg of its turns
		a.Health.Failed(broken())
		if a.Reachable() || r.Up(upstream.RolePrefill) != 1 {
			t.Error("an engine that was removed counts as one that can be reached")
		}
	}()
	for left := 2; left > 0; left-- {
		all := r.Draining()
		if len(all) != 1 || all[0].Name != "a" || all[0].Role != upstream.RolePrefill || all[0].Live().InFlight != left || all[0].Live().State != "draining" {
			t.Fatalf("with %d turns in flight %d drain", left, len(all))
		}
		ends[left-1]()
	}
	if n := len(r.Draining()); n != 0 {
		t.Errorf("%d engines drain without a turn", n)
	}
	ends = nil
	runtime.GC()
	if gone.Value() != nil || incarnation.Value() != nil {
		t.Error("the engine is held on to after its last turn")
	}
}

func TestDraining_NothingInFlightIsGoneAtOnce(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "a", "b")
	_, done := r.attempt("b")
	done()
	r.Set(r.instances[1:])
	if n := len(r.Draining()); n != 0 {
		t.Errorf("%d engines drain without a turn", n)
	}
}

// A source that loses an instance for a moment costs it nothing that is known of it.
func TestDraining_AnInstanceThatComesBackIsTheEngineThatItWas(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RoleDecode, "a", "b")
	a, p := engines[0], r.named(upstream.RolePrefill, "p")[0]
	incarnation := tells(a, "1")
	tells(p, "1").PairWith(incarnation).Begin("")
	_, done, err := r.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Set(r.instances[1:])
	if a.Reachable() || incarnation.Over() || p.readings.known.pairs[a].State == nil {
		t.Error("an engine that was removed has tickets for turns, or can't be told to release them")
	}
	changed := r.instances[0]
	changed.BaseURL = "http://elsewhere"
	r.Set(append([]upstream.Instance{changed}, r.instances[1:]...))
	if r.Engine(upstream.RoleDecode, "a") == a {
		t.Error("one at another address is the same engine")
	}
	r.Set(r.instances)
	if r.Engine(upstream.RoleDecode, "a") != a || !a.Reachable() || a.inFlight.Load() != 1 || len(r.Draining()) != 0 || incarnation.Over() {
		t.Errorf("it is another engine, or one that drains: %d in flight, %d drain", a.inFlight.Load(), len(r.Draining()))
	}
	done()
	if a.inFlight.Load() != 0 || r.Engine(upstream.RoleDecode, "a") != a {
		t.Error("the end of a turn removed an engine that is back")
	}
}

// A prefill engine that comes back has no pairs with engines that went while it was away.
func TestDraining_ComesBackWithoutPairsOfTheDead(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	p.PairWith(d).ExchangedKV()
	_, done := r.attempt()
	defer done()
	r.Set(r.instances[1:]) // without p
	r.Set(nil)
	r.Set(r.instances[:1])
	if got := r.Engine(upstream.RolePrefill, "p"); got != p.Engine() || len(p.pairs) != 0 {
		t.Errorf("%d links, same engine %t, want none and the same", len(p.pairs), got == p.Engine())
	}
}

// Quarantines outlive the absence of an engine that drains, too.
func TestDraining_AQuarantineIsFoundAgain(t *testing.T) {
	r := newRig(t)
	p := tells(r.named(upstream.RolePrefill, "p")[0], "1")
	_, done := r.attempt()
	defer done()
	r.Set(nil)
	p.Quarantine() // by the turn that is in flight
	r.Set(r.instances)
	if !r.Engine(upstream.RolePrefill, "p").Quarantined() || len(r.away) != 0 {
		t.Errorf("quarantined %t, %d quarantines kept for others", r.Engine(upstream.RolePrefill, "p").Quarantined(), len(r.away))
	}
}

// An engine that is removed between the look at the list and the pick is not picked: another may be.
func TestDraining_NotPickedWhileItIsRemoved(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "a")
	var once sync.Once
	var group sync.WaitGroup
	e, _, err := r.Pick(upstream.RolePrefill, Hint{}, func(e *Engine) bool {
		once.Do(func() { group.Go(func() { r.Set(nil) }) })
		for !e.gone.Load() { // Set waits for the pick only after that
			runtime.Gosched()
		}
		return false
	})
	group.Wait()
	if !errors.Is(err, upstream.ErrNoInstance) || len(r.Draining()) != 0 {
		t.Fatalf("picked %v (%v), %d drain, want none", e, err, len(r.Draining()))
	}
}

// removing removes all engines of a fleet while a pick that has seen them as members is under way.
type removing struct {
	r    *rig
	e    *Engine
	over chan struct{}
}

func (p *removing) Pick([]upstream.Candidate, string) int {
	go func() {
		defer close(p.over)
		p.r.Set(nil)
	}()
	for !p.e.gone.Load() {
		runtime.Gosched()
	}
	for range 1000 { // so long that Set would be over if it did not wait
		runtime.Gosched()
	}
	return 0
}

func TestDraining_ListsWhatIsPickedWhileItIsRemoved(t *testing.T) {
	r := newRig(t)
	p := &removing{r, r.named(upstream.RolePrefill, "a")[0], make(chan struct{})}
	r.picking.prefill = p
	_, done, err := r.Pick(upstream.RolePrefill, Hint{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.over
	if got := r.Draining(); len(got) != 1 || got[0] != p.e {
		t.Errorf("%d drain, want the engine that has an attempt", len(got))
	}
	done()
	if got := r.Draining(); len(got) != 0 {
		t.Errorf("%d drain after the attempt", len(got))
	}
}
