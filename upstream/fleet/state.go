package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// Live is the state of an engine at one moment.
type Live struct {
	// State is "up" for an engine that is picked. All other states mean that it is picked only when no other is left:
	// "down", "open", "half_open", "ejected", "paused", "quarantined", "draining"; "apart" means that decode can't load KV of
	// prefill, and that the two are not picked together.
	State       string
	Why         string // a sentence for operators, "" for "up"
	Incarnation string // id of the engine's incarnation, "" if it is not known
	InFlight    int    // our attempts
	Queued      int    // prompt tokens that prefill is expected to compute for our attempts
	Load               // at the last reading
	// PerToken is how long prefill takes per prompt token, 0 while that is not known.
	PerToken time.Duration
	// CachedBlocks is how many blocks a prefill engine's prefix cache holds, -1 if that is not known (KV events).
	CachedBlocks int
	// Shapes is of how many shapes of requests, over all models, a prefill engine's /tokenize is believed.
	Shapes int
	// Models are the models that it serves, nil while no list is known.
	Models []string
}

// Load is an engine's load at a reading of /metrics.
type Load struct {
	facts.Use
	Others int           // requests besides those that were ours when the reading began
	Read   time.Time     // when it began, zero if there was none
	until  time.Duration // when it counts no more, on the fleet's clock
}

// loadFor is how long a load counts: three readings in a row may fail.
const loadFor = 15 * time.Second

// counts reports whether the load counts still.
func (l *Load) counts(now time.Duration) bool { return now < l.until }

// KVTokens is how many tokens the engine's KV cache holds, 0 if that is not known.
func (e *Engine) KVTokens() int { return e.load.Load().KVTokens }

// Live returns the state of the engine now.
func (e *Engine) Live() Live {
	last := e.Last()
	live := Live{
		Incarnation: last.ID(), InFlight: int(e.inFlight.Load()), Queued: int(e.queued.Load()), PerToken: e.PerToken(),
		CachedBlocks: e.Cache.Count(), Shapes: last.Parity.Equal(), Load: *e.load.Load(),
	}
	live.State, live.Why = e.state()
	for _, model := range e.Models() {
		live.Models = append(live.Models, model.ID)
	}
	return live
}

// state returns the engine's state for operators, and a sentence that says why it is picked only when no other is
// left; why is "" for an engine that is up.
func (e *Engine) state() (state, why string) {
	if e.gone.Load() {
		return "draining", "it was removed; what is in flight goes on to its end"
	}
	state, why = e.Health.State()
	if state != "draining" && state != "down" && e.Quarantined() {
		return "quarantined", "it has computed other ids than it was sent; no prefill leg goes to it until it is restarted"
	}
	if apart := e.apart(); state == "up" && apart != "" {
		return "apart", apart
	}
	return state, why
}

// apart says for operators with which engines an engine exchanges no KV for now, "" for none. A decode engine is apart if
// several prefill engines are from it.
func (e *Engine) apart() string {
	if e.fleet.stops.Load() == 0 {
		return ""
	}
	last := e.Last()
	if e.Role == upstream.RolePrefill {
		return last.apart()
	}
	prefills := e.fleet.Engines(upstream.RolePrefill)
	if len(prefills) < 2 || slices.ContainsFunc(prefills, func(e *Engine) bool {
		_, apart := e.Last().known(last).Apart()
		return !apart
	}) {
		return ""
	}
	return "it has failed to load the KV of every prefill instance; it serves alone, and each of them is tried again in time"
}

// apart is that of a prefill incarnation.
func (i *Incarnation) apart() (why string) {
	if until, apart := i.loads.Apart(); apart {
		return "several decode instances have failed to load its KV; one turn tries it at " + until.UTC().Format(time.RFC3339)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for decode, p := range i.pairs {
		if until, apart := p.Apart(); apart {
			why = fmt.Sprintf("decode %s has failed to load its KV; one turn tries the pair at %s", decode.Name, until.UTC().Format(time.RFC3339))
		}
	}
	return why
}

// StillPaused reports whether an engine that has refused a request as paused is paused still. It asks the engine, for a
// fraction of what a leg costs ([health.Health.StillPaused]).
func StillPaused(ctx context.Context, e *Engine) bool {
	return e.Health.StillPaused(func() (paused, told bool) {
		ctx, cancel := context.WithTimeout(ctx, e.fleet.cfg.ReadLimit)
		defer cancel()
		return e.fleet.cfg.Client.IsPaused(ctx, e.Instance())
	})
}

// Limits of a prefill engine's load for hand-backs. A hand-back serves a turn that may come, and gives way to turns that are there.
const (
	// mostBeside is the number of requests, hand-backs included, from which on the engine gets no hand-back. In a fleet of four prefill engines
	// at 50 turns per second each has two to four legs in flight, which leaves as many for hand-backs. An engine with twice as many requests has
	// a queue, and a leg that reads thousands of tokens would delay each turn in it.
	mostBeside = 8
	// fullAt is the share of the KV cache in use from which on the engine gets no hand-back. Blocks that only the prefix cache holds are not in
	// use. Above it, a hand-back may take space from a prompt that is being computed, which vLLM then preempts and computes again.
	fullAt = 0.9
)

// TakesHandBack reports whether a hand-back to the engine now would delay no turn. The engine must be one that picks
// prefer, with a known incarnation that is not quarantined; if its circuit was open, a turn's leg must have closed it;
// and its last reading must be recent and show space in the cache and no request that waits for space. Requests that
// wait for KV which they read (tickets, hand-backs) do not count as waiting where the engine tells them apart.
//
// The answer holds for this moment only. Nothing is sent to the engine.
func (e *Engine) TakesHandBack() bool {
	load, now := e.load.Load(), e.fleet.clock()
	if e.gone.Load() || !e.Health.Up(now) || !load.counts(now) || !e.last.Load().Known() || e.Quarantined() {
		return false
	}
	has := load.Others + e.ours()
	// While the circuit is half-open a turn is to try the engine: a hand-back that failed would lose its ticket. Without requests, nothing
	// waits any more.
	return has < mostBeside && load.Usage < fullAt && e.Health.Closed() && (load.Short == 0 || has == 0)
}

// BeginHandBack counts a hand-back to the engine until done is called; further calls do nothing. A hand-back is no
// attempt: it does not count against MaxInFlight and does not influence picks. It must be counted, or the next reading
// would take its request for one of other clients, which does influence picks.
func (e *Engine) BeginHandBack() (done func()) {
	e.handBacks.Add(1)
	return sync.OnceFunc(func() { e.handBacks.Add(-1) })
}
