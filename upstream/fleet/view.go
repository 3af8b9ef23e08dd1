package fleet

import (
	"math"
	"sync/atomic"
	"time"

	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
)

// view is what picks see of an engine besides its attempts. Picks read it without a lock: with a
// thousand engines, locks alone took 16 µs per pick. Its fields may belong to different moments.
type view struct {
	health health.Shown
	stale  atomic.Int64                // its load counts no more from then on, on the fleet's clock
	last   atomic.Pointer[Incarnation] // the incarnation that was read last, nil while it is not known
	// At the last reading: requests besides ours, requests that waited, and the share of the KV cache in use (the bits
	// of a float64).
	others, waiting atomic.Int32
	usage           atomic.Uint64
	models          atomic.Pointer[modelSet] // nil if the engine may serve any model
	speed           facts.SpeedNow
	suspected       atomic.Bool       // one of its incarnations was quarantined
	place           prefixindex.Place // where the last pick that saw it has put it; the lock of picks guards it
}

// loadFor is how long a load counts: three readings in a row may fail.
const loadFor = 15 * time.Second

// show publishes what was read of the engine to its view. Each change of that calls it. It needs r.mu.
func (r *readings) show() {
	v, born := &r.engine.seen, r.engine.fleet.born
	if r.read.IsZero() {
		v.last.Store(nil)
	} else {
		v.last.Store(r.known)
	}
	if l := &r.load; l.Read.IsZero() {
		v.stale.Store(0)
	} else {
		v.others.Store(int32(min(l.Others, facts.MaxTold)))
		v.waiting.Store(int32(l.Waiting))
		v.usage.Store(math.Float64bits(l.Usage))
		v.stale.Store(int64(l.Read.Sub(born) + loadFor))
	}
}

// clock returns the time since the fleet was made. A pick reads it once.
func (f *Fleet) clock() time.Duration { return f.now().Sub(f.born) }
