package server

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"carryover/server/queue"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// picker picks the engines of attempts, and decides the path.
type picker struct {
	deps        *Deps
	engineSlots *queue.Queue // for room on instances
	ratios      *ratios
	seed        maphash.Seed // of chains
	decodeOnly  *decodeOnlySlots
	dryRun      bool // it only says what it would pick: nothing is counted, waited for or asked of engines
}

// pair is the engines of one attempt, each in the start that the attempt was begun with. It is read once: an engine that is restarted
// meanwhile is another start, and what the attempt learns is about this one. prefill is nil when decode prefills by
// itself.
type pair struct {
	prefill, decode *fleet.Incarnation
	quarantined     bool   // the attempt avoids a prefill instance that is barred, or its prefix cache
	salt            string // cache_salt of both legs that no other turn has, so that nothing is read of barred prefill's prefix cache; "" for none
	tied            bool   // the path was chosen for what this decode instance holds

	prefillSlot, decodeSlot slot   // on the two
	decodeOnly              func() // gives back the slot that the attempt has of decode alone, nil if it has none
}

// done ends the attempt for the engines that were picked for it. It is called once.
func (p *pair) done() {
	p.decodeSlot.leave()
	p.prefilled()
	if p.decodeOnly != nil {
		p.decodeOnly()
	}
}

// prefilled gives the prefill instance back. It is safe for concurrent use, and once is enough.
func (p *pair) prefilled() { p.prefillSlot.leave() }

// decodes adds a decode instance, which done gives back, in place of one that has refused the connection: that may be back long
// before the turn's stream ends.
func (p *pair) decodes(done func()) {
	p.decodeSlot.leave()
	p.decodeSlot = slot{free: done}
}

// pick chooses the engines of this attempt and the path: prefill and decode,
// or decode alone for requests that disaggregation can't serve (several choices
// or prompts share one hand-over, vLLM #43509) or is not worth it, and while no prefill instance
// can serve. Decode comes first, because what it holds of the conversation decides how much is to be computed.
func (k *picker) pick(ctx context.Context, t *turn) (*pair, error) {
	p, picked := &pair{}, false
	defer func() {
		if !picked { // also by a panic
			p.done()
		}
	}()
	if t.chain == nil && len(k.deps.Fleet.Engines(upstream.RolePrefill)) > 1 { // with one there is no choice
		t.chain = t.req.PromptChain(k.seed)
	}
	ratio := k.ratios.get(t.model)
	t.record.Path.Tokens = t.length.Whole.Tokens(ratio)
	decode, err := k.decode(ctx, t, p)
	switch {
	case errors.Is(err, upstream.ErrNoModel):
		return nil, t.retry.lastOr(noModel(t.model))
	case err != nil:
		return nil, t.retry.lastOr(err)
	}
	most := t.cachedOn(decode)
	t.record.Path.Tokens = t.uncached(ratio, most)
	if why := k.alone(t); why != "" {
		if k.needsPrefill() {
			return nil, needsPrefill(why)
		}
		t.record.Path.alone(why)
		p.tied = why == whyThreshold && most > 0
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
		t.record.Path.disaggregate()
	}
	k.pin(ctx, t, p, prefill, decode)
	picked = true
	return p, nil
}

// engine picks an engine that serves the turn's model. Before it says that there is none, which is upstream.ErrNoModel, the engines
// are asked once more for what they serve: a model that has just been loaded is not known yet.
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

// excluding says which engines must not be picked, nil for none: that is asked of each engine of the role.
func (t *turn) excluding(role upstream.Role) func(*fleet.Engine) bool {
	if len(t.retry.excluded) == 0 && (role == upstream.RoleDecode || t.prefiller == "") {
		return nil
	}
	return func(e *fleet.Engine) bool {
		return t.retry.excludes(e) || role == upstream.RolePrefill && !t.mayPrefill(e)
	}
}

// prefill adds a prefill instance to the pair, and returns nil if there is none that may be asked.
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

// mayPrefill reports whether the request leaves it open that this instance prefills.
func (t *turn) mayPrefill(e *fleet.Engine) bool { return t.prefiller == "" || e.Name == t.prefiller }

// withoutPrefill has decode serve a bounded number of turns alone, unless the operator wants errors. Beyond these, a barred
// prefill serves with a cache_salt of the turn's own, so that nothing of its prefix cache is read; nil is decode alone.
func (k *picker) withoutPrefill(ctx context.Context, t *turn, p *pair) (*fleet.Engine, error) {
	p.quarantined = slices.ContainsFunc(k.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return t.mayPrefill(e) && e.Quarantined()
	})
	if t.routing.PrefillFailure != PrefillError && !k.needsPrefill() {
		if leave, ok := k.decodeOnly.take(t.share.client); ok {
			p.decodeOnly = leave
			t.record.Path.alone(t.retry.whyAlone(p.quarantined))
			return nil, nil
		}
	}
	if p.quarantined {
		if prefill, err := k.prefill(ctx, t, p, true); prefill != nil || err != nil {
			p.salt = newID()
			return prefill, err
		}
	}
	err := unavailable("prefill_unavailable", "No prefill engine is available.")
	if k.needsPrefill() {
		return nil, t.retry.lastOr(err)
	}
	return nil, err
}

// pin finds out which starts the attempt talks to. Only a turn that can use or leave a ticket waits for /metrics, or one whose
// connector has to know the starts. Every
// other takes what was last read: all that comes of it is a release, which engines bear in another start too (measured on
// vLLM 0.32).
func (k *picker) pin(ctx context.Context, t *turn, p *pair, prefill, decode *fleet.Engine) {
	if t.proof == nil && k.deps.Connector.Traits().Introduce == nil || prefill == nil || k.dryRun {
		p.decode = decode.Last()
		if prefill != nil {
			p.prefill = prefill.Last()
		}
		return
	}
	p.prefill, p.decode = prefill.Current(ctx), decode.Current(ctx)
}

// hint tells the policies of the turn: its conversation, which starts of decode hold how much of it, and how much is to be
// computed.
func (t *turn) hint() fleet.Hint {
	t.holds = t.holds[:0]
	for i := range t.branches {
		b := &t.branches[i]
		t.holds = append(t.holds, fleet.Holding{Decode: b.Decode, Incarnation: b.Incarnation, Tokens: b.Tokens})
	}
	return fleet.Hint{Key: t.conversation.affinity, Holds: t.holds, PrefixHints: t.prefixHints(), Model: t.model, Tokens: t.record.Path.Tokens, Chain: t.chain}
}
