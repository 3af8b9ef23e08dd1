package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"carryover/upstream"
)

// An engine is ejected that takes more than slowFactor times as long for its work as the median of its role, at slowRounds
// rounds of probing in a row: one long prompt in front of ten short ones makes an engine late once. A leg must have been
// longer by slowExcess on average: what engines take without work differs by milliseconds, and matters to no client.
const (
	slowFactor  = 3
	slowRounds  = 2
	slowExcess  = 100 * time.Millisecond
	slowSamples = 10 // legs of an engine before it is compared
	slowEngines = 3  // engines that can be compared before one is ejected
)

// An ejection lasts ejectFor, times how often the engine was ejected in a row, up to ejectMax.
const (
	ejectFor = 30 * time.Second
	ejectMax = 5 * time.Minute
)

// legSpeed is how long an engine takes of late. Sums keep legs with little work, which take what any leg takes, from deciding;
// what is older counts less by a fifth with each leg.
type legSpeed struct {
	samples          int // legs since it began
	legs, work, took float64
}

func (t *legSpeed) learn(work int, took time.Duration) {
	const keeps = 0.8
	t.samples++
	t.legs, t.work, t.took = t.legs*keeps+1, t.work*keeps+float64(work), t.took*keeps+float64(took)
}

// ejection is when the engine is, or was last, taken out for being slow.
type ejection struct {
	times        int // in a row
	factor       float64
	since, until time.Time
	seen         int // samples that had come when it was last found to be slow
	slow         int // rounds in a row in which it was
}

func (j *ejection) lasts(now time.Time) bool { return now.Before(j.until) }

// Took records how long a leg has taken that is like any other of its role but for the amount of work: tokens that prefill
// computed; 1 for the first event of decode after a hand-over.
func (e *Engine) Took(work int, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if work > 0 && !e.ejection.lasts(e.fleet.now()) {
		e.legSpeed.learn(work, took)
	}
}

// compared is an engine that can be compared with others.
type compared struct {
	engine  *Engine
	speed   legSpeed
	perWork float64
	borne   float64 // the perWork that is expected of it
}

// slow reports whether the engine is slower than what is borne.
func (c *compared) slow() bool {
	t := &c.speed
	return c.perWork > slowFactor*c.borne && t.took-t.work*c.borne > t.legs*float64(slowExcess)
}

// eject takes out the engines of a role that are slower than the others, but never so that more than half of the role is out,
// for whatever reason: then one at least is left.
func (f *Fleet) eject(role upstream.Role) {
	engines := f.Engines(role)
	out := 0
	var all []compared
	for _, e := range engines {
		if !e.usable() || e.Quarantined() {
			out++
		} else if t := e.currentLegSpeed(); t.samples >= slowSamples {
			all = append(all, compared{engine: e, speed: t, perWork: t.took / t.work})
		}
	}
	if len(all) < slowEngines {
		return
	}
	bear(all)
	slices.SortFunc(all, func(a, b compared) int { return cmp.Compare(b.perWork/b.borne, a.perWork/a.borne) })
	for i := range all {
		if c := &all[i]; c.engine.judgeSpeed(c, out+1 <= len(engines)/2) {
			out++
		}
	}
}

// currentLegSpeed returns how long the engine takes of late.
func (e *Engine) currentLegSpeed() legSpeed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.legSpeed
}

// bear says what is borne of each engine: the median of its role. An engine of less weight than another is allowed to be
// slower by as much; one of more weight need not be faster, because weights are about load, too. Of an even number the slower
// one is the median, so that two of four are not taken for outliers.
func bear(all []compared) {
	medians := map[int]float64{} // by weight: there are few
	for i := range all {
		own := max(1, all[i].engine.Instance().Weight)
		if medians[own] == 0 {
			expected := make([]float64, len(all))
			for j := range all {
				expected[j] = all[j].perWork * max(1, float64(max(1, all[j].engine.Instance().Weight))/float64(own))
			}
			slices.Sort(expected)
			medians[own] = expected[len(expected)/2]
		}
		all[i].borne = medians[own]
	}
}

// judgeSpeed records what a round has found, and reports whether the engine is ejected.
func (e *Engine) judgeSpeed(c *compared, allowed bool) (ejected bool) {
	e.mu.Lock()
	j := &e.ejection
	switch {
	case !c.slow():
		j.times, j.slow, j.seen = 0, 0, 0
	case c.speed.samples != j.seen: // something has come since the last round
		j.seen = c.speed.samples
		j.slow++
	}
	if ejected = j.slow >= slowRounds && allowed; ejected {
		now := e.fleet.now()
		j.times++
		*j = ejection{times: j.times, factor: c.perWork / c.borne, since: now, until: now.Add(min(time.Duration(j.times)*ejectFor, ejectMax))}
		e.legSpeed = legSpeed{}
		e.show()
	}
	now := *j
	e.mu.Unlock()
	if ejected {
		e.log().Warn("engine is ejected", "times_slower", math.Round(10*now.factor)/10, "times_in_a_row", now.times, "for", now.until.Sub(now.since).String())
	}
	return ejected
}
