package reuse

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/outline"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// AsksCache means that prefill has to show what its cache dry holds of a conversation that was handed back. The other questions are those
// of package proof.
const AsksCache = "cache"

// Predictor tells what one turn would reuse. It is the turn's finder with engines that are not asked and tickets that stay: it asks no engine,
// takes no ticket and changes nothing.
type Predictor struct {
	finder Finder
	of     *Proving
	looked Lookup
}

// Predict returns a predictor of a turn whose proof has begun.
func (f *Finder) Predict(p *Proving) *Predictor {
	dry := *f
	dry.effects = effects{
		await:   func(context.Context, convcache.Key) {},
		giveUp:  func(context.Context, convcache.Key, convcache.TicketID, string) {},
		current: func(engine *fleet.Engine, _ context.Context) *fleet.Incarnation { return engine.Last() },
		alive:   func(*fleet.Incarnation, context.Context) bool { return true },
		try: func(prefill, decode *fleet.Incarnation) (*pairs.State, pairs.Status) {
			return nil, prefill.StatusWith(decode)
		},
		asked: func(continuation.Turn, time.Time) (time.Duration, bool) { return 0, false },
	}
	return &Predictor{finder: dry, of: p}
}

// Look does what [Finder.Look] does, except that hand-backs are not awaited and no ticket is given up.
func (w *Predictor) Look(ctx context.Context) Lookup {
	w.looked = w.finder.Look(ctx, w.of, Lookup{})
	return w.looked
}

// Begin stands for [Proving.Begin], and for the part of the proof's look that asks no engine.
func (w *Predictor) Begin(pair Incarnations) (known proof.Prediction) {
	w.of.pair = pair
	switch {
	case w.of.proof == nil || pair.Prefill == nil && !pair.Quarantined:
	case pair.Quarantined:
		known.Lacks = LacksQuarantined
	default:
		known = w.of.proof.Predict(proof.Attempt{Prefill: pair.Prefill, Decode: pair.Decode})
	}
	w.of.lacks = known.Lacks
	return known
}

// Excludes returns why the turn uses no ticket on the pair, whatever the store has; "" if it may use one.
func (w *Predictor) Excludes() record.Reason { return w.of.excludes() }

// Find stands for [Finder.Find], and assumes that no other turn takes the ticket first. It returns what an engine has to be asked
// first, "" if the record has what the turn would reuse, or why it would reuse nothing.
func (w *Predictor) Find(ctx context.Context, known proof.Prediction) (asks string) {
	if known.Asks == proof.AsksIncarnation || known.Asks == proof.AsksProbe { // Begin of the proof would ask it
		return known.Asks
	}
	reuse := w.of.record.Reuse()
	reuse.Reason = w.Excludes()
	switch {
	case reuse.Reason != "":
	case w.looked.Outcome != convcache.Found:
		reuse.Reason = w.finder.nothing(w.of, w.looked.Outcome)
	case w.looked.AllHandedBack():
		return AsksCache
	case known.Miss != "":
		reuse.Reason = record.Reason(known.Miss)
	case known.Asks != "":
		return known.Asks
	default:
		w.take(ctx, &reuse)
	}
	w.of.record.Reuses(reuse)
	return ""
}

// take predicts what Finder.take does, and tells reuse.
func (w *Predictor) take(ctx context.Context, reuse *record.Reuse) {
	choices, reason := w.of.choices(&w.looked)
	for _, c := range choices {
		if _, reason = w.finder.usable(ctx, w.of, &w.looked, c); reason == "" {
			reuse.Hit, reuse.Offered, reuse.FreshAsOf = true, c.offer.Tokens, c.branch.FreshAsOf
			return
		}
	}
	if reuse.Reason = reason; reason.Rewritten() {
		reuse.Differs = w.finder.differs(w.of, &w.looked).Position
	}
}

// Offer returns how much of a branch the request may use. It is called where Begin has told that no engine has to be asked.
func (w *Predictor) Offer(b convcache.KeyedBranch) convcache.Offer { return w.of.proof.Offer(b.Branch) }

// Barrier returns why the turn could not use the ticket of a branch if it is offered so much of it, "" if it could.
func (w *Predictor) Barrier(ctx context.Context, b convcache.KeyedBranch, offer convcache.Offer) record.Reason {
	if why := w.Excludes(); why != "" {
		return why
	}
	if offer.Tokens == 0 {
		return record.ReasonRewritten
	}
	_, why := w.finder.usable(ctx, w.of, &w.looked, choice{b, offer})
	return why
}

// Differs returns where the turn's history differs from that of a branch, as far as its outline is known.
func (w *Predictor) Differs(b convcache.KeyedBranch) outline.Difference {
	return w.finder.outlines.Compare(b.Key, b.ID, w.of.outline)
}
