package turn

import (
	"context"
	"errors"
	"time"

	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
)

// oneStep is how many tokens of a prompt decode computes in one step, by vLLM's least max_num_batched_tokens, so that its answer begins as
// soon as behind a hand-over.
const oneStep = 2048

// decoding is a decode leg whose headers have arrived. It lives as long as the stream, so that it holds nothing of the prompt.
type decoding struct {
	*upstream.Stream
	leg     answer.Leg
	sent    record.SentLeg
	origin  reuse.Origin // of the answer's KV
	head    []byte       // what the client gets before decode's first event, nil for nothing
	untaken *untaken     // the hand-over that is rescued; nil once decode has taken it
	unread  bool         // decode has got a hand-over, and not shown yet that it has loaded the KV
	whole   bool         // the client wants no stream
	wait    health.Wait  // for the beginning of the answer
	begun   bool         // events show that decode works; what an API server sends before that does not
}

// Close ends the leg, and has a hand-over rescued that decode has not taken.
func (d *decoding) Close() {
	_ = d.Stream.Close()
	d.wait.Over()
	if d.untaken != nil {
		d.untaken.by.sendRescue(upstream.Plan{}, d.untaken.handed)
	}
}

// decode sends the hand-over to exactly one decode instance, and returns when the headers of its answer have arrived. If an instance refuses
// the connection, nothing was sent, and the same hand-over may go to another instance within the hand-over budget, unless it is bound to
// the first: in pull mode any decode instance can read prefill's blocks.
func (a *attempt) decode(ctx context.Context, h handed) (*decoding, error) {
	incarnation := a.pair.Decode
	var refused []*fleet.Engine
	for {
		d, err := a.decodeOn(ctx, incarnation, h)
		if err == nil {
			return d, nil
		}
		var leg *upstream.LegError
		if !errors.As(err, &leg) || leg.Sent || leg.Kind != upstream.Dial {
			return nil, err
		}
		refused = append(refused, incarnation.Engine())
		a.failed.bound, a.failed.tied = h.Leg != nil && h.Bound, a.pair.Tied
		if len(refused) == pick.MaxDials || a.failed.bound || a.failed.tied || h.Leg != nil && time.Now().After(h.until) {
			return nil, err
		}
		next, noneErr := a.h.deps.Picker.AnotherDecode(a.Attempt, a.pair, refused)
		if noneErr != nil {
			// Prefill's blocks can't wait until an instance has a free slot. A new attempt can.
			a.failed.bound = errors.Is(noneErr, upstream.ErrBusy)
			return nil, err
		}
		incarnation = next.Fresh() // the engine is not asked, because the lease of prefill's blocks runs
	}
}

// decodeOn runs the decode leg on one engine. It adds to the client's request the hand-over, and the ids that prefill computed, so that decode
// can't render another prompt and need not tokenise again. It is an error if the hand-over's epoch has ended. The leg does not end at once if
// the client leaves: when decode has got the hand-over, the leg must reach its first event (upstream.Client.Decode).
func (a *attempt) decodeOn(ctx context.Context, incarnation *fleet.Incarnation, h handed) (*decoding, error) {
	if h.Leg != nil && a.inDoubt() {
		return nil, idEchoFailed(h.from.Engine(), true)
	}
	api, stream, ids, engine := a.Request.API, a.Request.Stream, a.proof.IDs, incarnation.Engine()
	prompt := ids.ForDecode(incarnation)
	plan := upstream.LegPlan{API: api}
	wanted, usage := ids.Wanted(), a.Body.WantsUsage()
	asks := answer.Asks{IDs: wanted && asksIDs(api, incarnation.PlugIn.Found()), Usage: wanted && stream && !usage, Stops: a.Body.Has("stop")}
	asks.Hidden, asks.UsageDue = asks.IDs && !a.Body.WantsTokenIDs(), !stream || asks.Usage || usage
	d := &decoding{
		leg: answer.Leg{API: api, AnswerIDs: &engine.AnswerIDs, Choices: a.Body.Choices(), Asks: asks}, whole: !stream,
		origin: reuse.Origin{Proof: a.proof, Decode: incarnation, BlockSize: incarnation.BlockSize(), Epoch: a.epoch, Caches: h.caches},
	}
	if h.Leg != nil {
		plan = h.Leg(prompt)
		d.unread = h.Rescue != nil && !h.Left && !h.arrived // else decode finds the KV at home, or in a store
		d.origin.Prefill, d.origin.State, d.leg.Rewrite = h.from, h.from.PairWith(incarnation), h.Rewrite
		if stream {
			d.head = h.Head
		}
		d.leg.Cached = answer.CachedTokens{Told: h.Cached >= 0, Tokens: h.Cached}
	}
	leg := a.leg(incarnation, plan, a.Body.DecodeBody(body.DecodeEdit{
		CacheSalt: a.cacheSalt(incarnation), PromptIDs: prompt, Members: plan.Members, AnswerID: a.answerID(), ReturnTokenIDs: asks.IDs, Usage: asks.Usage,
	}))
	d.leg.RequestID, d.leg.Size = leg.RequestID, leg.Body.Len()
	limits := upstream.Limits{FirstByte: a.h.cfg.begins(stream), Idle: a.h.cfg.IdleTimeout, Gone: gone}
	if h.together {
		limits.Gone = nil // end at once: prefill's leg may fail, and decode would wait for KV that never comes
	}
	d.sent = a.Record.Sent(&leg, incarnation.ID())
	owed := limits.FirstByte
	switch { // a pair that has never exchanged KV may not be able to, which says nothing of decode
	case !stream, h.together, h.Leg == nil && a.pair.Uncached > oneStep, d.unread && (d.origin.State == nil || !d.origin.State.Loaded()):
		owed = 0
	}
	d.origin.Began = time.Now()
	d.wait = engine.Health.Wait(owed)
	defer func() {
		if d.Stream == nil {
			d.wait.Over()
		}
	}()
	answered, err := a.h.deps.Legs.Decode(ctx, leg, limits)
	d.sent.Answered(time.Since(d.origin.Began), err)
	if err != nil {
		a.failed.unread = a.h.blameDecode(d, err, a.doubts, a.PrefillError, a.Record.ID())
		return nil, err
	}
	engine.Health.Answered() // told now, because the stream may last for minutes
	d.Stream, d.leg.Arrived = answered, answered.FreshAsOf()
	return d, nil
}

// asksIDs reports whether decode is asked for the ids of its answer, which is so if no plug-in adds them. Of Messages the plug-in adds the
// ids, and no request can ask for them; Responses the plug-in does not know.
func asksIDs(api body.API, plugIn facts.Finding) bool {
	return api == body.Responses || api != body.Messages && plugIn != facts.Yes
}

// gone returns how long decode may take to begin its answer after the turn has ended for this cause.
func gone(cause error) time.Duration {
	if errors.Is(cause, background.ErrShuttingDown) {
		return background.AbandonDelay / 2 // the client is still there, and must get its error event in time
	}
	return detachedLimit
}

// inDoubt reports whether the KV that prefill hands over is in doubt: the fleet's epoch has ended.
func (a *attempt) inDoubt() bool { return a.pair.Salt == "" && a.epoch != a.h.deps.Epoch.Now() }
