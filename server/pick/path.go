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

// decode picks the decode instance of an attempt, before prefill works for it. An instance that has refused a connection or failed its
// probes, and has answered nothing since, must first accept a connection. Otherwise prefill's blocks would stay occupied for their lease
// (30 s, vLLM 0.33) when no decode instance reads them, and clients that try again while decode restarts would fill prefill's cache. An
// instance that has refused a request as paused must first say that it goes on. decode gives up after MaxDials instances, and then returns
// the error of the last one.
func (g *picking) decode(ctx context.Context) (*fleet.Engine, error) {
	var last *upstream.LegError
	for dials := 1; ; dials++ {
		engine, err := g.engine(ctx, upstream.RoleDecode, false, &g.pair.decodeSlot)
		switch {
		case last != nil && errors.Is(err, upstream.ErrNoInstance):
			return nil, last
		case err != nil:
			return nil, err
		}
		if last = g.serves(ctx, engine); last == nil {
			return engine, nil
		}
		if ctx.Err() != nil { // the turn was cancelled, which says nothing about the engine
			return nil, context.Cause(ctx)
		}
		g.pair.decodeSlot.leave()
		g.Excluded = append(slices.Clip(g.Excluded), engine)
		if dials == MaxDials {
			return nil, last
		}
	}
}

// serves returns nil for a decode engine that takes connections and is not paused, as far as that has to be asked. It tells the fleet of an
// engine that refuses the connection.
func (k *Picker) serves(ctx context.Context, engine *fleet.Engine) *upstream.LegError {
	if engine.Health.Unreached() {
		if err := k.deps.Dialer.Reach(ctx, engine.Instance()); err != nil {
			if ctx.Err() == nil {
				engine.Refused()
			}
			return &upstream.LegError{Role: upstream.RoleDecode, Instance: engine.Name, Kind: upstream.Dial, Err: err}
		}
		engine.Refresh(ctx) // a reading that had no answer would count for five seconds, and another process may run by now
	}
	if fleet.StillPaused(ctx, engine) {
		return upstream.PausedError(engine.Instance())
	}
	return nil
}

// alone returns the reason why decode serves the attempt alone even if prefill instances are available, "" if it does not. These turns take
// none of the slots for turns that decode prefills because no prefill instance can.
func (g *picking) alone(decode *fleet.Engine, ratio float64) string {
	if why, ok := g.Body.Disaggregable(); !ok {
		return why
	}
	switch {
	case g.Request.API.Rendered() && !g.deps.Traits.Agents:
		return record.WhyConnector
	case g.deps.Named && g.Request.Prefiller == "":
		return record.WhyNoPrefiller
	case g.pair.Uncached < g.Threshold:
		return record.WhyThreshold
	case g.TooLong, !Fits(g.Body, g.Request.Length.Whole.Tokens(ratio)*3/4, decode): // the estimate may be too high
		return record.WhyLimits
	}
	return ""
}

// Fits reports whether an engine takes a prompt of so many tokens with the answer that the request asks for, as far as its max_model_len
// is known.
func Fits(r *body.Request, prompt int, engine *fleet.Engine) bool {
	most, _, ok := r.Budget()
	if engine.Role == upstream.RolePrefill {
		most = 1
	}
	length := facts.ContextLength(engine.Models(), r.Model())
	return ok && (length == 0 || prompt+max(most, 1) <= length)
}

// cachedOn returns how many tokens of the conversation the picked decode instance has, as far as its incarnation is known without asking. The
// blocks of a ticket are in its prefix cache too. A chat without a message of the assistant continues no turn, and a ticket that may be another
// conversation's says nothing of this one.
func (g *picking) cachedOn(decode *fleet.Engine) (tokens int) {
	last := decode.Last()
	if !last.Known() || g.Request.API != body.Text && !g.Request.Length.Answered {
		return 0
	}
	for _, holding := range g.Owned {
		if holding.Instance == decode.Name && holding.Incarnation == last.ID() {
			tokens = max(tokens, holding.Tokens)
		}
	}
	return tokens
}

// prefill picks a prefill instance for the pair, and returns nil if no instance may be asked.
func (g *picking) prefill(ctx context.Context, decode *fleet.Engine, quarantined bool) (*fleet.Engine, error) {
	if g.NoPrefill || g.gaveUp(upstream.RolePrefill) >= MaxDials {
		return nil, nil
	}
	if g.unlisted && !g.PrefillError && slices.ContainsFunc(g.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool { return e.MayServe(g.Request.Model) }) {
		g.PrefillFailed = true // it would compute the prompt for a decode instance that may refuse the model, and keep its blocks
		return nil, nil
	}
	excluded := g.Excluded
	defer func() { g.Excluded = excluded }() // another decode instance may read what this one can't
	for {
		prefill, err := g.engine(ctx, upstream.RolePrefill, quarantined, &g.pair.prefillSlot)
		switch {
		case errors.Is(err, upstream.ErrNoModel), errors.Is(err, upstream.ErrNoInstance) && len(g.Excluded) > len(excluded):
			g.PrefillFailed = true
			return nil, nil
		case errors.Is(err, upstream.ErrNoInstance):
			return nil, nil
		case err != nil:
			return nil, err
		}
		if g.mayHandOver(prefill, decode) {
			return prefill, nil
		}
		g.pair.Prefilled()
		g.Excluded = append(slices.Clip(g.Excluded), prefill)
	}
}

// mayHandOver reports whether the pair of two engines may exchange KV. A turn that is the trial of a pair that was left alone ends the trial
// with the attempt, unless that has shown before how the hand-over ends.
func (g *picking) mayHandOver(prefill, decode *fleet.Engine) bool {
	from, to := prefill.Last(), decode.Last()
	ok, trial := from.BeginLoad(to)
	if trial {
		g.pair.untried = func() { from.EndLoad(to, pairs.Inconclusive) }
	}
	return ok
}

// withoutPrefill decides how a turn goes on that no prefill instance can serve. Decode serves a bounded number of turns alone, which is
// the result nil, unless the operator wants errors. Further turns go to a quarantined prefill instance with a cache_salt of their own,
// so that they read nothing from its prefix cache.
func (g *picking) withoutPrefill(ctx context.Context, decode *fleet.Engine) (*fleet.Engine, error) {
	p := g.pair
	p.Quarantined = slices.ContainsFunc(g.deps.Fleet.Engines(upstream.RolePrefill), func(e *fleet.Engine) bool {
		return g.Request.MayPrefill(e.Name) && e.Quarantined()
	})
	if !g.PrefillError {
		if leave, ok := g.decodeOnly.take(g.Request.Account); ok {
			p.decodeOnly = leave
			switch {
			case g.PrefillFailed:
				g.Record.Alone(record.WhyFailed)
			case p.Quarantined:
				g.Record.Alone(record.WhyQuarantined)
			default:
				g.Record.Alone(record.WhyUnavailable)
			}
			return nil, nil
		}
	}
	if p.Quarantined {
		if prefill, err := g.prefill(ctx, decode, true); prefill != nil || err != nil {
			p.Salt = upstream.NewID()
			return prefill, err
		}
	}
	return nil, ErrNoPrefill
}

// pin finds out which incarnations the attempt talks to. A turn waits for /metrics only if it can use or leave a ticket, or if decode may
// have restarted unseen. Every other turn takes the incarnation that was read last: at worst a release reaches another incarnation, which
// does no harm (measured on vLLM 0.32).
func (g *picking) pin(ctx context.Context, prefill, decode *fleet.Engine) {
	switch {
	case prefill == nil:
		g.pair.Decode = decode.Last()
	case g.Tickets:
		g.pair.Prefill, g.pair.Decode = fleet.Pin(ctx, prefill, decode)
	default:
		g.pair.Prefill, g.pair.Decode = prefill.Last(), decode.Holder(ctx)
	}
}
