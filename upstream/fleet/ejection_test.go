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
		r.legs(is)
		r.eject(upstream.RolePrefill)
	}
	r.play(is.Name + " is ejected")
}

// legs has each prefill engine answer ten legs, that one in nine times the time.
func (r *rig) legs(slow *Engine) {
	for _, e := range r.Engines(upstream.RolePrefill) {
		took := time.Second
		if e == slow {
			took = 9 * time.Second
		}
		for range 10 {
			e.Health.Took(1, took)
		}
	}
}

// Ten legs that came together wait for each other, and say as much of their engine's speed as ten that came one by one. A leg whose tokens are
// estimated tells picks of the speed, and ejects nobody.
func TestEjection_JudgesWhatAnEngineComputes(t *testing.T) {
	for name, row := range map[string]struct {
		each      time.Duration // that p0 computes for a leg
		queue     time.Duration // that each leg waits for those before it
		estimated bool
		want      string
	}{
		"as fast as the others":  {200 * time.Millisecond, 1, false, "up"},
		"four times as slow":     {800 * time.Millisecond, 1, false, "ejected"},
		"slow, by an estimation": {9 * time.Second, 0, true, "up"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			engines := r.named("p0", "p1", "p2")
			for range 2 {
				for n := range time.Duration(10) {
					r.pass(row.each)
					engines[0].LearnPrefill(1000, (n*row.queue+1)*row.each, !row.estimated)
					for _, e := range engines[1:] {
						e.LearnPrefill(1000, 200*time.Millisecond, true)
					}
				}
				r.eject(upstream.RolePrefill)
			}
			if r.play("p0 is " + row.want); engines[0].PerToken().Round(time.Microsecond) != row.each/1000 {
				t.Errorf("it takes %v per token, want a thousandth of %v", engines[0].PerToken(), row.each)
			}
		})
	}
}

func TestEjection_IsARoundOfTheProbes(t *testing.T) {
	r := newRig(t)
	r.play("fake p0 p1 p2")
	for range 2 {
		r.legs(r.engines["p1"])
		r.probeAll(t.Context())
	}
	r.play("p0 is up; p1 is ejected; p2 is up")
}
