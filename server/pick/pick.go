// Package pick decides which engines serve an attempt of a turn, and by which path. The picker gets an [Attempt], and returns a [Pair] and what the
// turn's further attempts have to know ([Earlier]).
//
// It picks the decode engine first, and then the path: what that engine holds of the conversation need not be computed again. A request that can't be
// handed over goes to decode alone, without kv_transfer_params. So does a request with fewer uncached tokens than routing.disagg_threshold. Decode
// then pins nothing, and the conversation's ticket waits for a turn that is worth a hand-over.
//
// The number of tokens is an estimate. Token ids are counted. Text is measured as far as templates render it, and divided by the bytes of a token.
// These are learnt for each model from prompts that engines have counted.
//
// If prefill fails, and not because of a ticket, a release or ids that were added to its leg, routing.prefill_failure decides: another instance and
// then decode alone, decode alone at once, or the error. Decode prefills 16 such turns at once; the others get 503. A 500 is an instance's last word
// on a request: then only another instance is asked.
//
// A decode engine that refused a connection, and has answered nothing since, has to accept a connection before prefill works for it. If no decode
// engine does, the turn gets 503 at once, and occupies no block of prefill.
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

// ErrNoPrefill says that no prefill instance can serve a request that decode may not serve alone.
var ErrNoPrefill = errors.New("no prefill engine is available")

// NoModelError says that no instance serves the model.
type NoModelError struct{ Model string }

// Error implements error.
func (e *NoModelError) Error() string { return "no engine serves the model" }

// MaxDials is how many instances of a role are tried while connections are refused or time out.
const MaxDials = 3

// Picker picks the engines and the path of attempts. It is safe for concurrent use.
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
	Queue  *queue.Queue // of turns that wait for an instance's slot; it is told of free ones
}

// Dialer opens connections to engines.
type Dialer interface {
	// Reach returns an error if the instance accepts no connection. It sends nothing.
	Reach(ctx context.Context, instance *upstream.Instance) error
}

// New returns a picker. A fleet has only one picker: its hashes of prompts are its own.
func New(deps Deps) *Picker {
	deps.Fleet.OnFreed(deps.Queue.Freed)
	return &Picker{deps: deps, seed: maphash.MakeSeed()}
}

// PromptChain returns hashes of the prompt's beginning, for the choice of a prefill instance ([fleet.Hint]); nil if there is no choice.
func (p *Picker) PromptChain(prompt *body.Request) []uint64 {
	if len(p.deps.Fleet.Engines(upstream.RolePrefill)) <= 1 {
		return nil
	}
	return prompt.Prompt().Chain(p.seed)
}

// Pick chooses the engines and the path of an attempt. Decode serves alone if no prefill instance can serve, or if a hand-over does not pay. It also
// serves requests alone that can't be disaggregated: several choices or prompts share one hand-over (vLLM #43509). The caller gives the pair's slots
// back ([Pair.Done]). Earlier is valid with an error, too.
func (p *Picker) Pick(ctx context.Context, attempt Attempt) (pair *Pair, _ Earlier, _ error) {
	g := picking{Picker: p, Attempt: attempt, pair: &Pair{}}
	defer func() {
		if pair == nil { // an error or a panic
			g.pair.Done()
		}
	}()
	if err := g.pick(ctx); err != nil {
		return nil, g.Earlier, err
	}
	return g.pair, g.Earlier, nil
}

// AnotherDecode replaces a pair's decode instance, which has refused a connection, by one that is not in refused. It waits for no slot, and asks no
// engine. next is nil if there is none now, and the pair stays as it was; anew says that a new attempt may find one.
func (p *Picker) AnotherDecode(attempt Attempt, pair *Pair, refused []*fleet.Engine) (next *fleet.Engine, anew bool) {
	attempt.Tokens = pair.Uncached
	apart := false
	next, leave, err := p.deps.Fleet.Pick(upstream.RoleDecode, attempt.Hint, func(e *fleet.Engine) bool {
		if slices.Contains(refused, e) {
			return true
		}
		unread := pair.Prefill != nil && pair.Prefill.ApartFrom(e.Last())
		apart = apart || unread
		return unread
	})
	if err != nil {
		return nil, errors.Is(err, upstream.ErrBusy) || apart && errors.Is(err, upstream.ErrNoInstance) // an instance that is apart can get other KV
	}
	pair.decodeSlot.leave() // at once, because the instance may serve again long before the turn's stream ends
	pair.decodeSlot.take(nil, queue.Claim{}, leave)
	return next, false
}

type picking struct {
	*Picker
	Attempt
	pair     *Pair
	unlisted bool // no decode engine lists the model, so one is asked whether it loads it
}

func (p *picking) pick(ctx context.Context) error {
	ratio := p.deps.Ratios.Get(p.Request.Model)
	p.uncached(p.Request.Length.Whole.Tokens(ratio))
	decode, err := p.decode(ctx)
	switch {
	case err == nil:
	case p.Failed != nil: // it led to this attempt, and says more than that no instance is left
		return p.Failed
	case errors.Is(err, upstream.ErrNoModel):
		return &NoModelError{p.Request.Model}
	default:
		return err
	}
	cached := p.cachedOn(decode)
	p.uncached(request.Uncached(p.Request.Length, ratio, cached))
	if why := p.alone(decode, ratio); why != "" {
		p.pair.Alone = why
		p.pair.Tied = why == record.WhyThreshold && cached > 0
		p.pin(ctx, nil, decode)
		return nil
	}
	prefill, err := p.prefill(ctx, decode, false)
	if prefill == nil && err == nil {
		prefill, err = p.withoutPrefill(ctx, decode)
	}
	if err != nil {
		return err
	}
	p.pin(ctx, prefill, decode)
	return nil
}

func (p *picking) uncached(tokens int) {
	p.pair.Uncached, p.Tokens = tokens, tokens
}

// engine picks an engine that serves the turn's model, and stores the attempt's slot in in. If none does (upstream.ErrNoModel), all engines are asked
// for their models once more, because a model may just have been loaded. Then one engine is asked for the model itself, which may load it on demand.
func (p *picking) engine(ctx context.Context, role upstream.Role, quarantined bool, in *slot) (*fleet.Engine, error) {
	hint := p.Hint
	hint.AllowQuarantined = quarantined
	engine, err := p.awaitSlot(ctx, role, hint, in)
	if errors.Is(err, upstream.ErrNoModel) && !p.Refreshed {
		p.Refreshed = true
		p.deps.Fleet.Catalogue.Refresh(ctx)
		engine, err = p.awaitSlot(ctx, role, hint, in)
	}
	if errors.Is(err, upstream.ErrNoModel) && p.deps.Fleet.Catalogue.MayTry(p.Request.Account, role, hint.Model) {
		hint.Model, p.unlisted = "", p.unlisted || role == upstream.RoleDecode
		engine, err = p.awaitSlot(ctx, role, hint, in)
	}
	return engine, err
}

// awaitSlot picks an engine, and waits while all suitable engines are full. It stores the attempt's slot in in.
func (p *picking) awaitSlot(ctx context.Context, role upstream.Role, hint fleet.Hint, in *slot) (engine *fleet.Engine, err error) {
	claim := queue.Claim{Tenant: p.Request.Account, Class: slotClass(role, hint.Model, p.Request.Prefiller, p.Excluded)}
	exclude := p.excluding(role)
	var free func()
	waited, full := p.deps.Queue.Wait(ctx, claim, p.Queued, func() bool {
		engine, free, err = p.deps.Fleet.Pick(role, hint, exclude)
		return !errors.Is(err, upstream.ErrBusy) // waiting helps against nothing else
	})
	p.Queued += waited
	switch {
	case full != nil:
		return nil, full
	case err != nil:
		p.deps.Queue.Leave(claim)
		return nil, err
	}
	in.take(p.deps.Queue, claim, free)
	return engine, nil
}

// excluding returns a function that reports which engines must not be picked, nil if all may be. The pick calls it for each engine of the role.
func (p *picking) excluding(role upstream.Role) func(*fleet.Engine) bool {
	if len(p.Excluded) == 0 && (role == upstream.RoleDecode || p.Request.Prefiller == "") {
		return nil
	}
	excluded, request := p.Excluded, p.Request // not p, which would then be allocated with each pick
	return func(e *fleet.Engine) bool {
		return slices.Contains(excluded, e) || role == upstream.RolePrefill && !request.MayPrefill(e.Name)
	}
}
