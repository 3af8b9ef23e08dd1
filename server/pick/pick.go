// Package pick decides which engines serve an attempt of a turn, and by which path.
//
// The picker takes what it needs of a turn as one value, an [Attempt], and returns a [Pair] and what further attempts of the turn have to
// know ([Earlier]). It picks decode first, because the KV that decode holds of the conversation decides how much is left to compute: a
// request with fewer uncached tokens than the threshold, or one that no hand-over serves, goes to decode alone.
package pick

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"carryover/server/queue"
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
	deps       Deps
	seed       maphash.Seed // of the hashes of prompts
	decodeOnly decodeOnlySlots
}

// Deps is what a Picker works with.
type Deps struct {
	Fleet  *fleet.Fleet
	Traits upstream.Traits // of the connector
	Named  bool            // each request names the prefill instance that is to serve it
	Ratios *request.Ratios
	Dialer Dialer
	Queue  *queue.Queue // of the turns that wait for a slot of an instance; it is told of free ones
}

// Dialer opens connections to engines.
type Dialer interface {
	// Reach returns an error if the instance accepts no connection. It sends nothing.
	Reach(ctx context.Context, instance *upstream.Instance) error
}

// New returns a picker. A fleet is served by one picker: its hashes of prompts are its own.
func New(deps Deps) *Picker {
	deps.Fleet.Picker.OnFreed(deps.Queue.Freed)
	return &Picker{deps: deps, seed: maphash.MakeSeed()}
}

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
	apart := false
	next, leave, err := k.deps.Fleet.Picker.Pick(upstream.RoleDecode, g.hint(), func(e *fleet.Engine) bool {
		if slices.Contains(refused, e) {
			return true
		}
		unread := pair.Prefill != nil && pair.Prefill.ApartFrom(e.Last())
		apart = apart || unread
		return unread
	})
	switch {
	case err == nil:
		pair.decodes(Slot{free: leave})
	case apart && errors.Is(err, upstream.ErrNoInstance):
		err = upstream.ErrBusy // a new attempt can go there, with other KV
	}
	return next, err
}

// picking is one pick under way.
type picking struct {
	*Picker
	Attempt
	pair     *Pair
	unlisted bool // no decode engine shows the model, so that one is asked whether it loads it
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
	if why := g.alone(decode, ratio); why != "" {
		g.Record.Alone(why)
		g.pair.Tied = why == record.WhyThreshold && cached > 0
		g.pin(ctx, nil, decode)
		return nil
	}
	prefill, err := g.prefill(ctx, decode, false)
	if prefill == nil && err == nil {
		prefill, err = g.withoutPrefill(ctx, decode)
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
	g.pair.Uncached = tokens
	g.Record.Uncached(tokens)
}

// engine picks an engine that serves the turn's model, and stores the attempt's slot on it in in. If none serves the model
// (upstream.ErrNoModel), the engines are asked for their models once more, because a model that has just been loaded is not known yet.
// Then one engine is asked for the model itself, which may be loaded when it is asked for.
func (g *picking) engine(ctx context.Context, role upstream.Role, quarantined bool, in *attemptSlot) (*fleet.Engine, error) {
	hint := g.hint()
	hint.AllowQuarantined = quarantined
	engine, err := g.awaitSlot(ctx, role, hint, in)
	if errors.Is(err, upstream.ErrNoModel) && !g.Refreshed {
		g.Refreshed = true
		g.deps.Fleet.Catalogue.Refresh(ctx)
		engine, err = g.awaitSlot(ctx, role, hint, in)
	}
	if errors.Is(err, upstream.ErrNoModel) && g.deps.Fleet.Catalogue.MayTry(g.Request.Account, role, hint.Model) {
		hint.Model, g.unlisted = "", g.unlisted || role == upstream.RoleDecode
		engine, err = g.awaitSlot(ctx, role, hint, in)
	}
	return engine, err
}

// awaitSlot picks an engine, and waits while all engines that could be picked are full. The slot is the zero Slot where none was taken.
func (g *picking) awaitSlot(ctx context.Context, role upstream.Role, hint fleet.Hint, in *attemptSlot) (engine *fleet.Engine, err error) {
	claim := queue.Claim{Tenant: g.Request.Account, Class: slotClass(role, hint.Model, g.Request.Prefiller, g.Excluded)}
	exclude := g.excluding(role)
	var free func()
	waited, full := g.deps.Queue.Wait(ctx, claim, g.Queued, func() bool {
		engine, free, err = g.deps.Fleet.Picker.Pick(role, hint, exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	g.Queued += waited
	g.Record.Waited(waited, full == nil)
	switch {
	case full != nil:
		return nil, full
	case err != nil:
		g.deps.Queue.Leave(claim)
		return nil, err
	}
	in.take(Slot{g.deps.Queue, claim, free})
	return engine, nil
}

// hint tells the routing policies about the turn: its conversation, how many tokens of it each incarnation of decode holds, and how many
// are left to compute.
func (g *picking) hint() fleet.Hint {
	return fleet.Hint{
		Key: g.Request.Conversation.Affinity, Holds: g.Holds, PrefixHints: g.PrefixHints, Model: g.Request.Model, Tokens: g.pair.Uncached, Chain: g.Chain,
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
