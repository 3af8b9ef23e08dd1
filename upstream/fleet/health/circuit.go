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

// begin makes an attempt the trial if the circuit is half-open and has none.
func (c *circuit) begin(number uint64, now time.Time) {
	if c.halfOpen(now) && (c.trial == 0 || !now.Before(c.lapses)) {
		c.trial, c.lapses = number, now.Add(openMax)
	}
}

// end ends an attempt, with any result.
func (c *circuit) end(number uint64) {
	if c.trial == number {
		c.trial = 0
	}
}

// answered lets another attempt try: a stream may run for minutes, and its headers are reason enough, unless the engine was silent
// behind them.
func (c *circuit) answered(now time.Time) {
	if c.heard = now; !c.silent {
		c.trial = 0
	}
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
	return (c.pause > 0 || c.failures >= FailuresToOpen) && c.trip(now)
}

// doubt counts a failure that the request may have caused. It reports whether the engine is to be asked.
func (c *circuit) doubt(now time.Time) (ask bool) {
	if c.open(now) {
		return false
	}
	if c.doubted++; c.pause == 0 && c.failures+c.doubted < FailuresToOpen || now.Sub(c.asked) < askedFor {
		return false
	}
	c.asked = now
	return true
}

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

// unresponsive reports whether no leg was answered since a time.
func (c *circuit) unresponsive(since time.Time) bool { return c.heard.Before(since) }

// Begin tells the circuit of an attempt: it may become the trial.
func (h *Health) Begin(number uint64) {
	h.change(func(is *condition, now time.Time) { is.circuit.begin(number, now) })
}

// End tells the circuit that an attempt has ended.
func (h *Health) End(number uint64) {
	h.change(func(is *condition, _ time.Time) { is.circuit.end(number) })
}

// Closed reports whether the circuit is closed: not even waiting for a turn to try the engine.
func (h *Health) Closed() bool { return h.read().circuit.pause == 0 }

// Served records that a leg has ended properly, a stream with its last event.
func (h *Health) Served() {
	closed := false
	h.change(func(is *condition, now time.Time) { closed = is.circuit.served(now) })
	if closed {
		h.cfg.Log().Info("engine closes its circuit")
		h.cfg.Tell("closes its circuit: it has served a leg")
	}
}

// Failed records that a leg which the engine had accepted failed by the engine's fault: a 5xx, a broken connection or
// stream, no answer in time, or an answer that makes no sense. Failures that the request, the client or one of our
// tickets caused are not to be recorded here.
func (h *Health) Failed(leg *upstream.LegError) {
	var opened bool
	var c circuit
	h.change(func(is *condition, now time.Time) {
		opened = is.circuit.fail(how(leg), now)
		c = is.circuit
	})
	if opened {
		h.cfg.Log().Warn("engine opens its circuit", "failures", c.failures, "last", c.last, "tried_again_in", c.pause.String())
		h.cfg.Tell(fmt.Sprintf("opens its circuit for %s: %d legs in a row have failed, the last with %s", c.pause, c.failures, c.last))
	}
}

// Doubted is Failed where the request may have caused the failure: what clients send opens no circuit. It reports whether the engine is to be
// asked by a request of our own, of which Asked tells.
func (h *Health) Doubted() (ask bool) {
	h.change(func(is *condition, now time.Time) { ask = is.circuit.doubt(now) })
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

// how says in a word how a leg has failed.
func how(leg *upstream.LegError) string {
	if leg.Kind == upstream.Status {
		return fmt.Sprintf("status %d", leg.Status)
	}
	return leg.Kind.String()
}

// Unanswered is called after Failed for a leg that began at began and had no answer within its time limit. If the
// engine has answered no other leg since, the circuit opens at once: each further failure would cost a client that
// whole time.
func (h *Health) Unanswered(began time.Time) {
	var opened bool
	var c circuit
	h.change(func(is *condition, now time.Time) {
		if opened = is.circuit.pause == 0 && is.circuit.unresponsive(began); opened {
			is.circuit.trip(now)
		}
		c = is.circuit
	})
	if opened {
		h.cfg.Log().Warn("engine answers no leg and opens its circuit", "unanswered_since", began, "tried_again_in", c.pause.String())
		h.cfg.Tell(fmt.Sprintf("opens its circuit for %s: it has let a leg reach its time limit, and has answered no other", c.pause))
	}
}
