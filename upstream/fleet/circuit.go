package fleet

import (
	"fmt"
	"time"

	"carryover/upstream"
)

// A circuit opens after failuresToOpen legs in a row that failed. It stays open for openFirst, and for twice as long
// after each trial that fails, up to openMax: a trial costs one client a failed leg.
const (
	failuresToOpen = 5
	openFirst      = time.Second
	openMax        = 30 * time.Second
)

// circuit is what recent legs have shown of an engine: closed; open, when picks avoid the engine for a while; or
// half-open, when one attempt at a time may try it. The zero value is closed. The engine's lock guards it.
//
// While it is open, the ends of legs do not count: these legs began before, or no other engine was left.
type circuit struct {
	failures int       // in a row
	heard    time.Time // when a leg was last answered
	since    time.Time
	last     string        // how the last leg failed
	pause    time.Duration // how long it was opened for, 0 if it is closed
	until    time.Time     // when it becomes half-open
	trial    uint64        // number of the attempt that tries the engine, 0 if none does
}

func (c *circuit) open(now time.Time) bool     { return c.pause > 0 && now.Before(c.until) }
func (c *circuit) halfOpen(now time.Time) bool { return c.pause > 0 && !now.Before(c.until) }

// begin makes an attempt the trial if the circuit is half-open and has none, and reports whether it did.
func (c *circuit) begin(number uint64, now time.Time) bool {
	if !c.halfOpen(now) || c.trial != 0 {
		return false
	}
	c.trial = number
	return true
}

// end ends an attempt, with any result, and reports whether it was the trial.
func (c *circuit) end(number uint64) bool {
	if c.trial != number {
		return false
	}
	c.trial = 0
	return true
}

// answered lets another attempt try, and reports whether one was trying. A stream may run for minutes, and its first
// bytes are reason enough for the next trial.
func (c *circuit) answered(now time.Time) (tried bool) {
	tried = c.trial != 0
	c.trial, c.heard = 0, now
	return tried
}

// served closes the circuit, and reports whether it was half-open.
func (c *circuit) served(now time.Time) (closed bool) {
	if c.open(now) {
		return false
	}
	closed = c.pause > 0
	*c = circuit{heard: c.heard}
	return closed
}

// fail counts a failed leg, and reports whether that opened a closed circuit.
func (c *circuit) fail(how string, now time.Time) (opened bool) {
	if c.open(now) {
		return false
	}
	if c.failures == 0 {
		c.since = now
	}
	c.failures++
	c.last = how
	if c.pause == 0 && c.failures < failuresToOpen {
		return false
	}
	opened = c.pause == 0
	c.pause = min(max(openFirst, 2*c.pause), openMax)
	c.until, c.trial = now.Add(c.pause), 0
	return opened
}

// unresponsive reports whether no leg was answered since a time.
func (c *circuit) unresponsive(since time.Time) bool { return c.heard.Before(since) }

// Served records that a leg has ended properly, a stream with its last event.
func (h *Health) Served() {
	h.mu.Lock()
	closed := h.circuit.served(h.engine.fleet.now())
	if closed {
		h.show()
	}
	h.mu.Unlock()
	if closed {
		h.engine.log().Info("engine closes its circuit")
	}
}

// Failed records that a leg which the engine had accepted failed by the engine's fault: a 5xx, a broken connection or
// stream, no answer in time, or an answer that makes no sense. Failures that the request, the client or one of our
// tickets caused are not to be recorded here.
func (h *Health) Failed(leg *upstream.LegError) {
	how := leg.Kind.String()
	if leg.Kind == upstream.Status {
		how = fmt.Sprintf("status %d", leg.Status)
	}
	h.mu.Lock()
	opened := h.circuit.fail(how, h.engine.fleet.now())
	h.show()
	failures, pause := h.circuit.failures, h.circuit.pause
	h.mu.Unlock()
	if opened {
		h.engine.log().Warn("engine opens its circuit", "failures", failures, "last", how, "tried_again_in", pause.String())
	}
}

// Unanswered is called after Failed for a leg that began at began and had no answer within its time limit. If the
// engine has answered no other leg since, the circuit opens at once: each further failure would cost a client that
// whole time.
func (h *Health) Unanswered(began time.Time) {
	h.mu.Lock()
	now := h.engine.fleet.now()
	opened := h.circuit.pause == 0 && h.circuit.unresponsive(began)
	if opened {
		h.circuit.failures = max(h.circuit.failures, failuresToOpen-1)
		h.circuit.fail(h.circuit.last, now)
		h.show()
	}
	pause := h.circuit.pause
	h.mu.Unlock()
	if opened {
		h.engine.log().Warn("engine answers no leg and opens its circuit", "unanswered_since", began, "tried_again_in", pause.String())
	}
}
