// Package pick decides which engines serve an attempt of a turn, and by which path.
//
// The picker takes what it needs of a turn as one value, an [Attempt], and returns a [Pair] and what further attempts of the turn have to
// know ([Earlier]). It picks decode first, because the KV that decode holds of the conversation decides how much is left to compute: a
// request with fewer uncached tokens than the threshold, or one that no hand-over serves, goes to decode alone.
//
// What asks engines ([Asker]) and what gives slots ([Slots]) is injected. A picker whose asker asks nobody and whose slots are never taken
// predicts what a turn's picker would pick, and changes nothing, for an attempt that has its [Earlier] say that models were refreshed.
package pick

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// MaxDials is how many instances of a role are tried while connections are refused or time out.
const MaxDials = 3

// Picker picks the engines of attempts, and decides between prefill with decode and decode alone. Create it with New. It is safe for
// concurrent use.
type Picker struct {
	deps Deps
	seed maphash.Seed // of the hashes of prompts
}

// Deps is what a Picker works with.
type Deps struct {
	Fleet  *fleet.Fleet
	Traits upstream.Traits // of the connector
	Named  bool            // each request names the prefill instance that is to serve it
	Ratios *request.Ratios
	Asker  Asker
	Slots  Slots
}

// Asker asks engines what an attempt has to know of them.
type Asker interface {
	// Serves returns nil for a decode engine that takes connections and is not paused, as far as that has to be asked.
	Serves(ctx context.Context, decode *fleet.Engine) *upstream.LegError
	// Pin returns the incarnations of two engines. tickets says that they may exchange a ticket, so that it has to be those that run now;
	// otherwise engines are asked only if decode may have restarted unseen.
	Pin(ctx context.Context, prefill, decode *fleet.Engine, tickets bool) (p, d *fleet.Incarnation)
}

// New returns a picker. Its hashes of prompts are its own, so that a fleet is served by one picker; see Predictor.
func New(deps Deps) *Picker { return &Picker{deps, maphash.MakeSeed()} }

// Predictor returns a picker of the same fleet, with another asker and other slots.
func (k *Picker) Predictor(asker Asker, slots Slots) *Picker {
	other := *k
	other.deps.Asker, other.deps.Slots = asker, slots
	return &other
}

// Slots returns what gives attempts their slots.
func (k *Picker) Slots() Slots { return k.deps.Slots }

// PromptChain returns hashes of the prompt's beginning, by which prefill instances are picked; nil where there is no choice.
func (k *Picker) PromptChain(prompt *body.Request) []uint64 {
	if len(k.deps.Fleet.Engines(upstream.RolePrefill)) <= 1 {
		return nil
	}
	return prompt.Prompt().Chain(k.seed)
}

// Pick chooses the engines of an attempt and the path. Decode serves alone while no prefill instance can serve, where a hand-over does
// not pay, and for requests that disaggregation can't serve (several choices or prompts share one hand-over, vLLM #43509). The caller
// gives the pair's slots back ([Pair.Done]). What it returns for the turn's further attempts counts with an error, too.
func (k *Picker) Pick(ctx context.Context, attempt Attempt) (*Pair, Earlier, error) {
	g := picking{Picker: k, Attempt: attempt, pair: &Pair{}}
	picked := false
	defer func() {
		if !picked { // an error or a panic
			g.pair.Done()
		}
	}()
	if err := g.pick(ctx); err != nil {
		return nil, g.Earlier, err
	}
	picked = true
	return g.pair, g.Earlier, nil
}

// AnotherDecode replaces a pair's decode instance, after that has refused a connection, by one that is not among the refused. It waits for
// no slot, and asks no engine. With an error the pair is as before.
func (k *Picker) AnotherDecode(attempt Attempt, pair *Pair, refused []*fleet.Engine) (*fleet.Engine, error) {
	attempt.Excluded = refused
	g := picking{Picker: k, Attempt: attempt, pair: pair}
	next, leave, err := k.deps.Fleet.Picker.Pick(upstream.RoleDecode, g.hint(), g.excluding(upstream.RoleDecode))
	if err == nil {
		pair.decodes(Slot{free: leave})
	}
	return next, err
}

// picking is one pick under way.
type picking struct {
	*Picker
	Attempt
	pair *Pair
}

func (g *picking) pick(ctx context.Context) error {
	ratio := g.deps.Ratios.Get(g.Request.Model)
	g.uncached(g.Request.Length.Whole.Tokens(ratio))
	decode, err := g.decode(ctx)
	switch {
	case errors.Is(err, upstream.ErrNoModel):
		return g.lastOr(&NoModelError{g.Request.Model})
	case err != nil:
		return g.lastOr(err)
	}
	cached := g.cachedOn(decode)
	g.uncached(request.Uncached(g.Request.Length, ratio, cached))
	if why := g.alone(); why != "" {
		g.Record.Alone(why)
		g.pair.Tied = why == record.WhyThreshold && cached > 0
		g.pin(ctx, nil, decode)
		return nil
	}
	prefill, err := g.prefill(ctx, false)
	if prefill == nil && err == nil {
		prefill, err = g.withoutPrefill(ctx)
	}
	if err != nil {
		return err
	}
	if prefill != nil {
		g.Record.Disaggregate()
	}
	g.pin(ctx, prefill, decode)
	return nil
}

// uncached notes an estimate of the prompt's tokens that are in no cache.
func (g *picking) uncached(tokens int) {
	g.pair.uncached = tokens
	g.Record.Uncached(tokens)
}

// engine picks an engine that serves the turn's model, and stores the attempt's slot on it in in. If none serves the model
// (upstream.ErrNoModel), the engines are asked for their models once more, because a model that has just been loaded is not known yet.
func (g *picking) engine(ctx context.Context, role upstream.Role, quarantined bool, in *attemptSlot) (*fleet.Engine, error) {
	hint := g.hint()
	hint.AllowQuarantined = quarantined
	engine, err := g.awaitSlot(ctx, role, hint, in)
	if errors.Is(err, upstream.ErrNoModel) && !g.Refreshed {
		g.Refreshed = true
		g.deps.Fleet.Catalogue.Refresh(ctx)
		engine, err = g.awaitSlot(ctx, role, hint, in)
	}
	return engine, err
}

func (g *picking) awaitSlot(ctx context.Context, role upstream.Role, hint fleet.Hint, in *attemptSlot) (*fleet.Engine, error) {
	engine, slot, err := g.deps.Slots.Await(ctx, Wish{
		Client: g.Client, Class: slotClass(role, hint.Model, g.Request.Prefiller, g.Excluded), Role: role, Hint: hint, Exclude: g.excluding(role),
		Record: g.Record,
	})
	in.take(slot)
	return engine, err
}

// hint tells the routing policies about the turn: its conversation, how many tokens of it each incarnation of decode holds, and how many
// are left to compute.
func (g *picking) hint() fleet.Hint {
	return fleet.Hint{
		Key: g.Request.Conversation.Affinity, Holds: g.Holds, PrefixHints: g.PrefixHints, Model: g.Request.Model, Tokens: g.pair.uncached, Chain: g.Chain,
	}
}

// excluding returns a function that reports which engines must not be picked, nil if all may be. The pick calls it for each engine of
// the role.
func (g *picking) excluding(role upstream.Role) func(*fleet.Engine) bool {
	if len(g.Excluded) == 0 && (role == upstream.RoleDecode || g.Request.Prefiller == "") {
		return nil
	}
	excluded, request := g.Excluded, g.Request // not g, which would then be allocated with each pick
	return func(e *fleet.Engine) bool {
		return slices.Contains(excluded, e) || role == upstream.RolePrefill && !request.MayPrefill(e.Name)
	}
}
