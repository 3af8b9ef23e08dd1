package fleet

import (
	"fmt"
	"log/slog"
	"math"
	"time"
)

// never is the end of an avoidance that does not end with time.
const never = math.MaxInt64

// avoidUntil returns until when the engine is avoided and until when it is down, both on the fleet's clock. It needs
// e.mu.
func (e *Engine) avoidUntil() (avoid, down int64) {
	if e.failed >= unhealthyAfter {
		return never, never
	}
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return int64(t.Sub(e.fleet.born))
	}
	down = at(e.downUntil)
	if e.drain || e.circuit.trial != 0 {
		return never, down
	}
	return max(down, at(e.circuit.until), at(e.ejection.until), at(e.pausedUntil)), down
}

func (e *Engine) answers() bool { return e.seen.answers(e.fleet.clock()) }

// down needs e.mu.
func (e *Engine) down(now time.Time) bool {
	return e.failed >= unhealthyAfter || now.Before(e.downUntil)
}

// usable reports whether the engine is up, not counting that an attempt is trying it.
func (e *Engine) usable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.fleet.now()
	return !e.down(now) && !e.circuit.open(now) && !e.ejection.lasts(now) && !e.drain && !e.pauses(now)
}

// state returns the engine's state for operators, and a sentence that says why it is picked only when no other is
// left; why is "" for an engine that is up.
func (e *Engine) state() (state, why string) {
	state, why = e.ownState()
	if state != "draining" && state != "down" && e.Quarantined() {
		return "quarantined", "it has computed other ids than it was sent; no prefill leg goes to it until it is restarted"
	}
	return state, why
}

// ownState is state without quarantines.
func (e *Engine) ownState() (state, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.fleet.now()
	c, j := &e.circuit, &e.ejection
	switch {
	case e.gone.Load():
		return "draining", "it was removed; what is in flight goes on to its end"
	case e.drain:
		return "draining", "it is drained by the operator"
	case e.failed >= unhealthyAfter:
		return "down", fmt.Sprintf("%d health probes in a row have failed, the first at %s", e.failed, moment(e.downSince))
	case now.Before(e.downUntil):
		return "down", fmt.Sprintf("it has refused connections since %s; it is tried again at %s", moment(e.downSince), moment(e.downUntil))
	case e.pauses(now):
		return "paused", "it refuses requests because it is paused; it is tried again at " + moment(e.pausedUntil)
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

// failed describes why the circuit was opened.
func (c *circuit) failed() string {
	return fmt.Sprintf("%d legs in a row have failed since %s, the last with %s", c.failures, moment(c.since), c.last)
}

// moment formats a time for operators.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// log returns the logger with the engine's role and name.
func (e *Engine) log() *slog.Logger {
	return e.fleet.cfg.Logger.With("role", e.Role.String(), "instance", e.Name)
}
