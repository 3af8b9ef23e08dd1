package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
)

// paced has each engine answer ten legs of 1000 tokens, at so many microseconds a token, and then lets a round judge them.
func (r *rig) paced(rounds int, perToken ...int) {
	r.t.Helper()
	for range rounds {
		for i, e := range r.Engines(upstream.RolePrefill) {
			for range slowSamples {
				e.Health.Took(1000, time.Duration(1000*perToken[i])*time.Microsecond)
			}
		}
		r.eject(upstream.RolePrefill)
	}
}

// out returns the names of the engines that are ejected.
func (r *rig) out() string {
	var names []string
	for _, e := range r.Engines(upstream.RolePrefill) {
		if state, _ := e.state(); state == "ejected" {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (r *rig) wantOut(want string) {
	r.t.Helper()
	if got := r.out(); got != want {
		r.t.Errorf("ejected are %q, want %q", got, want)
	}
}

func TestEjection_TakesOutTheSlowButNeverMoreThanHalf(t *testing.T) {
	for name, tc := range map[string]struct {
		perToken []int
		want     string
	}{
		"equal":               {[]int{200, 200, 200}, ""},
		"three times":         {[]int{200, 600, 200}, ""},
		"more":                {[]int{200, 601, 200}, "b"},
		"two are no role":     {[]int{200, 2000}, ""},
		"half are slow":       {[]int{2000, 200, 200, 2000}, ""},
		"two of five":         {[]int{200, 2000, 200, 3000, 200}, "b d"},
		"three of five":       {[]int{2000, 2000, 200, 3000, 200}, ""},
		"three of seven":      {[]int{200, 4000, 200, 3000, 200, 2000, 200}, "b d f"},
		"nothing clients see": {[]int{20, 119, 20}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.named(upstream.RolePrefill, []string{"a", "b", "c", "d", "e", "f", "g"}[:len(tc.perToken)]...)
			r.paced(slowRounds-1, tc.perToken...)
			r.wantOut("")
			r.paced(1, tc.perToken...)
			r.wantOut(tc.want)
		})
	}
}

// Those that are out for another reason count, and the slowest goes first.
func TestEjection_CountsAllThatAreOut(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b", "c", "d", "e", "f", "g")
	slow := []int{200, 200, 200, 200, 200, 2000, 3000}
	open(engines[0])
	r.Drain(upstream.RolePrefill, "b", true)
	r.paced(slowRounds, slow...)
	r.wantOut("g") // 3 of 7
	r.Drain(upstream.RolePrefill, "b", false)
	r.paced(slowRounds, slow...)
	r.wantOut("f g")
	if got := r.Up(upstream.RolePrefill); got != 4 {
		t.Errorf("%d are up, want 4", got)
	}
}

func TestEjection_LastsLongerEachTimeAndIsForgotten(t *testing.T) {
	r := newRig(t)
	book := r.logs()
	a := r.named(upstream.RolePrefill, "a", "b", "c")[0]
	lasts := func(want time.Duration) {
		t.Helper()
		r.paced(slowRounds, 2000, 200, 200)
		if got := a.Health.ejection.until.Sub(r.now()); got != want || a.up() {
			t.Errorf("ejected for %s, up %t, want %s", got, a.up(), want)
		}
		r.pass(want - 1)
		r.wantOut("a")
		r.pass(1)
		r.wantOut("")
		if n := currentLegSpeed(&a.Health).samples; n != 0 || !a.up() {
			t.Errorf("it returns with %d samples, up %t", n, a.up())
		}
	}
	for times := range 12 {
		lasts(min(time.Duration(times+1)*ejectFor, ejectMax))
	}
	r.paced(1, 200, 200, 200)
	lasts(ejectFor)
	if n := book.count("level=WARN", "engine is ejected", "instance=a", "times_slower=", "for=30s"); n != 2 {
		t.Errorf("%d lines in the log\n%s", n, book.text.String())
	}
	r.paced(slowRounds, 2000, 200, 200)
	tells(a, "1")
	r.wantOut("a") // the first incarnation that is read is the one that was slow
	tells(a, "2")
	r.wantOut("")
	if !a.up() {
		t.Error("an engine that was restarted is still avoided")
	}
}

// Once is not enough, and a round in which nothing came is none.
func TestEjection_NeedsTwoRoundsWithSomethingNew(t *testing.T) {
	r := newRig(t)
	r.named(upstream.RolePrefill, "a", "b", "c")
	r.paced(1, 2000, 200, 200)
	for range 3 {
		r.eject(upstream.RolePrefill)
	}
	r.wantOut("")
	r.paced(1, 200, 200, 200)
	r.paced(1, 2000, 200, 200)
	r.wantOut("")
	r.paced(1, 2000, 200, 200)
	r.wantOut("a")
}

// An engine that is meant to get less may be slower by as much; one that is meant to get more need not be faster.
func TestEjection_BearsWhatWeightsSay(t *testing.T) {
	for _, tc := range []struct {
		weights, perToken []int
		want              string
	}{
		{[]int{1, 4, 4, 4}, []int{2000, 200, 200, 200}, ""},
		{[]int{1, 4, 4, 4}, []int{2500, 200, 200, 200}, "0"},
		{[]int{0, 1, 1, 1}, []int{2000, 200, 200, 200}, "0"},
		{[]int{8, 1, 1, 1}, []int{500, 200, 200, 200}, ""},
		{[]int{8, 1, 1, 1}, []int{700, 200, 200, 200}, "0"},
	} {
		r := newRig(t)
		var instances []upstream.Instance
		for i, weight := range tc.weights {
			instances = append(instances, upstream.Instance{Role: upstream.RolePrefill, Name: fmt.Sprint(i), Weight: weight})
		}
		r.Set(instances)
		r.paced(slowRounds, tc.perToken...)
		if got := r.out(); got != tc.want {
			t.Errorf("weights %v, %v µs a token: ejected are %q, want %q", tc.weights, tc.perToken, got, tc.want)
		}
	}
}

// Prompts are unequal: short ones take what any leg takes, and say little of an engine's speed.
func TestEjection_ShortPromptsAreNoSlowness(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b", "c")
	for range slowRounds {
		for range slowSamples {
			engines[0].Health.Took(5, 40*time.Millisecond) // everything else was in its cache
			engines[1].Health.Took(10_000, 2*time.Second)
			engines[2].Health.Took(9_000, 2*time.Second)
			engines[2].Health.Took(0, time.Hour) // nothing that can be compared
		}
		r.eject(upstream.RolePrefill)
	}
	r.wantOut("")
}

func TestEjection_IsARoundOfTheProbes(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.engineNamed(upstream.RolePrefill, name)
	}
	for range slowRounds {
		for i, e := range r.Engines(upstream.RolePrefill) {
			for range slowSamples {
				e.Health.Took(1, []time.Duration{time.Second, 9 * time.Second, time.Second}[i])
			}
		}
		r.probeAll(t.Context())
	}
	r.wantOut("b")
}
