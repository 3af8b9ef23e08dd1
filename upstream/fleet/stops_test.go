package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// allStopped is what Stopped means, without numbers.
func allStopped(prefills, decodes []*Incarnation, now time.Time) bool {
	for _, p := range prefills {
		for _, d := range decodes {
			if !p.Known() || !d.Known() || !p.known(d).Stopped() {
				return false
			}
		}
	}
	return len(prefills) > 0 && len(decodes) > 0
}

// The numbers of stopped pairs spare the walk, and change nothing of what it finds.
func TestStops_TheNumbersHideNothing(t *testing.T) {
	w := newWeighing(t)
	random := rand.New(rand.NewPCG(1, 2))
	engines := func(role upstream.Role) []*Engine { return w.Engines(role) }
	lasts := func(role upstream.Role) (all []*Incarnation) {
		for _, e := range engines(role) {
			all = append(all, e.Last())
		}
		return all
	}
	found := 0
	for step := range 20_000 {
		p, d := engines(upstream.RolePrefill)[random.IntN(2)], engines(upstream.RoleDecode)[random.IntN(2)]
		switch ps := p.Last().PairWith(d.Last()); random.IntN(12) {
		case 0:
			tells(p, fmt.Sprint(1+random.IntN(3)))
		case 1:
			tells(d, fmt.Sprint(1+random.IntN(3)))
		case 2:
			w.Set(w.instances[1:])
			w.Set(w.instances)
		case 3:
			w.pass(time.Duration(random.IntN(90)) * time.Second)
		case 4:
			p.Refused()
		case 5:
			if ps.Begin("") == pairs.Trial {
				ps.End(pairs.Answered, "")
			}
		default:
			if ps.Begin("") == pairs.Trial {
				ps.End(pairs.Unanswered, "")
			}
		}
		holds := Hint{Holds: []Holding{{"d0", "1", 1}, {"d1", "1", 1}}}
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			if _, done, err := w.Pick(role, holds, nil); err != nil {
				t.Fatal(err)
			} else {
				done()
			}
			for _, e := range engines(role) {
				c, listed := w.told.candidates[e.Name]
				if !listed {
					continue // down
				}
				want := false
				if role == upstream.RoleDecode {
					want = allStopped(lasts(upstream.RolePrefill), []*Incarnation{e.Last()}, w.Now())
				} else {
					var holders []*Incarnation
					for _, d := range engines(upstream.RoleDecode) {
						if last := d.Last(); d.up() && last.ID() == "1" {
							holders = append(holders, last)
						}
					}
					want = allStopped([]*Incarnation{e.Last()}, holders, w.Now())
				}
				if want {
					found++
				}
				if c.Stopped != want {
					t.Fatalf("step %d: %s is told to be stopped: %t, want %t", step, e.Name, c.Stopped, want)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d were stopped: this test shows nothing", found)
	}
	w.Set(nil)
	if n := w.stops.Load(); n != 0 {
		t.Errorf("%d links count as stopped in an empty fleet", n)
	}
}
