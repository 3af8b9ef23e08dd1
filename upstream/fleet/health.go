package fleet

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// downFor is how long an engine that refused a connection is avoided, unless a health probe succeeds before. It is
// short because avoiding is only a preference: an engine that is avoided is still tried when no other is left.
const downFor = 2 * time.Second

// unhealthyAfter is how many health probes in a row must fail before the engine counts as down. A busy API server may
// be late once, and an engine that counts as down loses all its tickets.
const unhealthyAfter = 2

// Health is whether an engine serves, by its legs, its connections and its health probes, and whether it is to. Picks see
// the result in the engine's view. It is safe for concurrent use.
type Health struct {
	engine   *Engine
	answered atomic.Bool // it has answered something since it last refused a connection

	// mu guards the rest. Lock order: Fleet, Engine, Health.
	mu          sync.Mutex
	downUntil   time.Time // set by refused; a good probe or leg clears it
	pausedUntil time.Time // set by Paused
	failed      int       // health probes that failed in a row
	downSince   time.Time // when downUntil or failed was first set
	told        bool      // the log has reported it as down, and it has answered nothing since
	drain       bool      // the operator drains it
	circuit     circuit
	legSpeed    legSpeed
	ejection    ejection
}

// never is the end of an avoidance that does not end with time.
const never = math.MaxInt64

// show publishes until when the engine is avoided and until when it is down, both on the fleet's clock. Each change of that calls it. It needs h.mu.
func (h *Health) show() {
	avoid, down := int64(never), int64(never)
	if h.failed < unhealthyAfter {
		at := func(t time.Time) int64 {
			if t.IsZero() {
				return 0
			}
			return int64(t.Sub(h.engine.fleet.born))
		}
		down = at(h.downUntil)
		if !h.drain && h.circuit.trial == 0 {
			avoid = max(down, at(h.circuit.until), at(h.ejection.until), at(h.pausedUntil))
		}
	}
	h.engine.seen.avoid.Store(avoid)
	h.engine.seen.down.Store(down)
}

// down needs h.mu.
func (h *Health) down(now time.Time) bool {
	return h.failed >= unhealthyAfter || now.Before(h.downUntil)
}

// usable reports whether the engine is up, not counting that an attempt is trying it.
func (h *Health) usable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.engine.fleet.now()
	return !h.down(now) && !h.circuit.open(now) && !h.ejection.lasts(now) && !h.drain && !now.Before(h.pausedUntil)
}

// refused records that a connection was refused. The engine is avoided for downFor.
func (h *Health) refused() {
	h.mu.Lock()
	now := h.engine.fleet.now()
	if !h.down(now) {
		h.downSince = now
	}
	h.downUntil = now.Add(downFor)
	h.answered.Store(false) // whatever answers there next has not been heard yet
	h.show()
	first := !h.told
	h.told = true
	h.mu.Unlock()
	if first {
		wentDown(h.engine, "refuses connections")
	}
}

// wentDown logs that the engine is down and closes the client's idle connections: they will not serve again, and the
// host name may resolve to another address by now.
func wentDown(e *Engine, why string) {
	e.fleet.cfg.Client.Close()
	e.log().Warn("engine is down", "why", why)
}

// Answered records that a leg was answered: the engine is not down any more.
func (h *Health) Answered() {
	h.heard()
	h.mu.Lock()
	was := h.comeBack(h.circuit.answered(h.engine.fleet.now()))
	h.mu.Unlock()
	h.sayBack(was)
}

// back records that the engine answers connections, without a word about its circuit.
func (h *Health) back() {
	h.heard()
	h.mu.Lock()
	was := h.comeBack(false)
	h.mu.Unlock()
	h.sayBack(was)
}

// comeBack clears the marks of a down engine, and reports whether the log has to say that it is back. Most answers
// come from engines that were up and change nothing; changed says that the caller has changed something that picks
// see. It needs h.mu.
func (h *Health) comeBack(changed bool) (was bool) {
	if changed || h.failed > 0 || !h.downUntil.IsZero() {
		h.downUntil, h.failed = time.Time{}, 0
		h.show()
	}
	was, h.told = h.told, false
	return was
}

func (h *Health) sayBack(was bool) {
	if was {
		h.engine.log().Info("engine answers again")
		h.engine.fleet.freed()
	}
}

// Unreached reports whether the log has reported the engine as down and it has answered nothing since.
func (h *Health) Unreached() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told
}

// probed records the result of a health probe. A good one does not close the circuit: the circuit is for engines whose
// health is fine while their completions fail.
func (h *Health) probed(healthy bool) {
	if healthy {
		h.back()
		return
	}
	h.mu.Lock()
	if h.failed == 0 && !h.down(h.engine.fleet.now()) {
		h.downSince = h.engine.fleet.now()
	}
	h.failed++
	h.show()
	first := h.failed >= unhealthyAfter && !h.told
	h.told = h.told || first
	h.mu.Unlock()
	if first {
		wentDown(h.engine, "health probes fail")
	}
}

// restarted forgets how slow the engine was: a restart is how slow engines are mended.
func (h *Health) restarted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.legSpeed, h.ejection = legSpeed{}, ejection{}
	h.show()
}

// begin tells the circuit of an attempt.
func (h *Health) begin(number uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.circuit.begin(number, h.engine.fleet.now()) {
		h.show()
	}
}

// end tells the circuit that an attempt has ended.
func (h *Health) end(number uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.circuit.end(number) {
		h.show()
	}
}

// closed reports whether the circuit is closed: not even waiting for a turn to try the engine.
func (h *Health) closed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.circuit.pause == 0
}
