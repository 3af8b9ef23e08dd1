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

// Live is an engine's state at one moment.
type Live struct {
	// State is "up" for an engine that is picked. In all other states it is picked only if no other is left: "down", "open",
	// "half_open", "ejected", "paused", "quarantined", "draining", and "apart" if decode can't load prefill's KV, so the two
	// are not picked together.
	State       string
	Why         string // a sentence for operators, "" for "up"
	Incarnation string // id, "" if unknown
	InFlight    int    // our attempts
	Queued      int    // prompt tokens that prefill is expected to compute for our attempts
	Load               // at the last reading
	// PerToken is prefill's time per prompt token, 0 if unknown.
	PerToken time.Duration
	// CachedBlocks is the size of prefill's prefix cache by its KV events, -1 if unknown.
	CachedBlocks int
	// Shapes is the number of shapes, over all models, whose /tokenize agrees with prefill.
	Shapes int
	// Models are the models that it serves, nil if unknown.
	Models []string
}

// Load is an engine's load at a reading of /metrics.
type Load struct {
	facts.Use
	Others int           // requests that were not ours when the reading began
	Read   time.Time     // when it began, zero if there was none
	until  time.Duration // on the fleet's clock
}

// loadFor allows three failed readings in a row.
const loadFor = 15 * time.Second

func (l *Load) counts(now time.Duration) bool { return now < l.until }

// KVTokens returns the size of the engine's KV cache in tokens, 0 if unknown.
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

func (e *Engine) state() (state, why string) {
	if e.gone.Load() {
		return "draining", "it was removed; requests in flight run to their end"
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

// A decode engine is apart only if several prefill engines are stopped with it.
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

// StillPaused asks whether an engine that refused a request as paused is still paused, for a fraction of a leg's cost
// ([health.Health.StillPaused]).
func StillPaused(ctx context.Context, e *Engine) bool {
	return e.Health.StillPaused(func() (paused, told bool) {
		ctx, cancel := context.WithTimeout(ctx, e.fleet.cfg.ReadLimit)
		defer cancel()
		return e.fleet.cfg.Client.IsPaused(ctx, e.Instance())
	})
}

// A hand-back serves a turn that may come, and gives way to turns that are there.
const (
	// mostBeside is the number of requests, hand-backs included, at which the engine gets no hand-back. In a fleet of four prefill engines at 50
	// turns per second each has two to four legs in flight, which leaves as many for hand-backs. At twice as many the engine has a queue, and a
	// leg that reads thousands of tokens would delay each turn in it.
	mostBeside = 8
	// fullAt is the share of used KV cache at which the engine gets no hand-back. Blocks that only the prefix cache holds are not in use. Above
	// it, a hand-back may take space from a prompt, which vLLM then preempts and computes again.
	fullAt = 0.9
)

// TakesHandBack reports whether a hand-back now would delay no turn. Picks must prefer the engine; its incarnation must
// be known and not quarantined; a turn's leg must have closed its circuit if that was open; and its last reading must
// be recent, with space in the cache and no request that waits for space. Requests that wait for KV which they read
// (tickets, hand-backs) do not count if the engine tells them apart. It sends nothing.
func (e *Engine) TakesHandBack() bool {
	load, now := e.load.Load(), e.fleet.clock()
	if e.gone.Load() || !e.Health.Up(now) || !load.counts(now) || !e.last.Load().Known() || e.Quarantined() {
		return false
	}
	has := load.Others + e.ours()
	// A half-open circuit waits for a turn: a hand-back that failed would lose its ticket. An engine without requests has none that wait.
	return has < mostBeside && load.Usage < fullAt && e.Health.Closed() && (load.Short == 0 || has == 0)
}

// BeginHandBack counts a hand-back until done is called; further calls do nothing. A hand-back is no attempt:
// MaxInFlight and picks ignore it. If it were not counted, the next reading would take it for a request of other
// clients, which picks consider.
func (e *Engine) BeginHandBack() (done func()) {
	e.handBacks.Add(1)
	return sync.OnceFunc(func() { e.handBacks.Add(-1) })
}
