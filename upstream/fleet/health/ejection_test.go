package health

import (
	"strings"
	"testing"
	"time"

	"carryover/upstream"
)

// paced has each engine answer ten legs of 1000 tokens, at so many microseconds a token, and then lets a round judge them.
func (r *role) paced(rounds int, perToken ...int) {
	r.t.Helper()
	for range rounds {
		for i, m := range r.members {
			for range slowSamples {
				m.Health.Took(1000, time.Duration(1000*perToken[i])*time.Microsecond)
			}
		}
		Eject(r.members)
	}
}

// out returns the names of the engines that are ejected.
func (r *role) out() string {
	var names []string
	for i, m := range r.members {
		if state, _ := m.Health.State(); state == "ejected" {
			names = append(names, string(rune('a'+i)))
		}
	}
	return strings.Join(names, " ")
}

func (r *role) wantOut(want string) {
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
			r := newRole(t, len(tc.perToken))
			r.paced(slowRounds-1, tc.perToken...)
			r.wantOut("")
			r.paced(1, tc.perToken...)
			r.wantOut(tc.want)
		})
	}
}

// Those that are out for another reason count, and the slowest goes first.
func TestEjection_CountsAllThatAreOut(t *testing.T) {
	r := newRole(t, 7)
	slow := []int{200, 200, 200, 200, 200, 2000, 3000}
	for range FailuresToOpen {
		r.members[0].Health.Failed(&upstream.LegError{Kind: upstream.Broken, Sent: true})
	}
	r.members[1].Health.SetDrain(true)
	r.paced(slowRounds, slow...)
	r.wantOut("g") // 3 of 7
	r.members[1].Health.SetDrain(false)
	r.paced(slowRounds, slow...)
	r.wantOut("f g")
	up := 0
	for _, m := range r.members {
		if m.Health.Usable() {
			up++
		}
	}
	if up != 4 {
		t.Errorf("%d are up, want 4", up)
	}
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
		r.pass(want - 1)
		r.wantOut("a")
		r.pass(1)
		r.wantOut("")
		if n := a.is.legSpeed.samples; n != 0 || !r.up(0) {
			t.Errorf("it returns with %d samples, up %t", n, r.up(0))
		}
	}
	for times := range 12 {
		lasts(min(time.Duration(times+1)*ejectFor, ejectMax))
	}
	r.paced(1, 200, 200, 200)
	lasts(ejectFor)
	if n := r.logged("level=WARN", "engine is ejected", "instance=a", "times_slower=", "for=30s"); n != 2 {
		t.Errorf("%d lines in the log\n%s", n, r.log.String())
	}
	r.paced(slowRounds, 2000, 200, 200)
	r.wantOut("a")
	a.Restarted()
	r.wantOut("")
	if !r.up(0) {
		t.Error("an engine that was restarted is still avoided")
	}
}

// Once is not enough, and a round in which nothing came is none.
func TestEjection_NeedsTwoRoundsWithSomethingNew(t *testing.T) {
	r := newRole(t, 3)
	r.paced(1, 2000, 200, 200)
	for range 3 {
		Eject(r.members)
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
		{[]int{1, 4, 4, 4}, []int{2500, 200, 200, 200}, "a"},
		{[]int{0, 1, 1, 1}, []int{2000, 200, 200, 200}, "a"},
		{[]int{8, 1, 1, 1}, []int{500, 200, 200, 200}, ""},
		{[]int{8, 1, 1, 1}, []int{700, 200, 200, 200}, "a"},
	} {
		r := newRole(t, len(tc.weights))
		for i, weight := range tc.weights {
			r.members[i].Weight = weight
		}
		r.paced(slowRounds, tc.perToken...)
		if got := r.out(); got != tc.want {
			t.Errorf("weights %v, %v µs a token: ejected are %q, want %q", tc.weights, tc.perToken, got, tc.want)
		}
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
	r.wantOut("")
}

// Operators read how slow it was, and for how long it is out.
func TestEjection_SaysHowSlowAnEngineWas(t *testing.T) {
	r := newRole(t, 1)
	a := r.members[0].Health
	a.is.ejection = ejection{times: 2, factor: 4.06, since: r.now, until: r.now.Add(time.Minute)}
	state, why := a.State()
	if state != "ejected" {
		t.Errorf("it is %s", state)
	}
	for _, words := range []string{"4.1 times as long", moment(r.now.Add(time.Minute)), "times in a row: 2"} {
		if !strings.Contains(why, words) {
			t.Errorf("%q does not say %q", why, words)
		}
	}
}
