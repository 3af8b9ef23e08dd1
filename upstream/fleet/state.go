package fleet

import (
	"fmt"
	"log/slog"
	"time"
)

func (e *Engine) answers() bool { return e.seen.answers(e.fleet.clock()) }

// state returns the engine's state for operators, and a sentence that says why it is picked only when no other is
// left; why is "" for an engine that is up.
func (e *Engine) state() (state, why string) {
	state, why = e.Health.state()
	if state != "draining" && state != "down" && e.Quarantined() {
		return "quarantined", "it has computed other ids than it was sent; no prefill leg goes to it until it is restarted"
	}
	return state, why
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

// state returns the state for operators without quarantines, and why it is that.
func (h *Health) state() (state, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.engine.fleet.now()
	c, j := &h.circuit, &h.ejection
	switch {
	case h.engine.gone.Load():
		return "draining", "it was removed; what is in flight goes on to its end"
	case h.drain:
		return "draining", "it is drained by the operator"
	case h.failed >= unhealthyAfter:
		return "down", fmt.Sprintf("%d health probes in a row have failed, the first at %s", h.failed, moment(h.downSince))
	case now.Before(h.downUntil):
		return "down", fmt.Sprintf("it has refused connections since %s; it is tried again at %s", moment(h.downSince), moment(h.downUntil))
	case now.Before(h.pausedUntil):
		return "paused", "it refuses requests because it is paused; it is tried again at " + moment(h.pausedUntil)
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
