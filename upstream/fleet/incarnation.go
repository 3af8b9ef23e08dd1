package fleet

import (
	"context"
	"sync"
	"sync/atomic"

	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// Incarnation is one start of an engine, up to a sleep, and everything known of it. An attempt keeps the Incarnation that it began
// with: after a restart the engine has another one. Where two processes answer behind one address by turns, each
// change is a new Incarnation, about which everything is learnt anew, except quarantines. It is safe for concurrent
// use.
//
// An incarnation whose id is not known equals nothing, not even itself. Nothing is recorded for it except what needs
// no comparison ([facts.All]).
type Incarnation struct {
	engine *Engine
	id     string
	over   atomic.Bool // the engine has another incarnation by now
	*facts.All

	blockSize atomic.Int64

	computed *prefixindex.Computed

	stops atomic.Int64 // how many of its pairs were stopped and have not answered since
	loads *pairs.State // of a prefill incarnation with all decode engines

	// mu guards the rest. Lock order: Engine, Incarnation, pairs.State.
	mu       sync.Mutex
	pairs    map[*Engine]pair // of a prefill incarnation: its pairs, by decode engine
	unreadBy *Engine          // the decode engine that was the last to fail to load its KV, nil if one has loaded it since
}

func newIncarnation(e *Engine, id string) *Incarnation {
	s := &Incarnation{engine: e, id: id, pairs: map[*Engine]pair{}, All: facts.New(e.fleet.facts, e, id != "")}
	s.loads = pairs.New(e.fleet.facts.Now, &e.fleet.stops)
	s.computed = e.fleet.Prefixes.NewComputed(e.Cache, func() bool { return s.Known() && !s.Over() }, s.latest)
	return s
}

// Engine returns the engine that this is an incarnation of.
func (i *Incarnation) Engine() *Engine { return i.engine }

// ID returns process_start_time_seconds as the engine wrote it, "" if it is not known. It is only compared, never
// parsed. A process that has slept keeps it, and its quarantine, see [Engine.SleptSince].
func (i *Incarnation) ID() string { return i.id }

// Known reports whether the incarnation's id is known. A nil Incarnation is not known.
func (i *Incarnation) Known() bool { return i != nil && i.id != "" }

// BlockSize returns how many tokens a KV block holds, 0 if that is not known or differs between the engines of one
// instance. It may become known later than the incarnation's id.
func (i *Incarnation) BlockSize() int { return int(i.blockSize.Load()) }

// Alive reports whether the engine still runs this incarnation, by a reading of the last five seconds or a new one
// ([Engine.Current]). It is false for an incarnation whose id is not known.
func (i *Incarnation) Alive(ctx context.Context) bool {
	return i.Known() && i.engine.Current(ctx) == i
}

// Judge records why the incarnation takes no part in the token proof, "" if it takes part. It reports whether that
// differs from the engine's last judgment, or concerns another incarnation.
func (i *Incarnation) Judge(why string) (changed bool) {
	e, is := i.engine, i.id+" "+why
	e.mu.Lock()
	defer e.mu.Unlock()
	changed = e.judged != is
	e.judged = is
	return changed
}

// leave drops all pairs, and the entries in the prefix index: the incarnation has ended, or the engine is gone.
func (i *Incarnation) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.pairs {
		p.Drop()
	}
	i.loads.Drop()
	clear(i.pairs)
	i.computed.Drop()
}

// Ended reports whether the engine has restarted since, whether or not the fleet still has the engine.
func (i *Incarnation) Ended() bool { return i.over.Load() }

// Over reports whether the incarnation has ended: the engine has restarted since, or the fleet has forgotten the
// engine.
func (i *Incarnation) Over() bool { return i.over.Load() || i.engine.forgotten.Load() }

// latest reports whether the incarnation is the one that its engine was read as last, without a lock.
func (i *Incarnation) latest() bool { return i.engine.last.Load() == i }
