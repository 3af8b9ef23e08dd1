package fleet

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// Which engines a fleet has, picks and avoids.
func TestFleet_Engines(t *testing.T) {
	scripts{
		"excluded engines are not picked":          "add p0 p1; p picks p1 but p0; p picks none but p0 p1; d picks none",
		"as configured":                            "add d2 d0 d1; d has d2 d0 d1; p has",
		"one that refuses is avoided for a moment": "add p0 p1; p0 refuses; p picks p1; p0 not reachable; p up 1; p picks p0 but p1; pass 2s; p picks p0",
		"probes and answers":                       "add p0; p0 ill; p up 1; p0 ill; p up 0; p0 answers; p up 1; p0 refuses; p0 well; p up 1",
		"an instance that stays keeps its engine": "add p0 p1; p begins p0; p0 refuses; set p0; add p2; p0 returns same; set p0 p2; p0 not reachable; p2 is reachable; p1 not reachable listed;" +
			"p0 runs 1; p0 ends; p0 runs 0; p0 moves elsewhere; p0 returns anew; p0 is reachable; set p0; p1 refuses; p1 answers; p1 not reachable",

		"a circuit, tried by one turn at a time": "add p0 p1; p0 fails 4; p picks p0; p0 fails 1; p picks p1; p up 1; p picks p0 but p1; pass 1s;" +
			"p begins p0; p begins p1; p up 2; p1 ends; p0 ends; p picks p0;" + // the trial has shown nothing
			`logged 1 level=WARN msg="engine opens its circuit" role=prefill instance=p0 failures=5 last=broken; p0 serves; logged 1 level=INFO msg="engine closes its circuit"`,
		"good health closes no circuit":       "add p0; p0 fails 5; p0 refuses; p0 well; p0 is open reachable; p0 not preferred; pass 1s; p0 well; p0 is half_open preferred",
		"an open one before one that is down": "add p0 p1 p2; p0 refuses; p1 fails 5; p2 drains; p picks p1; p picks p0 but p1 p2",
		"what is up": "add p0 p1 p2; p up 3; p0 fails 5; p up 2; p1 drains; p up 1; p2 refuses; p up 2;" + // the two that answer are what turns get
			"p0 refuses; p up 1; p1 refuses; p up 0; p0 well; p up 1; p2 well; p up 1",
		"a refusal holds for all ranks at the address": "add p0/a p1/a p2; p1 refuses; p1 refuses; p picks p2; p up 1; pass 2s; p0 answers; p1 answers; p2 answers;" +
			`logged 2 level=WARN msg="engine is down"; logged 2 answers again; p2 ill; p2 ill; p2 ill; logged 1 level=WARN msg="engine is down" role=prefill instance=p2 why=`,
		"and for the other role, which is not down": "add p0/a d0/a; tell 1; p0 refuses; d0.1 not fresh; d0.1 is reachable kept; d0.2 not kept",
		"a pause":                         "add p0 p1; p0 pauses; p0 answers; p picks p1; p0 is paused pausing reachable; p up 1; p picks p0 but p1; pass 2s; p0 is up; p0 not pausing; p picks p0",
		"an ejection ends with a restart": "add p0 p1 p2; p0 slows; p0 tells 1; p0 is ejected; p0 not preferred; p0 tells 2; p0 is up preferred",

		"a drain": "add p0 p1; p0 drains; p2 drains absent; d0 drains absent; p picks p1; p up 1; p0 is reachable listed leaving; p picks p0 but p1; p0 well; p0 answers; p0 serves;" +
			"p0 not preferred; p0 reconfigured; p picks p1; p0 resumes; p picks p0; p0 drains; set p1; set p0 p1; p picks p0",
		"without attempts it is gone at once": "add p0 p1; p begins p0; p0 ends; set p1; p drains",
		"one that comes back is what it was": "add d0 d1 p0; tell 1; p0 offers d0 trial; d begins d0; set d1 p0; d0 not reachable; d0.1 not over; p0 pairs 1; d drains d0;" +
			"d0 moves elsewhere; d0 not listed; d0 moves d0; d0 is listed reachable; d0 runs 1; d drains; d0.1 not over; d0 ends; d0 runs 0; d0 is listed",
		"it has no pairs with what went meanwhile": "add p0 d0; tell 1; p0 offers d0 trial; p begins p0; set d0; set; set p0; p0 returns same; p0 pairs 0",

		"it says what is freed": "set; freed 1 0; add d0; freed 1 0; d begins d0; freed 0 0; d0 ends; freed 1 0; d0 refuses; d0 answers; d0 answers; freed 1 0",
		"a limit per engine": "add p0 p1; freed 2 0; limit 2; freed 1 0; p begins p0; p begins p0; p begins p1; p begins p1; p picks busy; p picks busy but p0; p picks none but p0 p1;" +
			"p1 refuses; p picks busy; p0 ends; freed 1 3; p picks p0 but p1; p1 ends; limit 0; p picks p0; set p0 p1; freed 5 2",
	}.run(t)
}

func TestFleet_Quarantines(t *testing.T) {
	scripts{
		"of one incarnation": "add p0 p1; p0 tells 1; p0 not quarantined; p0.1 not bad; p0 errs; p0 is quarantined; p0.1 is bad; pass 5s; p0 is quarantined; p0 refuses; p0 is quarantined;" +
			"p1 not quarantined; p1 tells 1; p1 not quarantined; p1.1 not bad; p0 tells 2; p0 not quarantined; p0.2 not bad; pass 5s; p0 is quarantined; p0 tells 2; p0 errs;" +
			"p0 is quarantined; p0.2 is bad",
		"two processes tell by turns":      "add p0; p0 tells 1; p0 errs; p0 tells 2; p0.2 not bad; p0 tells 1; p0 is quarantined; p0.1 is bad",
		"it is not known which answers":    "add p0; p0 tells 1; p0 tells 2; p0.1 errs; p0 not quarantined; pass 1m; p0 is quarantined",
		"of an unknown one until one is":   "add p0; p0 errs; p0 is quarantined; p0 tells 1; p0 not quarantined",
		"for those that may":               "add p0; p0 tells 1; p0 errs; p picks none; p begins p0",
		"of an instance with another name": "add p0 p1/p0; set p0; tell 1; p0 errs; set p1; p1 returns anew; p1 is quarantined; p1 tells 1; p1 is quarantined",
		"it outlives its engine": "add p0 p1 d0/p0 p2/other; set p0 p1; tell 1; p0 errs; p1 errs; p1 tells 2;" +
			strings.Repeat("set; set d0 p2; d0 not quarantined; p2 not quarantined; set p0 p1; p0 returns anew; p0 is quarantined; p1 returns anew; p1 not quarantined;", 2) +
			"p0 tells 1; p0 is quarantined; p0.1 is bad; p0 tells 2; p0 not quarantined; away 0",
		"that comes while it is away": "add p0; tell 1; set; p0.1 errs; set p0; p0 returns anew; p0 is quarantined",
		"that comes late":             "add p0; tell 1; set; set p0; p0.1 errs; p0 returns anew; p0 is quarantined; p0 tells 1; p0 is quarantined",
		"that comes later":            "add p0; tell 1; set; set p0; p0 returns anew; p0 tells 1; p0 errs; p0 is quarantined",
		"of an engine that drains":    "add p0; tell 1; p begins p0; set; p0.1 errs; set p0; p0 returns same; p0 is quarantined; away 0",
		"of one rank": "add p0/p/0 p1/p/1; tell 1; p1 errs; p0 not quarantined; p1 is quarantined; set; set p0 p1; p0 returns anew; p1 returns anew; tell 1; p0 not quarantined;" +
			"p1 is quarantined",
	}.run(t)
	r := newRig(t)
	for i := range maxAway + 1 {
		r.play(fmt.Sprintf("add p%d; set p%[1]d; p%[1]d tells 1; p%[1]d errs", i))
	}
	if r.Set(nil); len(r.away) != maxAway {
		t.Errorf("%d quarantines are kept, want %d", len(r.away), maxAway)
	}
	r.Set(r.instances)
	for i, e := range r.Engines(upstream.RolePrefill) {
		if got, want := e.Quarantined(), i > 0; got != want {
			t.Errorf("%s: quarantined %t, want %t: the oldest goes", e.Name, got, want)
		}
	}
}

// One of many that look at once gets to try.
func TestCircuit_OneOfManyTries(t *testing.T) {
	r := newRig(t)
	r.play("add p0 p1; p0 fails 5; pass 1s")
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, _, err := r.Pick(upstream.RolePrefill, Hint{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	r.play("p0 runs 1; p1 runs 49")
}

func TestState_SaysWhyAnEngineIsAvoided(t *testing.T) {
	r := newRig(t)
	r.play("add p0 p1")
	at := func(after time.Duration) string { return r.Now().Add(after).UTC().Format(time.RFC3339) }
	for _, row := range []struct {
		script, state string
		words         []string
	}{
		{"pass 0s", "up", nil},
		{"p0 fails 5", "open", []string{"5 legs in a row have failed since " + at(0), "the last with broken", at(health.OpenFirst)}},
		{"pass 1s", "half_open", []string{"one turn at a time"}},
		{"p0 serves; p0 refuses", "down", []string{"refused connections since " + at(time.Second), at(time.Second + health.DownFor)}},
		{"p0 answers; p0 ill; p0 ill", "down", []string{"2 health probes", at(time.Second)}},
		{"p0 well; add p2; p0 slows", "ejected", []string{"9.0 times as long", at(31 * time.Second), "times in a row: 1"}},
		{"p0 tells 1; p0 errs", "quarantined", []string{"restart"}},
		{"p0 drains", "draining", []string{"operator"}},
		{"p0 begins p0; set", "draining", []string{"removed"}},
	} {
		r.play(row.script)
		live := r.engines["p0"].Live()
		if live.State != row.state || (live.Why == "") != (row.state == "up") {
			t.Errorf("%s: it is %s (%s), want %s", row.script, live.State, live.Why, row.state)
		}
		for _, word := range row.words {
			if !strings.Contains(live.Why, word) {
				t.Errorf("%s: %q does not say %q", row.state, live.Why, word)
			}
		}
	}
}

// What is in flight keeps an engine that was removed, and nothing else does.
func TestDraining_IsListedUntilItsLastTurnEnds(t *testing.T) {
	r := newRig(t)
	r.play("add p1 p0; p0 tells 1; p0 begins p0; p0 begins p0; set p1; p picks p1; p picks none but p1; p0 serves; p0 fails 1; p0 not reachable; p up 1; p drains p0; p0 is draining;" +
		"p0 runs 2; p0 ends; p drains p0; p0 runs 1; p0 ends; p drains")
	gone, incarnation := weak.Make(r.engines["p0"]), weak.Make(r.told["p0"])
	clear(r.engines)
	clear(r.told)
	clear(r.ends)
	runtime.GC()
	if gone.Value() != nil || incarnation.Value() != nil {
		t.Error("the engine is held on to after its last turn")
	}
}

// An engine that is removed between the look at the list and the pick is not picked: another may be.
func TestDraining_NotPickedWhileItIsRemoved(t *testing.T) {
	r := newRig(t)
	r.play("add p0")
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

// policy is one that a function is.
type policy func() int

func (p policy) Pick([]upstream.Candidate, string) int { return p() }

// All engines are removed while a pick that has seen them as members is under way.
func TestDraining_ListsWhatIsPickedWhileItIsRemoved(t *testing.T) {
	r := newRig(t)
	r.play("add p0")
	var group sync.WaitGroup
	r.SetPolicies(policy(func() int {
		group.Go(func() { r.Set(nil) })
		for !r.engines["p0"].gone.Load() {
			runtime.Gosched()
		}
		for range 1000 { // so long that Set would be over if it did not wait
			runtime.Gosched()
		}
		return 0
	}), nil)
	_, done, err := r.Pick(upstream.RolePrefill, Hint{}, nil)
	must(t, err)
	group.Wait()
	r.play("p drains p0")
	done()
	r.play("p drains")
}

// A defect of a policy costs the turn that it meets, and no other waits for it.
func TestPick_PolicyThatPanicsLeavesTheFleetUsable(t *testing.T) {
	r := newRig(t)
	r.play("add d0")
	r.SetPolicies(nil, policy(func() int { panic("a defect") }))
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
	r.SetPolicies(nil, &r.seen)
	r.play("d begins d0; d0 runs 1")
}
