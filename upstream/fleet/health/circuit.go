package health

import (
	"fmt"
	"time"

	"carryover/upstream"
)

// A circuit opens after FailuresToOpen legs in a row that failed. It stays open for OpenFirst, and for twice as long
// after each trial that fails, up to openMax: a trial costs one client a failed leg.
const (
	FailuresToOpen = 5
	OpenFirst      = time.Second
	openMax        = 30 * time.Second
	askedFor       = 5 * time.Second // an answer to a question may take as long
)

// circuit is what recent legs have shown of an engine: closed; open, when picks avoid the engine for a while; or
// half-open, when one attempt at a time may try it. The zero value is closed. The lock of its Health guards it.
//
// While it is open, the ends of legs do not count: these legs began before, or no other engine was left.
type circuit struct {
	failures int       // in a row
	heard    time.Time // when a leg was last answered
	since    time.Time
	last     string        // how the last leg failed
	doubted  int           // failures in a row that may have been the requests', besides those
	asked    time.Time     // when the engine was last asked because of them
	pause    time.Duration // how long it was opened for, 0 if it is closed
	until    time.Time     // when it becomes half-open
	trial    uint64        // number of the attempt that tries the engine, 0 if none does
	lapses   time.Time     // when another may try it: a whole answer may take an hour
	silent   bool          // it was opened because the engine was silent, and not a byte has come since
}

func (c *circuit) open(now time.Time) bool     { return c.pause > 0 && now.Before(c.until) }
func (c *circuit) halfOpen(now time.Time) bool { return c.pause > 0 && !now.Before(c.until) }

// trip opens the circuit, and reports whether it was closed.
func (c *circuit) trip(now time.Time) (closed bool) {
	closed = c.pause == 0
	c.pause = min(max(OpenFirst, 2*c.pause), openMax)
	c.until, c.trial = now.Add(c.pause), 0
	return closed
}

// failed describes why the circuit was opened.
func (c *circuit) failed() string {
	if c.silent {
		return "it has sent nothing to streams that waited since " + moment(c.since)
	}
	legs := "1 leg has"
	if c.failures > 1 {
		legs = fmt.Sprintf("%d legs in a row have", c.failures)
	}
	return fmt.Sprintf("%s failed since %s, the last with %s", legs, moment(c.since), c.last)
}

// Begin tells the circuit of an attempt: it becomes the trial if the circuit is half-open and has none.
func (h *Health) Begin(number uint64) {
	h.change(func(is *condition, now time.Time) {
		if c := &is.circuit; c.halfOpen(now) && (c.trial == 0 || !now.Before(c.lapses)) {
			c.trial, c.lapses = number, now.Add(openMax)
		}
	})
}

// End tells the circuit that an attempt has ended, with any result.
func (h *Health) End(number uint64) {
	h.change(func(is *condition, _ time.Time) {
		if is.circuit.trial == number {
			is.circuit.trial = 0
		}
	})
}

// Closed reports whether the circuit is closed: not even waiting for a turn to try the engine.
func (h *Health) Closed() bool { return h.read().circuit.pause == 0 }

// Served records that a leg has ended properly, a stream with its last event. It closes the circuit if that is half-open.
func (h *Health) Served() {
	closed := false
	h.change(func(is *condition, now time.Time) {
		if c := &is.circuit; !c.open(now) {
			closed = c.pause > 0
			*c = circuit{heard: c.heard}
		}
	})
	if closed {
		h.cfg.Log.Info("engine closes its circuit")
		h.cfg.Tell("closes its circuit: it has served a leg")
	}
}

// Failed records that a leg which the engine had accepted failed by the engine's fault: a 5xx, a broken connection or
// stream, no answer in time, or an answer that makes no sense. Failures that the request, the client or one of our
// tickets caused are not to be recorded here.
func (h *Health) Failed(leg *upstream.LegError) {
	var opened circuit
	h.change(func(is *condition, now time.Time) {
		c := &is.circuit
		if c.open(now) {
			return
		}
		if c.failures == 0 {
			c.since = now
		}
		c.failures++
		if c.last = leg.Kind.String(); leg.Kind == upstream.Status {
			c.last = fmt.Sprintf("status %d", leg.Status)
		}
		if (c.pause > 0 || c.failures >= FailuresToOpen) && c.trip(now) {
			opened = *c
		}
	})
	if opened.pause > 0 {
		h.cfg.Log.Warn("engine opens its circuit", "failures", opened.failures, "last", opened.last, "tried_again_in", opened.pause.String())
		h.cfg.Tell(fmt.Sprintf("opens its circuit for %s: %d legs in a row have failed, the last with %s", opened.pause, opened.failures, opened.last))
	}
}

// Doubted is Failed where the request may have caused the failure: what clients send opens no circuit. It reports whether the engine is to be
// asked by a request of our own, of which Asked tells.
func (h *Health) Doubted() (ask bool) {
	h.change(func(is *condition, now time.Time) {
		c := &is.circuit
		if c.open(now) {
			return
		}
		c.doubted++
		if ask = (c.pause > 0 || c.failures+c.doubted >= FailuresToOpen) && now.Sub(c.asked) >= askedFor; ask {
			c.asked = now
		}
	})
	return ask
}

// Asked records how a request of our own has failed, nil if it has not: it confirms the failures that were doubted, or refutes all.
func (h *Health) Asked(failure *upstream.LegError) {
	if failure == nil {
		h.Served()
		return
	}
	h.change(func(is *condition, _ time.Time) {
		is.circuit.failures, is.circuit.doubted = is.circuit.failures+is.circuit.doubted, 0
	})
	h.Failed(failure)
}

// Unanswered is called after Failed for a leg that began at began and had no answer within its time limit. If the
// engine has answered no other leg since, the circuit opens at once: each further failure would cost a client that
// whole time.
func (h *Health) Unanswered(began time.Time) {
	pause := time.Duration(0)
	h.change(func(is *condition, now time.Time) {
		if c := &is.circuit; c.pause == 0 && c.heard.Before(began) {
			c.trip(now)
			pause = c.pause
		}
	})
	if pause > 0 {
		h.cfg.Log.Warn("engine answers no leg and opens its circuit", "unanswered_since", began, "tried_again_in", pause.String())
		h.cfg.Tell(fmt.Sprintf("opens its circuit for %s: it has let a leg reach its time limit, and has answered no other", pause))
	}
}
