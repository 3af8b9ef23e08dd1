package health

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// An engine is ejected when its time per work exceeds slowFactor times the median of its role in slowRounds rounds in a
// row: one long prompt before ten short ones makes an engine late once. Its legs must also be slowExcess longer on
// average, because fixed costs differ by milliseconds, which matters to no client.
const (
	slowFactor  = 3
	slowRounds  = 2
	slowExcess  = 100 * time.Millisecond
	slowSamples = 10 // legs of an engine before it is compared
	slowEngines = 3  // comparable engines of a role before one is ejected
)

// The nth ejection in a row lasts n times ejectFor, at most ejectMax.
const (
	ejectFor = 30 * time.Second
	ejectMax = 5 * time.Minute
)

// legSpeed is the recent time per work since the last restart or ejection. It sums time and work, so that short legs,
// which are mostly fixed cost, do not decide. Each leg weakens the older ones by a fifth.
type legSpeed struct {
	samples          int
	legs, work, took float64
}

type ejection struct {
	times        int // in a row
	factor       float64
	since, until time.Time
	seen         int  // number of samples when it was last found slow
	slow         int  // slow rounds in a row
	out          bool // its end was not logged yet
}

func (e *ejection) lasts(now time.Time) bool { return now.Before(e.until) }

// Took records a leg that differs from others of its role only by its work. For prefill, work and time are the sample
// of facts.Speed: the tokens of all legs answered meanwhile. For decode's first event after a hand-over, work is 1.
func (h *Health) Took(work int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if work > 0 && !h.is.ejection.lasts(h.cfg.Now()) {
		const keeps = 0.8
		t := &h.is.legSpeed
		t.samples++
		t.legs, t.work, t.took = t.legs*keeps+1, t.work*keeps+float64(work), t.took*keeps+float64(took)
	}
}

// Member is an engine of a role.
type Member struct {
	Health *Health
	Weight int
	Out    bool // the fleet leaves it out for its own reasons
}

type compared struct {
	health  *Health
	weight  int
	speed   legSpeed
	perWork float64
	borne   float64 // tolerated perWork
}

func (c *compared) slow() bool {
	t := &c.speed
	return c.perWork > slowFactor*c.borne && t.took-t.work*c.borne > t.legs*float64(slowExcess)
}

// Eject ejects the engines of a role that are slower than the others. At most half of the role may be out for any reason, so one engine stays.
func Eject(role []Member) {
	out := 0
	var all []compared
	for _, m := range role {
		m.Health.readmit()
		if m.Out || !m.Health.Usable() {
			out++
		} else if t := m.Health.read().legSpeed; t.samples >= slowSamples {
			all = append(all, compared{health: m.Health, weight: max(1, m.Weight), speed: t, perWork: t.took / t.work})
		}
	}
	if len(all) < slowEngines {
		return
	}
	bear(all)
	slices.SortFunc(all, func(a, b compared) int { return cmp.Compare(b.perWork/b.borne, a.perWork/a.borne) })
	for i := range all {
		if c := &all[i]; c.health.judge(c, out+1 <= len(role)/2) {
			out++
		}
	}
}

// bear sets the tolerated time per work of each engine: the median of its role. An engine with less weight than
// another may be slower in proportion; one with more weight need not be faster, because weights also express load. Of
// an even number of engines the slower middle one is the median, so that two of four never look like outliers.
func bear(all []compared) {
	medians := map[int]float64{} // by weight, since there are few weights
	for i := range all {
		own := all[i].weight
		if medians[own] == 0 {
			expected := make([]float64, len(all))
			for j := range all {
				expected[j] = all[j].perWork * max(1, float64(all[j].weight)/float64(own))
			}
			slices.Sort(expected)
			medians[own] = expected[len(expected)/2]
		}
		all[i].borne = medians[own]
	}
}

func (h *Health) judge(c *compared, allowed bool) (ejected bool) {
	var as ejection
	h.change(func(is *condition, now time.Time) {
		j := &is.ejection
		switch {
		case !c.slow():
			j.times, j.slow, j.seen = 0, 0, 0
		case c.speed.samples != j.seen:
			j.seen = c.speed.samples
			j.slow++
		}
		if ejected = j.slow >= slowRounds && allowed; ejected {
			lasts := min(time.Duration(j.times+1)*ejectFor, ejectMax)
			*j = ejection{times: j.times + 1, factor: c.perWork / c.borne, since: now, until: now.Add(lasts), out: true}
			is.legSpeed = legSpeed{}
		}
		as = *j
	})
	if ejected {
		h.cfg.Log.Warn("engine is ejected", "times_slower", math.Round(10*as.factor)/10, "times_in_a_row", as.times, "for", as.until.Sub(as.since).String())
		h.cfg.Tell(fmt.Sprintf("is ejected for %s (ejections in a row: %d): it is %.1f times slower than the median of its role", as.until.Sub(as.since), as.times, as.factor))
	}
	return ejected
}

func (h *Health) readmit() {
	back := false
	h.change(func(is *condition, now time.Time) {
		if back = is.ejection.out && !is.ejection.lasts(now); back {
			is.ejection.out = false
		}
	})
	if back {
		h.cfg.Log.Info("engine is no longer ejected")
		h.cfg.Tell("is no longer ejected, and is compared again")
	}
}
