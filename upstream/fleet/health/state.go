package health

import (
	"fmt"
	"time"
)

// State returns the engine's state for operators, and a sentence that says why it is picked only when no other is
// left; why is "" for an engine that is up.
func (h *Health) State() (state, why string) {
	is, now := h.read(), h.cfg.Now()
	o, c, j := &is.outage, &is.circuit, &is.ejection
	switch {
	case is.drain.On:
		return "draining", "it is drained by the operator"
	case o.failed >= UnhealthyAfter:
		return "down", fmt.Sprintf("%d health probes in a row have failed, the first at %s", o.failed, moment(o.since))
	case now.Before(o.until):
		return "down", fmt.Sprintf("it has refused connections since %s; it is tried again at %s", moment(o.since), moment(o.until))
	case now.Before(is.pausedUntil):
		return "paused", "it refuses requests because it is paused; it is tried again at " + moment(is.pausedUntil)
	case !c.silent && h.Silent(h.clock()):
		return "open", fmt.Sprintf("it has sent nothing to streams that wait since %s; it gets no turns until it answers", moment(is.silence.since))
	case c.open(now):
		return "open", c.failed() + "; one turn tries it at " + moment(c.until)
	case c.halfOpen(now):
		return "half_open", c.failed() + "; one turn at a time tries it"
	case j.lasts(now):
		return "ejected", fmt.Sprintf("it took %.1f times as long as its role does, at %s; ejected until %s, times in a row: %d",
			j.factor, moment(j.since), moment(j.until), j.times)
	}
	return "up", ""
}

// moment formats a time for operators.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
