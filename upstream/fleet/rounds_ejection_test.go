package fleet

import (
	"testing"
	"time"

	"carryover/upstream"
)

// slow has prefill engines answer legs, that one slower than the others, until its role ejects it.
func (r *rig) slow(is *Engine) {
	r.t.Helper()
	for range 2 {
		for _, e := range r.Engines(upstream.RolePrefill) {
			took := time.Second
			if e == is {
				took = 9 * time.Second
			}
			for range 10 {
				e.Health.Took(1, took)
			}
		}
		r.eject(upstream.RolePrefill)
	}
	if state, _ := is.state(); state != "ejected" {
		r.t.Fatalf("it is %s, want ejected", state)
	}
}

// Ten legs that came together wait for each other, and say as much of their engine's speed as ten that came one by one.
func TestEjection_WaitingIsNoSlowness(t *testing.T) {
	for name, row := range map[string]struct {
		each time.Duration // that the engine with the queue computes for a leg
		want string
	}{
		"as fast as the others": {200 * time.Millisecond, "up"},
		"four times as slow":    {800 * time.Millisecond, "ejected"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			engines := r.named(upstream.RolePrefill, "a", "b", "c")
			for range 2 {
				for n := range 10 {
					r.pass(row.each)
					engines[0].LearnPrefill(1000, time.Duration(n+1)*row.each, true)
					for _, e := range engines[1:] {
						e.LearnPrefill(1000, 200*time.Millisecond, true)
					}
				}
				r.eject(upstream.RolePrefill)
			}
			if state, why := engines[0].state(); state != row.want {
				t.Errorf("it is %s (%s), want %s", state, why, row.want)
			}
		})
	}
}

// A leg whose tokens are estimated tells picks of the speed, and ejects nobody.
func TestEjection_NeedsToKnowWhatWasComputed(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b", "c")
	for range 2 {
		for range 10 {
			r.pass(9 * time.Second)
			engines[0].LearnPrefill(1000, 9*time.Second, false)
			for _, e := range engines[1:] {
				e.LearnPrefill(1000, time.Second, true)
			}
		}
		r.eject(upstream.RolePrefill)
	}
	if state, _ := engines[0].state(); state != "up" || engines[0].PerToken().Round(time.Microsecond) != 9*time.Millisecond {
		t.Errorf("it is %s and takes %s per token, want up and 9ms", state, engines[0].PerToken())
	}
}

func TestEjection_EndsWithARestart(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a", "b", "c")[0]
	r.slow(a)
	tells(a, "1")
	if state, _ := a.state(); state != "ejected" || a.up() {
		t.Errorf("it is %s, up %t: the first incarnation that is read is the one that was slow", state, a.up())
	}
	tells(a, "2")
	if state, _ := a.state(); state != "up" || !a.up() {
		t.Errorf("it is %s, up %t, want an engine that was restarted not to be avoided", state, a.up())
	}
}

func TestEjection_IsARoundOfTheProbes(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "b", "c"} {
		r.engineNamed(upstream.RolePrefill, name)
	}
	for range 2 {
		for i, e := range r.Engines(upstream.RolePrefill) {
			for range 10 {
				e.Health.Took(1, []time.Duration{time.Second, 9 * time.Second, time.Second}[i])
			}
		}
		r.probeAll(t.Context())
	}
	for name, want := range map[string]string{"a": "up", "b": "ejected", "c": "up"} {
		if state, _ := r.Engine(upstream.RolePrefill, name).state(); state != want {
			t.Errorf("%s is %s, want %s", name, state, want)
		}
	}
}
