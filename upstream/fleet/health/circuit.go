package health

import (
	"fmt"
	"time"

	"carryover/upstream"
)

// A circuit opens after FailuresToOpen failed legs in a row, for OpenFirst. Each failed trial doubles that time, up to
// openMax, because a trial costs one client a failed leg.
const (
	FailuresToOpen = 5
	OpenFirst      = time.Second
	openMax        = 30 * time.Second
	askedFor       = 5 * time.Second // between two requests of our own; one may take as long
)

// circuit is closed (the zero value), open (picks avoid the engine), or half-open (one attempt at a time may try it).
// Health.mu guards it.
//
// While it is open, ends of legs do not count: these legs began before, or no other engine was left.
type circuit struct {
	failures int       // in a row
	heard    time.Time // when a leg was last answered
	since    time.Time
	last     string        // how the last leg failed
	doubted  int           // further failures in a row whose cause may be the request
	asked    time.Time     // when the engine last got a request of our own because of them
	pause    time.Duration // length of the last opening, 0 if closed
	until    time.Time     // when it becomes half-open
	trial    uint64        // number of the attempt that tries the engine, 0 for none
	lapses   time.Time     // when another attempt may try it, because a whole answer may take an hour
	silent   bool          // opened because the engine was silent; not a byte has come since
}

func (c *circuit) open(now time.Time) bool     { return c.pause > 0 && now.Before(c.until) }
func (c *circuit) halfOpen(now time.Time) bool { return c.pause > 0 && !now.Before(c.until) }

func (c *circuit) trip(now time.Time) (closed bool) {
	closed = c.pause == 0
	c.pause = min(max(OpenFirst, 2*c.pause), openMax)
	c.until, c.trial = now.Add(c.pause), 0
	return closed
}

func (c *circuit) why() string {
	if c.silent {
		return "it has sent nothing to waiting streams since " + moment(c.since)
	}
	legs := "1 leg has"
	if c.failures > 1 {
		legs = fmt.Sprintf("%d legs in a row have", c.failures)
	}
	return fmt.Sprintf("%s failed since %s, the last with %s", legs, moment(c.since), c.last)
}

// Begin makes an attempt the trial if the circuit is half-open and has none.
func (h *Health) Begin(number uint64) {
	h.change(func(is *condition, now time.Time) {
		if c := &is.circuit; c.halfOpen(now) && (c.trial == 0 || !now.Before(c.lapses)) {
			c.trial, c.lapses = number, now.Add(openMax)
		}
	})
}

// End ends the attempt's trial, if it is one.
func (h *Health) End(number uint64) {
	h.change(func(is *condition, _ time.Time) {
		if is.circuit.trial == number {
			is.circuit.trial = 0
		}
	})
}

// Closed reports whether the circuit is closed; half-open is not closed.
func (h *Health) Closed() bool { return h.read().circuit.pause == 0 }

// Served records that a leg ended properly, a stream with its last event. It closes a half-open circuit.
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

// Failed records that an accepted leg failed by the engine's fault: a 5xx, a broken connection or stream, no answer in
// time, or a meaningless answer. Failures that the request, the client or a ticket caused do not belong here.
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

// Doubted records a failure whose cause may be the request, which opens no circuit. It reports whether the caller is to send a request of its
// own and pass the result to Asked.
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

// Asked records how our own request failed, nil if it did not. A failure confirms the doubted failures; success refutes all.
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

// Unanswered follows Failed for a leg that got no answer within its time limit. If the engine has answered no other leg
// since it began, the circuit opens immediately: each further failure would cost a client the whole limit.
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
		h.cfg.Tell(fmt.Sprintf("opens its circuit for %s: a leg has reached its time limit, and the engine has answered no other", pause))
	}
}
