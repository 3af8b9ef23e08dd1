package health

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCircuit(t *testing.T) {
	scripts{
		// An engine that has answered no leg since one began that had no answer in time fails all of them: waiting for four more would cost as
		// many clients that time.
		"it opens at once where nothing is answered": "pass 61s; a times-out 61s; a is open; a not preferred; a why 1 leg has failed since;" +
			`logged 1 msg="engine answers no leg and opens its circuit" instance=a`,
		"not where another leg was answered": "pass 1s; a answers; pass 1m; a times-out 61s; a is up preferred; logged 0 answers no leg",
		// What the log has called down is unreached until it answers anything.
		"it is unreached until it answers": "a refuses; pass 2s; a is unreached preferred; a not heard; a well; a not unreached; a is heard",
		// However many failures the requests may have caused, a question decides, one in five seconds. With others they ask sooner.
		"doubted failures only ask": "a doubts 5 asks at 5; a is up; a doubts 10; a is up; a asked; a doubts 4; a is up; pass 5s; a fails 1; a doubts 1 asks at 1; a is up;" +
			"a asked bad; a not preferred; a doubts 1; pass 6s; a doubts 1 asks at 1; a asked; a is closed",
	}.run(t)
}

// Operators are told what an engine is avoided for, and when that is over, in words that are the same each time.
func TestHealth_TellsOperatorsWhatAnEngineIsAvoidedFor(t *testing.T) {
	r := newRole(t, 3)
	steps := "a fails 6; pass 1m; a serves; a serves;"
	for step := range strings.SplitSeq(steps+steps+"pass 1m; b times-out 1m; pass 1m; b serves; pace 2 2000 200 200; round; pass 30s; round; round", ";") {
		r.step(strings.Fields(step), strings.Join(strings.Fields(step)[1:], " "))
	}
	opened, closed := "a opens its circuit for 1s: 5 legs in a row have failed, the last with status 503", "a closes its circuit: it has served a leg"
	want := []string{
		opened, closed, opened, closed,
		"b opens its circuit for 1s: a leg has reached its time limit, and the engine has answered no other", "b closes its circuit: it has served a leg",
		"a is ejected for 30s (ejections in a row: 1): it is 10.0 times slower than the median of its role", "a is no longer ejected, and is compared again",
	}
	if !slices.Equal(r.told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(r.told, "\n"), strings.Join(want, "\n"))
	}
}

func TestEjection(t *testing.T) {
	scripts{
		"equal":               "role 3; pace 2 200 200 200; out",
		"three times":         "role 3; pace 2 200 600 200; out",
		"more":                "role 3; pace 1 200 601 200; out; pace 1 200 601 200; out b",
		"two are no role":     "role 2; pace 2 200 2000; out",
		"half are slow":       "role 4; pace 2 2000 200 200 2000; out",
		"two of five":         "role 5; pace 1 200 2000 200 3000 200; out; pace 1 200 2000 200 3000 200; out b d",
		"three of five":       "role 5; pace 2 2000 2000 200 3000 200; out",
		"three of seven":      "role 7; pace 1 200 4000 200 3000 200 2000 200; out; pace 1 200 4000 200 3000 200 2000 200; out b d f",
		"nothing clients see": "role 3; pace 2 20 119 20; out",
		// Those that are out for another reason count, and the slowest goes first.
		"never more than half": "role 7; a fails 5; b drains; pace 2 200 200 200 200 200 2000 3000; out g; b resumes; pace 2 200 200 200 200 200 2000 3000; out f g;" +
			"b is usable; c is usable; d is usable; e is usable; a not usable; f not usable; g not usable",
		"a round with nothing new is none": "role 3; pace 1 2000 200 200; round; round; round; out; pace 1 200 200 200; pace 1 2000 200 200; out; pace 1 2000 200 200; out a",
		// An engine that is meant to get less may be slower by as much; one that is meant to get more need not be faster.
		"less weight, as much slower": "role 4; weigh 1 4 4 4; pace 2 2000 200 200 200; out",
		"less weight, slower":         "role 4; weigh 1 4 4 4; pace 2 2500 200 200 200; out a",
		"no weight is one":            "role 4; weigh 0 1 1 1; pace 2 2000 200 200 200; out a",
		"more weight":                 "role 4; weigh 8 1 1 1; pace 2 500 200 200 200; out",
		"more weight, slower":         "role 4; weigh 8 1 1 1; pace 2 700 200 200 200; out a",
		"a restart":                   "role 3; pace 2 2000 200 200; out a; a not preferred; a restarts; out; a is preferred",
	}.run(t)
}

func TestEjection_LastsLongerEachTimeAndIsForgotten(t *testing.T) {
	r := newRole(t, 3)
	a := r.members[0].Health
	lasts := func(want time.Duration) {
		t.Helper()
		r.paced(slowRounds, 2000, 200, 200)
		if got := a.is.ejection.until.Sub(r.now); got != want || r.up(0) {
			t.Errorf("ejected for %s, up %t, want %s", got, r.up(0), want)
		}
		if r.pass(want - 1); r.out() != "a" {
			t.Error("it returns too early")
		}
		if r.pass(1); r.out() != "" || a.is.legSpeed.samples != 0 || !r.up(0) {
			t.Errorf("it returns with %d samples, up %t", a.is.legSpeed.samples, r.up(0))
		}
	}
	for times := range 12 {
		lasts(min(time.Duration(times+1)*ejectFor, ejectMax))
	}
	r.paced(1, 200, 200, 200)
	lasts(ejectFor)
	if r.log.Count(`level=WARN msg="engine is ejected" instance=a times_slower=`) != 13 || r.log.Count(" times_in_a_row=1 for=30s") != 2 {
		t.Errorf("the log has\n%s", r.log.String())
	}
}

// Prompts are unequal: short ones take what any leg takes, and say little of an engine's speed.
func TestEjection_ShortPromptsAreNoSlowness(t *testing.T) {
	r := newRole(t, 3)
	for range slowRounds {
		for range slowSamples {
			r.members[0].Health.Took(5, 40*time.Millisecond) // everything else was in its cache
			r.members[1].Health.Took(10_000, 2*time.Second)
			r.members[2].Health.Took(9_000, 2*time.Second)
			r.members[2].Health.Took(0, time.Hour) // nothing that can be compared
		}
		Eject(r.members)
	}
	if out := r.out(); out != "" {
		t.Errorf("ejected are %s", out)
	}
}
