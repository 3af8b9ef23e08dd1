package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/pairs"
)

// seen is a policy that keeps what it was told, by instance, and picks the first.
type seen struct {
	key        string
	candidates map[string]upstream.Candidate
}

func (s *seen) Pick(candidates []upstream.Candidate, key string) int {
	s.key, s.candidates = key, map[string]upstream.Candidate{}
	for _, c := range candidates {
		s.candidates[c.Name] = c
	}
	return 0
}

// weighing is a fleet of two prefill and two decode engines of which all incarnations are known, and what its policy was
// told last.
type weighing struct {
	*rig
	p, d [2]*Incarnation
	told seen
}

func newWeighing(t *testing.T) *weighing {
	t.Helper()
	w := &weighing{rig: newRig(t)}
	w.picking.prefill, w.picking.decode = &w.told, &w.told
	for i, e := range w.named(upstream.RolePrefill, "p0", "p1") {
		w.p[i] = tells(e, "1")
	}
	for i, e := range w.named(upstream.RoleDecode, "d0", "d1") {
		w.d[i] = tells(e, "1")
	}
	return w
}

// stop stops the pair of two incarnations.
func (w *weighing) stop(p, d int) {
	ps := w.p[p].PairWith(w.d[d])
	ps.Begin("")
	ps.End(pairs.Unanswered, "")
}

// want checks what the policy was told of the two instances of a role.
func (w *weighing) want(role upstream.Role, hint Hint, holds [2]int, stopped [2]bool) {
	w.t.Helper()
	_, release, err := w.Pick(role, hint, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	release()
	for i, e := range w.Engines(role) {
		if c := w.told.candidates[e.Name]; c.Holds != holds[i] || c.Stopped != stopped[i] || c.InFlight != 0 {
			w.t.Errorf("%s: told that it holds %d, stopped %t, want %d, %t", e.Name, c.Holds, c.Stopped, holds[i], stopped[i])
		}
	}
}

func TestPick_TellsThePolicyOfTheConversation(t *testing.T) {
	w := newWeighing(t)
	_, release, err := w.Pick(upstream.RoleDecode, Hint{Key: "k"}, nil)
	if err != nil || w.told.key != "k" {
		t.Fatalf("key %q, %v", w.told.key, err)
	}
	defer release()
	again, release, err := w.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil || w.told.candidates["d0"].InFlight != 1 || w.told.candidates["d1"].InFlight != 0 || again.Name != "d0" {
		t.Errorf("told %+v", w.told.candidates)
	}
	release()
}

func TestPick_CachedBlocksAreOfTheLiveIncarnation(t *testing.T) {
	w := newWeighing(t)
	hint := Hint{Holds: []Holding{{"d0", "1", 100}, {"d0", "1", 300}, {"d1", "0", 900}, {"gone", "1", 900}, {"p0", "1", 900}}}
	none := [2]bool{}
	w.want(upstream.RoleDecode, hint, [2]int{300, 0}, none)
	w.want(upstream.RolePrefill, hint, [2]int{}, none)
	w.pass(readFor) // what was last read says enough to pick by
	w.want(upstream.RoleDecode, hint, [2]int{300, 0}, none)
	w.d[1].Engine().Refused()
	w.want(upstream.RoleDecode, Hint{Holds: []Holding{{"d1", "1", 5}, {"d1", "", 7}}}, [2]int{}, none)
	tells(w.d[0].Engine(), "2")
	w.want(upstream.RoleDecode, hint, [2]int{}, none)
}

func TestPick_ADecodeEngineIsStoppedWithAllPrefillEngines(t *testing.T) {
	w := newWeighing(t)
	w.stop(0, 0)
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{})
	w.stop(1, 0)
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{true, false})
	w.stop(1, 1)
	w.stop(0, 1)
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{true, true})
	w.p[0].Engine().Refused() // what answers there next has not been tried
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{})
	tells(w.p[0].Engine(), "1")
	w.pass(pairs.RetrialAfter)
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{})
	w.stop(0, 0)
	w.stop(1, 0)
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{true, false})
	w.pass(2 * pairs.RetrialAfter) // each had been stopped before
	w.p[1].PairWith(w.d[0]).Begin("")
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{}) // on trial is not stopped
}

func TestPick_WithoutPrefillEnginesNothingIsStopped(t *testing.T) {
	w := newWeighing(t)
	w.Set([]upstream.Instance{*w.d[0].Engine().Instance(), *w.d[1].Engine().Instance()})
	w.want(upstream.RoleDecode, Hint{}, [2]int{}, [2]bool{})
}

func TestPick_APrefillEngineIsStoppedWithAllThatHoldTheConversation(t *testing.T) {
	w := newWeighing(t)
	both := Hint{Holds: []Holding{{"d0", "1", 1}, {"d1", "1", 1}}}
	one := Hint{Holds: []Holding{{"d0", "1", 1}, {"d1", "0", 1}, {"gone", "1", 1}}}
	w.stop(0, 0)
	w.want(upstream.RolePrefill, Hint{}, [2]int{}, [2]bool{})
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{})
	w.want(upstream.RolePrefill, one, [2]int{}, [2]bool{true, false})
	w.stop(0, 1)
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{true, false})
	for range health.UnhealthyAfter {
		w.d[1].Engine().Health.Probed(false) // which is no holder that could be read from
	}
	w.stop(1, 0)
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{true, true})
	w.d[1].Engine().Health.Answered()
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{true, false})
	w.d[1].Engine().Refused()
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{true, true})
	w.want(upstream.RolePrefill, Hint{Holds: []Holding{{"d1", "1", 1}}}, [2]int{}, [2]bool{})
	w.p[0].Engine().Refused()
	w.want(upstream.RolePrefill, both, [2]int{}, [2]bool{false, true})
}

// Blocks can be read from an engine whose completions fail.
func TestPick_AHolderIsOneThatAnswers(t *testing.T) {
	w := newWeighing(t)
	open(w.d[0].Engine())
	w.stop(0, 0)
	w.want(upstream.RolePrefill, Hint{Holds: []Holding{{"d0", "1", 1}}}, [2]int{}, [2]bool{true, false})
}

// The function that excludes engines may ask the fleet.
func TestPick_ExcludesWithoutALock(t *testing.T) {
	w := newWeighing(t)
	w.p[0].Quarantine()
	e, release, err := w.Pick(upstream.RolePrefill, Hint{}, func(e *Engine) bool {
		return w.Engine(upstream.RolePrefill, e.Name).Quarantined() || w.Up(upstream.RolePrefill) == 0
	})
	if err != nil || e.Name != "p1" {
		t.Fatalf("picked %v, %v, want p1", e, err)
	}
	release()
}
