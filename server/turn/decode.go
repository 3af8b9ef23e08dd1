package turn

import (
	"context"
	"errors"
	"time"

	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/proof"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// oneStep is how many tokens of a prompt decode computes in one step: vLLM's least max_num_batched_tokens. The answer to a prompt of this length
// begins as soon as an answer after a hand-over.
const oneStep = 2048

// decode sends the hand-over to exactly one decode instance, and returns when the headers of its answer have arrived. If an instance refuses the
// connection, nothing was sent. Then another instance may get the same hand-over within the hand-over budget: in pull mode any decode instance can
// read prefill's blocks. A hand-over that is bound goes to no other instance.
func (a *attempt) decode(ctx context.Context, h handed) (*reading, error) {
	f, incarnation := &a.failed, a.pair.Decode
	var refused []*fleet.Engine
	for {
		r, err := a.decodeOn(ctx, incarnation, h)
		if leg := upstream.LegOf(err); leg == nil || leg.Kind != upstream.Dial { // else nothing was sent
			return r, err
		}
		refused = append(refused, incarnation.Engine())
		f.bound, f.tied = h.Leg != nil && h.Bound, a.pair.Tied
		if len(refused) == pick.MaxDials || f.bound || f.tied || h.Leg != nil && time.Now().After(h.until) {
			return nil, err
		}
		next, anew := a.h.deps.Picker.AnotherDecode(a.Attempt, a.pair, refused)
		if next == nil {
			f.bound = anew // prefill's blocks can't wait until an instance has a free slot
			return nil, err
		}
		incarnation = next.Fresh() // the engine is not asked, because the lease of prefill's blocks runs
	}
}

// decodeOn runs the decode leg on one engine. It adds the hand-over to the client's request, and the ids that prefill computed: decode then can't
// render another prompt, and need not tokenise again. It fails if the hand-over's epoch has ended. If the client leaves, the leg does not end at
// once: a leg that got the hand-over must reach its first event (upstream.Client.Decode).
func (a *attempt) decodeOn(ctx context.Context, incarnation *fleet.Incarnation, h handed) (*reading, error) {
	stream, ids, engine := a.Request.Stream, a.proof.IDs, incarnation.Engine()
	if h.Leg != nil && a.inDoubt() {
		return nil, a.pair.Prefill.LegError(upstream.IDEcho, proof.ErrIDs)
	}
	prompt, plan := ids.ForDecode(incarnation), upstream.LegPlan{API: a.Request.API}
	r := &reading{
		h: a.h, record: a.record, leg: answer.NewLeg(a.Body, ids.Wanted(), incarnation.PlugIn.Found()),
		origin: reuse.Origin{Proof: a.proof, Decode: incarnation, Epoch: a.epoch, Caches: h.caches},
	}
	if h.Leg != nil {
		plan = h.Leg(prompt)
		r.unread = h.Rescue != nil && !h.Left && !h.arrived // else decode has the KV already, or finds it in a store
		r.origin.Prefill, r.origin.State, r.leg.Rewrite = a.pair.Prefill, a.pair.Prefill.PairWith(incarnation), h.Rewrite
		r.head, r.leg.Cached = h.Head, answer.CachedTokens{Told: h.Cached >= 0, Tokens: h.Cached}
	}
	leg := a.leg(incarnation, plan, a.Body.DecodeBody(body.LegEdit{
		CacheSalt: a.cacheSalt(incarnation), PromptIDs: prompt, Members: plan.Members, RequestID: a.legID, ReturnTokenIDs: r.leg.Asks.IDs, Usage: r.leg.Asks.Usage,
	}))
	r.leg.RequestID, r.leg.AnswerIDs, r.leg.Size = leg.RequestID, &engine.AnswerIDs, leg.Body.Len()
	limits := upstream.Limits{FirstByte: a.h.cfg.begins(stream), Whole: !stream, Idle: a.h.cfg.IdleTimeout, Gone: gone}
	if h.together {
		limits.Gone = nil // end at once: prefill's leg may fail, and decode would wait for KV that never comes
	}
	r.sent = a.record.Sent(&leg, incarnation.ID())
	owed := limits.FirstByte
	if !stream || h.together || h.Leg == nil && a.pair.Uncached > oneStep || r.unread && !r.origin.State.Loaded() {
		owed = 0 // a pair that has never exchanged KV may not be able to, which says nothing about decode
	}
	r.wait = engine.Health.Wait(owed)
	defer func() {
		if r.Stream == nil {
			r.wait.Over()
		}
	}()
	answered, err := a.h.deps.Legs.Decode(ctx, leg, limits)
	r.sent.Answered(err)
	if err != nil {
		a.failed.unread = r.blame(err, a.doubts, a.PrefillError)
		return nil, err
	}
	engine.Health.Answered() // told now, because the stream may last for minutes
	r.Stream, r.leg.Arrived = answered, answered.FreshAsOf()
	return r, nil
}

// gone returns how long decode may take to begin its answer after the turn has ended with this cause.
func gone(cause error) time.Duration {
	if errors.Is(cause, background.ErrShuttingDown) {
		return background.AbandonDelay / 2 // the client is still there, and must get its error event in time
	}
	return detachedLimit
}

// inDoubt reports whether the KV of the hand-over is in doubt, because the fleet's epoch has ended.
func (a *attempt) inDoubt() bool { return a.pair.Salt == "" && a.epoch != a.h.deps.Epoch.Now() }
