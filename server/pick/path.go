package pick

import (
	"context"
	"errors"
	"slices"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
)

// decode picks the attempt's decode instance, before prefill works for it. An instance that refused a connection or failed its probes, and has
// answered nothing since, must first accept a connection. Otherwise prefill's blocks would stay occupied for their lease (30 s, vLLM 0.33) when no
// decode instance reads them. Clients that try again while decode restarts would fill prefill's cache. An instance that refused a request as paused
// must first say that it goes on. After MaxDials instances decode returns the last one's error.
func (p *picking) decode(ctx context.Context) (*fleet.Engine, error) {
	var last *upstream.LegError
	for dials := 1; ; dials++ {
		engine, err := p.engine(ctx, upstream.RoleDecode, false, &p.pair.decodeSlot)
		switch {
		case last != nil && errors.Is(err, upstream.ErrNoInstance):
			return nil, last
		case err != nil:
			return nil, err
		}
		if last = p.serves(ctx, engine); last == nil {
			return engine, nil
		}
		if ctx.Err() != nil { // the turn was cancelled, which says nothing about the engine
			return nil, context.Cause(ctx)
		}
		p.pair.decodeSlot.leave()
		p.Excluded = append(slices.Clip(p.Excluded), engine)
		if dials == MaxDials {
			return nil, last
		}
	}
}

// serves returns nil for a decode engine that accepts connections and is not paused; it asks only engines in doubt. It reports refusals to the fleet.
func (p *Picker) serves(ctx context.Context, engine *fleet.Engine) *upstream.LegError {
	if engine.Health.Unreached() {
		if err := p.deps.Dialer.Reach(ctx, engine.Instance()); err != nil {
			if ctx.Err() == nil {
				engine.Refused()
			}
			return &upstream.LegError{Role: upstream.RoleDecode, Instance: engine.Name, Kind: upstream.Dial, Err: err}
		}
		engine.Refresh(ctx) // a reading without an answer would count for five seconds, and another process may run by now
	}
	if fleet.StillPaused(ctx, engine) {
		return upstream.PausedError(engine.Instance())
	}
	return nil
}

// alone returns why decode serves the attempt alone even if prefill instances are available, "" if it does not. It takes no slot of decodeOnlySlots.
func (p *picking) alone(decode *fleet.Engine, ratio float64) string {
	if why, ok := p.Body.Disaggregable(); !ok {
		return why
	}
	switch {
	case p.Request.API.Rendered() && !p.deps.Traits.Agents:
		return record.WhyConnector
	case p.deps.Named && p.Request.Prefiller == "":
		return record.WhyNoPrefiller
	case p.pair.Uncached < p.Threshold:
		return record.WhyThreshold
	case p.TooLong, !Fits(p.Body, p.Request.Length.Whole.Tokens(ratio)*3/4, decode): // the estimate may be too high
		return record.WhyLimits
	}
	return ""
}

// Fits reports whether engines take a prompt of this many tokens and the answer that the request asks for, as far as their max_model_len is known.
func Fits(r *body.Request, prompt int, engines ...*fleet.Engine) bool {
	most, _, ok := r.Budget()
	for _, engine := range engines {
		answer := 1
		if engine.Role == upstream.RoleDecode {
			answer = max(most, 1)
		}
		length := facts.ContextLength(engine.Models(), r.Model)
		ok = ok && (length == 0 || prompt+answer <= length)
	}
	return ok
}

// cachedOn returns how many tokens of the conversation the decode instance has, if its incarnation is known without asking. Its prefix cache has the
// blocks of a ticket, too. A chat without a message of the assistant continues no turn, and a ticket that may be another conversation's does not
// count.
func (p *picking) cachedOn(decode *fleet.Engine) (tokens int) {
	last := decode.Last()
	if !last.Known() || p.Request.API != body.Text && !p.Request.Length.Answered {
		return 0
	}
	for _, holding := range p.Owned {
		if holding.Instance == decode.Name && holding.Incarnation == last.ID() {
			tokens = max(tokens, holding.Tokens)
		}
	}
	return tokens
}

// prefill picks a prefill instance for the pair, nil if there is none.
func (p *picking) prefill(ctx context.Context, decode *fleet.Engine, quarantined bool) (*fleet.Engine, error) {
	if p.NoPrefill || p.gaveUp(upstream.RolePrefill) >= MaxDials {
		return nil, nil
	}
	if p.unlisted && !p.PrefillError && p.deps.Fleet.MayServe(upstream.RolePrefill, p.Request.Model) {
		p.PrefillFailed = true // it would compute the prompt for a decode instance that may refuse the model, and keep its blocks
		return nil, nil
	}
	excluded := p.Excluded
	defer func() { p.Excluded = excluded }() // another decode instance may read what this one can't
	for {
		prefill, err := p.engine(ctx, upstream.RolePrefill, quarantined, &p.pair.prefillSlot)
		switch {
		case errors.Is(err, upstream.ErrNoModel), errors.Is(err, upstream.ErrNoInstance) && len(p.Excluded) > len(excluded):
			p.PrefillFailed = true
			return nil, nil
		case errors.Is(err, upstream.ErrNoInstance):
			return nil, nil
		case err != nil:
			return nil, err
		}
		if p.mayHandOver(prefill, decode) {
			return prefill, nil
		}
		p.pair.Prefilled()
		p.Excluded = append(slices.Clip(p.Excluded), prefill)
	}
}

// mayHandOver reports whether two engines may exchange KV. If this turn is the pair's trial after a pause, the trial ends with the attempt, unless
// the hand-over has ended it before.
func (p *picking) mayHandOver(prefill, decode *fleet.Engine) bool {
	from, to := prefill.Last(), decode.Last()
	ok, trial := from.BeginLoad(to)
	if trial {
		p.pair.ends = append(p.pair.ends, func() { from.EndLoad(to, pairs.Inconclusive) })
	}
	return ok
}

// withoutPrefill decides how a turn goes on if no prefill instance can serve it. Decode serves a bounded number of turns alone (the result is nil),
// unless the operator wants errors. Further turns go to a quarantined prefill instance with a cache_salt of their own, so that they read nothing from
// its prefix cache.
func (p *picking) withoutPrefill(ctx context.Context, decode *fleet.Engine) (*fleet.Engine, error) {
	p.pair.Quarantined = slices.ContainsFunc(p.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return p.Request.MayPrefill(e.Name) && e.Quarantined()
	})
	if !p.PrefillError {
		if leave := p.decodeOnly.take(p.Request.Account); leave != nil {
			p.pair.ends = append(p.pair.ends, leave)
			p.pair.Alone = record.WhyUnavailable
			switch {
			case p.PrefillFailed:
				p.pair.Alone = record.WhyFailed
			case p.pair.Quarantined:
				p.pair.Alone = record.WhyQuarantined
			}
			return nil, nil
		}
	}
	if p.pair.Quarantined {
		if prefill, err := p.prefill(ctx, decode, true); prefill != nil || err != nil {
			p.pair.Salt = upstream.NewID()
			return prefill, err
		}
	}
	return nil, ErrNoPrefill
}

// pin sets the attempt's incarnations. A turn waits for /metrics only if it can use or leave a ticket, or if decode may have restarted unseen. Every
// other turn takes the incarnation of the last reading: at worst a release reaches another incarnation, which does no harm (measured on vLLM 0.32).
func (p *picking) pin(ctx context.Context, prefill, decode *fleet.Engine) {
	switch {
	case prefill == nil:
		p.pair.Decode = decode.Last()
	case p.Tickets:
		p.pair.Prefill, p.pair.Decode = fleet.Pin(ctx, prefill, decode)
	default:
		p.pair.Prefill, p.pair.Decode = prefill.Last(), decode.Holder(ctx)
	}
}
