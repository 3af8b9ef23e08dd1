package fleet

import (
	"math"
	"sync/atomic"
	"time"
)

// view is what picks see of an engine, besides its speed and its attempts. It is read without a lock: with a thousand engines
// the locks alone took 16 µs of a pick. Its parts need not be of one moment.
type view struct {
	// Times of the fleet's clock: until the first the engine is picked only if no other is left; until the second it is held not to
	// answer connections; from the third on what was read of its load counts no more.
	avoid, down, stale atomic.Int64
	last               atomic.Pointer[Incarnation] // the incarnation that was read last, nil while it is not known
	// Requests beyond those that were ours at the last reading, requests that waited, and the share of the KV cache in use (the
	// bits of a float64).
	others, waiting atomic.Int32
	usage           atomic.Uint64
	models          atomic.Pointer[modelSet] // nil if the engine may serve any model
}

// load is what a reading told of an engine's requests.
type load struct {
	use
	others int       // requests beyond those that were ours when the reading began
	read   time.Time // when it began, zero if there was none
}

// loadFor is how long a load counts: three readings may fail.
const loadFor = 15 * time.Second

// show makes what is known of the engine what picks see. Whatever changes that calls it. It needs e.mu.
func (e *Engine) show() {
	v, born := &e.seen, e.fleet.born
	if e.read.IsZero() {
		v.last.Store(nil)
	} else {
		v.last.Store(e.known)
	}
	avoid, down := e.avoidUntil()
	v.avoid.Store(avoid)
	v.down.Store(down)
	if l := &e.load; l.read.IsZero() {
		v.stale.Store(0)
	} else {
		v.others.Store(int32(min(l.others, maxTold)))
		v.waiting.Store(int32(l.waiting))
		v.usage.Store(math.Float64bits(l.usage))
		v.stale.Store(int64(l.read.Sub(born) + loadFor))
	}
}

// up reports whether the engine is to be preferred at a time of the fleet's clock: it answers, its circuit is closed or waits for
// a trial, it is neither ejected nor drained. One that is not is used all the same if no other is left.
func (v *view) up(now time.Duration) bool { return int64(now) >= v.avoid.Load() }

// answers reports whether the engine is held to answer connections. Blocks can be read from one that does, whatever becomes of
// its completions.
func (v *view) answers(now time.Duration) bool { return int64(now) >= v.down.Load() }

// clock is the time since the fleet was made. It is read once per pick.
func (f *Fleet) clock() time.Duration { return f.now().Sub(f.born) }
