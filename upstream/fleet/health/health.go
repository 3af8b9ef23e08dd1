// Package health decides whether picks prefer an engine: by its connections and health probes (outage.go), by the legs
// that failed (circuit.go), by the streams that it lets wait (silence.go), by its speed among the engines of its role
// (ejection.go), by what it says (outage.go), and by the operator's drain.
//
// It promises that
//
//   - avoiding is a preference: a [Health] says until when its engine is avoided and until when it is down, and refuses
//     nothing ([Health.Up]), unless the engine is silent;
//   - an engine that answers connections is not down, whatever its completions do, and good connections do not close its
//     circuit;
//   - while a circuit is half-open, one attempt at a time tries the engine;
//   - at least half of a role's engines are not ejected;
//   - no function of [Config] but Now is called with a lock held.
package health

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Config says of which engine a Health is, and whom it tells. All of it is required.
type Config struct {
	Now  func() time.Time
	Born time.Time    // what picks read counts from there
	Log  *slog.Logger // with the engine's role and name
	// Heard is called when the engine has answered for the first time, or for the first time since it refused a
	// connection; Down when its outage is worth a line in the log; Back when that outage is over.
	Heard, Back func()
	Down        func(why string)
	Tell        func(what string) // is told of the rest that the log reports, in words for operators
}

// Health is whether an engine serves, by its legs, its connections and its health probes, and whether it is to. It is
// safe for concurrent use.
type Health struct {
	// What picks read without a lock. Times are on the fleet's clock: the engine is avoided before avoid, and before trying because another
	// attempt tries it; it counts as not answering connections before down. It gets no turns before refuse, 0 for none, nor when it has been silent for limit to streams that wait since waits, and
	// was last heard at heard.
	avoid, trying, down, refuse, waits, heard, limit atomic.Int64

	cfg      Config
	answered atomic.Bool // it has answered something since it last refused a connection

	mu sync.Mutex // guards the rest; the innermost lock
	is condition
}

// condition is what is known of an engine's health at a moment.
type condition struct {
	outage      outage
	pausedUntil time.Time // set by Paused
	drain       Drain     // what operators have decided last
	circuit     circuit
	legSpeed    legSpeed
	ejection    ejection
	silence     silence
}

// Up reports whether picks prefer the engine at that time: it answers, its circuit is closed or waits for a trial, and
// it is neither ejected, paused nor drained. Other engines are picked if no such engine is left.
func (h *Health) Up(now time.Duration) bool {
	return int64(now) >= max(h.avoid.Load(), h.trying.Load())
}

// Answers reports whether the engine answers connections, so that its blocks can be read even if its completions fail.
func (h *Health) Answers(now time.Duration) bool { return int64(now) >= h.down.Load() }

// never is the end of an avoidance that does not end with time.
const never = math.MaxInt64

// Init makes it the health of an engine that was not heard yet.
func (h *Health) Init(cfg Config) { h.cfg = cfg }

// change changes the condition of the engine, and publishes until when it is avoided and until when it is down.
func (h *Health) change(change func(is *condition, now time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := &h.is
	change(is, h.cfg.Now())
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return int64(t.Sub(h.cfg.Born))
	}
	avoid, trying, down, waits, refuse := int64(never), int64(0), int64(never), int64(0), int64(0)
	if is.circuit.trial != 0 {
		trying = at(is.circuit.lapses)
	}
	if is.outage.failed < UnhealthyAfter {
		down = at(is.outage.until)
		if !is.drain.On {
			avoid = max(down, at(is.circuit.until), at(is.ejection.until), at(is.pausedUntil))
		}
	}
	if is.circuit.silent {
		refuse = max(at(is.circuit.until), trying)
	}
	if len(is.silence.waiting) > 0 {
		waits = max(1, at(is.silence.since))
	}
	h.refuse.Store(refuse)
	h.limit.Store(int64(is.silence.limit()))
	h.waits.Store(waits)
	h.avoid.Store(avoid)
	h.trying.Store(trying)
	h.down.Store(down)
}

// read returns the condition of the engine.
func (h *Health) read() condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is
}

// Usable reports whether the engine is up, not counting that an attempt is trying it.
func (h *Health) Usable() bool {
	now := h.clock()
	return int64(now) >= h.avoid.Load() && !h.Silent(now)
}

// Restarted forgets how slow or silent the engine was: a restart is how such engines are mended.
func (h *Health) Restarted() {
	_ = h.speaks(func(is *condition) { is.legSpeed, is.ejection, is.silence.waiting = legSpeed{}, ejection{}, nil })
}

// Drain is what operators have decided last about an engine.
type Drain struct {
	At int64 // when, in milliseconds since 1970, 0 for never
	On bool  // it is drained
}

// After reports whether a decision is later than another. Of two of one moment, that to drain is.
func (d Drain) After(other Drain) bool {
	return d.At > other.At || d.At == other.At && d.On && !other.On
}

// SetDrain takes the engine out of service, or back into it, as an operator decides now.
func (h *Health) SetDrain(drain bool) {
	h.change(func(is *condition, now time.Time) { is.drain = Drain{max(now.UnixMilli(), is.drain.At+1), drain} })
}

// Decided has the engine be as an operator has decided, here or elsewhere.
func (h *Health) Decided(drain Drain) {
	h.change(func(is *condition, _ time.Time) { is.drain = drain })
}

// Drain returns what operators have decided last.
func (h *Health) Drain() Drain { return h.read().drain }

// Drains reports whether the operator has the engine drained.
func (h *Health) Drains() bool { return h.read().drain.On }

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
