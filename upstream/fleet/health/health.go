// Package health decides whether picks prefer an engine: by connections, health probes and pauses (outage.go), failed
// legs (circuit.go), streams that wait (silence.go), its speed within its role (ejection.go), and the operator's drain.
// It promises:
//
//   - Avoiding is a preference. A [Health] says until when its engine is avoided and until when it is down, and refuses
//     nothing ([Health.Up]) unless the engine is silent.
//   - An engine that answers connections is not down, whatever its completions do. Good connections do not close its
//     circuit.
//   - One attempt at a time tries an engine whose circuit is half-open.
//   - At least half of a role's engines are not ejected.
//   - No function of [Config] but Now is called with a lock held.
package health

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a Health. All fields are required.
type Config struct {
	Now  func() time.Time
	Born time.Time    // the origin of the times that picks read
	Log  *slog.Logger // with the engine's role and name
	// Heard is called at the engine's first answer, and at its first after a refused connection; Down when an outage is
	// logged; Back when that outage is over.
	Heard, Back func()
	Down        func(why string)
	Tell        func(what string) // gets other logged changes, in words for operators
}

// Health decides whether an engine serves, by its legs, connections and probes and the operator's drain. It is safe for
// concurrent use.
type Health struct {
	// Picks read these without a lock; all are times on the fleet's clock. The engine is avoided before avoid, and before trying because another
	// attempt tries it. It does not answer connections before down. It gets no turns before refuse (0 for none). If streams wait since waits
	// (0 for none), it gets none either limit after the later of waits and heard.
	avoid, trying, down, refuse, waits, heard, limit atomic.Int64

	cfg      Config
	answered atomic.Bool // has answered since it last refused a connection

	mu sync.Mutex // guards the rest; the innermost lock
	is condition
}

type condition struct {
	outage      outage
	pausedUntil time.Time
	drain       Drain // last decision of operators
	circuit     circuit
	legSpeed    legSpeed
	ejection    ejection
	silence     silence
}

// Up reports whether picks prefer the engine: it answers, its circuit is closed or waits for a trial, and it is not
// ejected, paused or drained. Picks use others only if no such engine is left.
func (h *Health) Up(now time.Duration) bool {
	return int64(now) >= max(h.avoid.Load(), h.trying.Load())
}

// Answers reports whether the engine answers connections, so that its blocks can be read even if its completions fail.
func (h *Health) Answers(now time.Duration) bool { return int64(now) >= h.down.Load() }

const never = math.MaxInt64

// Init configures the health of a new engine.
func (h *Health) Init(cfg Config) { h.cfg = cfg }

// change also publishes what picks read.
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

func (h *Health) read() condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is
}

// Usable is Up for an engine that another attempt may be trying.
func (h *Health) Usable() bool {
	now := h.clock()
	return int64(now) >= h.avoid.Load() && !h.Silent(now)
}

// Restarted forgets that the engine was slow or silent, because a restart mends such engines.
func (h *Health) Restarted() {
	_ = h.speaks(func(is *condition) { is.legSpeed, is.ejection, is.silence.waiting = legSpeed{}, ejection{}, nil })
}

// Drain is the last decision of operators about an engine.
type Drain struct {
	At int64 // in milliseconds since 1970, 0 for never
	On bool
}

// After reports whether a decision is later than another. At the same moment, the decision to drain wins.
func (d Drain) After(other Drain) bool {
	return d.At > other.At || d.At == other.At && d.On && !other.On
}

// SetDrain drains the engine, or takes it back, by a decision of now.
func (h *Health) SetDrain(drain bool) {
	h.change(func(is *condition, now time.Time) { is.drain = Drain{max(now.UnixMilli(), is.drain.At+1), drain} })
}

// Decided applies a decision made here or on another replica.
func (h *Health) Decided(drain Drain) {
	h.change(func(is *condition, _ time.Time) { is.drain = drain })
}

// Drain returns the last decision of operators.
func (h *Health) Drain() Drain { return h.read().drain }

// Drains reports whether an operator drains the engine.
func (h *Health) Drains() bool { return h.read().drain.On }

// State returns the engine's state for operators and the reason why picks avoid it, "" if it is up.
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
		return "open", fmt.Sprintf("it has sent nothing to waiting streams since %s; it gets no turns until it answers", moment(is.silence.since))
	case c.open(now):
		return "open", c.why() + "; one turn tries it at " + moment(c.until)
	case c.halfOpen(now):
		return "half_open", c.why() + "; one turn at a time tries it"
	case j.lasts(now):
		return "ejected", fmt.Sprintf("it took %.1f times as long as the median of its role at %s; ejected until %s, times in a row: %d",
			j.factor, moment(j.since), moment(j.until), j.times)
	}
	return "up", ""
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
