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
