package server

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"carryover/server/queue"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// picker picks the engines of attempts, and decides between prefill with decode and decode alone.
type picker struct {
	deps        *Deps
	engineSlots *queue.Queue // turns that wait for a slot of an instance
	ratios      *request.Ratios
	seed        maphash.Seed // of the hashes in turn.chain
	decodeOnly  *decodeOnlySlots
	dryRun      bool // only predict the pick: count nothing, wait for nothing, ask no engine
}

// pair is the two engines of one attempt, each in the incarnation with which the attempt began. The incarnations are read once: an engine
// that restarts meanwhile is another incarnation, and what the attempt learns is about the old one. prefill is nil when decode prefills
// by itself.
type pair struct {
	prefill, decode *fleet.Incarnation
	quarantined     bool   // a prefill instance is quarantined, so that the attempt avoids it or its prefix cache
	salt            string // a cache_salt of this attempt alone, so that its legs read nothing from a quarantined prefix cache; "" for none
	tied            bool   // the path was chosen because of the KV that this decode instance holds

	prefillSlot, decodeSlot slot   // the turn's slots on the two engines
	decodeOnly              func() // gives back the slot for decode alone, nil if the attempt has none
}

// done gives all slots of the attempt back. It is called once.
func (p *pair) done() {
	p.decodeSlot.leave()
	p.prefilled()
	if p.decodeOnly != nil {
		p.decodeOnly()
	}
}

// prefilled gives the slot of the prefill instance back. It is safe for concurrent use; further calls do nothing.
func (p *pair) prefilled() { p.prefillSlot.leave() }

// decodes replaces the decode instance's slot, after the instance has refused the connection, by that of another. The first slot is given
// back at once, because the instance may serve again long before the turn's stream ends.
func (p *pair) decodes(done func()) {
	p.decodeSlot.leave()
	p.decodeSlot = slot{free: done}
}

// pick chooses the engines of this attempt and the path. Decode serves alone while no prefill instance can serve, where a hand-over does
// not pay, and for requests that disaggregation can't serve (several choices or prompts share one hand-over, vLLM #43509). Decode is
// picked first, because the KV that it holds of the conversation decides how much is left to compute.
func (k *picker) pick(ctx context.Context, t *turn) (*pair, error) {
	p, picked := &pair{}, false
	defer func() {
		if !picked { // an error or a panic
			p.done()
		}
	}()
	if t.chain == nil && len(k.deps.Fleet.Engines(upstream.RolePrefill)) > 1 { // a single instance leaves no choice
		t.chain = t.body.PromptChain(k.seed)
	}
	ratio := k.ratios.Get(t.Model)
	t.record.Uncached(t.Length.Whole.Tokens(ratio))
	decode, err := k.decode(ctx, t, p)
	switch {
	case errors.Is(err, upstream.ErrNoModel):
		return nil, t.retry.lastOr(noModel(t.Model))
	case err != nil:
		return nil, t.retry.lastOr(err)
	}
	most := t.cachedOn(decode)
	t.record.Uncached(request.Uncached(t.Length, ratio, most))
	if why := k.alone(t); why != "" {
		if k.needsPrefill() {
			return nil, needsPrefill(why)
		}
		t.record.Alone(why)
		p.tied = why == record.WhyThreshold && most > 0
		k.pin(ctx, t, p, nil, decode)
		picked = true
		return p, nil
	}
	prefill, err := k.prefill(ctx, t, p, false)
	if prefill == nil && err == nil {
		prefill, err = k.withoutPrefill(ctx, t, p)
	}
	if err != nil {
		return nil, err
	}
	if prefill != nil {
		t.record.Disaggregate()
	}
	k.pin(ctx, t, p, prefill, decode)
	picked = true
	return p, nil
}

// engine picks an engine that serves the turn's model. If none does (upstream.ErrNoModel), it asks the engines for their models once more
// before it gives up, because a model that has just been loaded is not known yet.
func (k *picker) engine(ctx context.Context, t *turn, role upstream.Role, quarantined bool, in *slot) (*fleet.Engine, error) {
	hint, exclude := t.hint(), t.excluding(role)
	hint.AllowQuarantined = quarantined
	engine, err := k.awaitSlot(ctx, t, role, hint, exclude, in)
	if errors.Is(err, upstream.ErrNoModel) && !t.retry.refreshed {
		t.retry.refreshed = true
		k.deps.Fleet.RefreshModels(ctx)
		engine, err = k.awaitSlot(ctx, t, role, hint, exclude, in)
	}
	return engine, err
}

// excluding returns a function that reports which engines must not be picked, nil if all may be. The pick calls it for each engine of
// the role.
func (t *turn) excluding(role upstream.Role) func(*fleet.Engine) bool {
	if len(t.retry.excluded) == 0 && (role == upstream.RoleDecode || t.Prefiller == "") {
		return nil
	}
	return func(e *fleet.Engine) bool {
		return t.retry.excludes(e) || role == upstream.RolePrefill && !t.mayPrefill(e)
	}
}

// prefill picks a prefill instance for the pair, and returns nil if no instance may be asked.
func (k *picker) prefill(ctx context.Context, t *turn, p *pair, quarantined bool) (*fleet.Engine, error) {
	if t.retry.noPrefill || t.retry.gaveUp(upstream.RolePrefill) >= maxDials {
		return nil, nil
	}
	prefill, err := k.engine(ctx, t, upstream.RolePrefill, quarantined, &p.prefillSlot)
	switch {
	case errors.Is(err, upstream.ErrNoInstance), errors.Is(err, upstream.ErrNoModel):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return prefill, nil
}

// mayPrefill reports whether the request allows this instance to prefill: it names the instance, or names none.
func (t *turn) mayPrefill(e *fleet.Engine) bool { return t.Prefiller == "" || e.Name == t.Prefiller }

// withoutPrefill decides how a turn goes on that no prefill instance can serve. Decode serves a bounded number of turns alone, which is
// the result nil, unless the operator wants errors. Further turns go to a quarantined prefill instance with a cache_salt of their own,
// so that they read nothing from its prefix cache.
func (k *picker) withoutPrefill(ctx context.Context, t *turn, p *pair) (*fleet.Engine, error) {
	p.quarantined = slices.ContainsFunc(k.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return t.mayPrefill(e) && e.Quarantined()
	})
	if t.routing.PrefillFailure != PrefillError && !k.needsPrefill() {
		if leave, ok := k.decodeOnly.take(t.share.Client); ok {
			p.decodeOnly = leave
			t.record.Alone(t.retry.whyAlone(p.quarantined))
			return nil, nil
		}
	}
	if p.quarantined {
		if prefill, err := k.prefill(ctx, t, p, true); prefill != nil || err != nil {
			p.salt = upstream.NewID()
			return prefill, err
		}
	}
	err := unavailable("prefill_unavailable", "No prefill engine is available.")
	if k.needsPrefill() {
		return nil, t.retry.lastOr(err)
	}
	return nil, err
}

// pin finds out which incarnations the attempt talks to. A turn waits for /metrics only if it can use or leave a ticket, if its connector
// has to know the incarnations, or if decode may have restarted unseen. Every other turn takes the incarnation that was read last: at worst
// a release reaches another incarnation, which does no harm (measured on vLLM 0.32).
func (k *picker) pin(ctx context.Context, t *turn, p *pair, prefill, decode *fleet.Engine) {
	if t.proof == nil && k.deps.Connector.Traits().Introduce == nil || prefill == nil || k.dryRun {
		p.decode = decode.Last()
		if prefill != nil {
			p.prefill = prefill.Last()
			if !k.dryRun {
				p.decode = decode.Holder(ctx)
			}
		}
		return
	}
	p.prefill, p.decode = fleet.Pin(ctx, prefill, decode)
}

// hint tells the routing policies about the turn: its conversation, how many tokens of it each incarnation of decode holds, and how many
// are left to compute.
func (t *turn) hint() fleet.Hint {
	t.holds = t.holds[:0]
	for i := range t.branches {
		b := &t.branches[i]
		t.holds = append(t.holds, fleet.Holding{Decode: b.Decode, Incarnation: b.Incarnation, Tokens: b.Tokens})
	}
	return fleet.Hint{Key: t.Conversation.Affinity, Holds: t.holds, PrefixHints: t.prefixHints(), Model: t.Model, Tokens: t.record.Path().Tokens, Chain: t.chain}
}
