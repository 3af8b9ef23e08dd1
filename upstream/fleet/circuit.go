package fleet

import (
	"fmt"
	"time"

	"carryover/upstream"
)

// A circuit opens after so many legs in a row that failed. It stays open for openFirst, and for twice as long each time
// that a trial fails, up to openMax: a trial costs one client a failed leg.
const (
	failuresToOpen = 5
	openFirst      = time.Second
	openMax        = 30 * time.Second
)

// circuit is what legs have shown of an engine of late: closed; open, when the engine is avoided for a while; half-open,
// when that is over and one attempt at a time may try. The zero value is closed. It is guarded by the lock of its Engine.
//
// While it is open nothing counts: what ends then began before, or had no other engine left.
type circuit struct {
	failures int       // in a row
	heard    time.Time // when a leg was answered last
	since    time.Time
	last     string        // how the last one failed
	pause    time.Duration // how long it was opened for, 0 if it is closed
	until    time.Time     // when that ends
	trial    uint64        // the number of the attempt that tries, 0 if none does
}

func (c *circuit) open(now time.Time) bool     { return c.pause > 0 && now.Before(c.until) }
func (c *circuit) halfOpen(now time.Time) bool { return c.pause > 0 && !now.Before(c.until) }

// begin makes an attempt the trial, if there is to be one, and reports whether it is.
func (c *circuit) begin(number uint64, now time.Time) bool {
	if !c.halfOpen(now) || c.trial != 0 {
		return false
	}
	c.trial = number
	return true
}

// end ends an attempt, whatever it has shown, and reports whether it was the trial.
func (c *circuit) end(number uint64) bool {
	if c.trial != number {
		return false
	}
	c.trial = 0
	return true
}

// answered lets another attempt try, and reports whether one was trying: a stream may run for minutes, and its first bytes
// say enough to dare the next one.
func (c *circuit) answered(now time.Time) (tried bool) {
	tried = c.trial != 0
	c.trial, c.heard = 0, now
	return tried
}

// served closes the circuit and reports whether it was half-open.
func (c *circuit) served(now time.Time) (closed bool) {
	if c.open(now) {
		return false
	}
	closed = c.pause > 0
	*c = circuit{heard: c.heard}
	return closed
}

// fail counts a leg that failed, and reports whether that has opened a circuit which was closed.
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

// unresponsive reports whether no leg has been answered since then.
func (c *circuit) unresponsive(since time.Time) bool { return c.heard.Before(since) }

// Served records that a leg has ended as it should, a stream with its end.
func (e *Engine) Served() {
	e.mu.Lock()
	closed := e.circuit.served(e.fleet.now())
	if closed {
		e.show()
	}
	e.mu.Unlock()
	if closed {
		e.log().Info("engine closes its circuit")
	}
}

// Failed records that a leg which the engine had accepted failed by its fault: a 5xx, a connection or a stream that broke, no
// answer in time, an answer that is none. What the request, the client, or a ticket of ours has caused is no such failure.
func (e *Engine) Failed(leg *upstream.LegError) {
	how := leg.Kind.String()
	if leg.Kind == upstream.Status {
		how = fmt.Sprintf("status %d", leg.Status)
	}
	e.mu.Lock()
	opened := e.circuit.fail(how, e.fleet.now())
	e.show()
	failures, pause := e.circuit.failures, e.circuit.pause
	e.mu.Unlock()
	if opened {
		e.log().Warn("engine opens its circuit", "failures", failures, "last", how, "tried_again_in", pause.String())
	}
}

// Unanswered records, after Failed, that a leg which was begun then got no answer in all the time that it had. If the engine has
// answered no other since, its circuit opens without waiting for more of them: each would cost a client that time.
func (e *Engine) Unanswered(began time.Time) {
	e.mu.Lock()
	now := e.fleet.now()
	opened := e.circuit.pause == 0 && e.circuit.unresponsive(began)
	if opened {
		e.circuit.failures = max(e.circuit.failures, failuresToOpen-1)
		e.circuit.fail(e.circuit.last, now)
		e.show()
	}
	pause := e.circuit.pause
	e.mu.Unlock()
	if opened {
		e.log().Warn("engine answers no leg and opens its circuit", "unanswered_since", began, "tried_again_in", pause.String())
	}
}
