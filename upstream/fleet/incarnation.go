package fleet

import (
	"context"
	"sync"
	"sync/atomic"

	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// Incarnation is one run of an engine's process, up to a sleep, and everything known of it. An attempt keeps its Incarnation when
// the engine restarts. Where two processes take turns behind one address, each change is a new Incarnation, which starts without
// facts except quarantines. It is safe for concurrent use.
//
// An incarnation without a known id equals nothing, not even itself. Only what needs no comparison is recorded for it
// ([facts.All]).
type Incarnation struct {
	engine *Engine
	id     string
	over   atomic.Bool // the engine has another incarnation
	*facts.All

	blockSize atomic.Int64

	computed *prefixindex.Computed

	stops atomic.Int64 // pairs that were stopped and have not answered since
	loads *pairs.State // of a prefill incarnation with all decode engines

	// mu guards the rest. Lock order: Engine, Incarnation, pairs.State.
	mu       sync.Mutex
	pairs    map[*Engine]pair // of a prefill incarnation, by decode engine
	unreadBy *Engine          // the last decode engine that failed to load its KV, nil after one has loaded it
}

func newIncarnation(e *Engine, id string) *Incarnation {
	s := &Incarnation{engine: e, id: id, pairs: map[*Engine]pair{}, All: facts.New(e.fleet.facts, e, id != "")}
	s.loads = pairs.New(e.fleet.facts.Now, &e.fleet.stops)
	s.computed = e.fleet.Prefixes.NewComputed(e.Cache, func() bool { return s.Known() && !s.Over() }, s.latest)
	return s
}

// Engine returns the engine that runs this incarnation.
func (i *Incarnation) Engine() *Engine { return i.engine }

// ID returns process_start_time_seconds as the engine wrote it, "" if unknown. It is compared, never parsed. A process
// that has slept keeps it and its quarantine, see [Engine.SleptSince].
func (i *Incarnation) ID() string { return i.id }

// Known reports whether the incarnation has an id. A nil Incarnation has none.
func (i *Incarnation) Known() bool { return i != nil && i.id != "" }

// BlockSize returns the tokens per KV block, 0 if unknown or different between engines of one instance. It may become
// known after the id.
func (i *Incarnation) BlockSize() int { return int(i.blockSize.Load()) }

// Alive reports whether the engine still runs this incarnation, by a reading of the last five seconds or a new one
// ([Engine.Current]). Without a known id it is false.
func (i *Incarnation) Alive(ctx context.Context) bool {
	return i.Known() && i.engine.Current(ctx) == i
}

// Judge records why the incarnation takes no part in the token proof, "" if it does. It reports whether the judgment or
// the incarnation is new.
func (i *Incarnation) Judge(why string) (changed bool) {
	e, is := i.engine, i.id+" "+why
	e.mu.Lock()
	defer e.mu.Unlock()
	changed = e.judged != is
	e.judged = is
	return changed
}

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

// Over reports whether the engine has restarted since or was forgotten by the fleet.
func (i *Incarnation) Over() bool { return i.over.Load() || i.engine.forgotten.Load() }

func (i *Incarnation) latest() bool { return i.engine.last.Load() == i }
