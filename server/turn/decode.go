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
	untaken func()       // has the hand-over rescued; nil once decode has taken it
	unread  bool         // decode has got a hand-over, and not shown yet that it has loaded the KV
	wait    health.Wait  // for the beginning of the answer
	begun   bool         // events show that decode works; what an API server sends before that does not
}

// Close ends the leg, and has a hand-over rescued that decode has not taken.
func (d *decoding) Close() {
	_ = d.Stream.Close()
	d.wait.Over()
	if d.untaken != nil {
		d.untaken()
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
		if err == nil || !unsent(err) {
			return d, err
		}
		refused = append(refused, incarnation.Engine())
		a.tried.anotherDecode, a.tried.pathTied = h.Handover != nil && h.Bound, a.pair.Tied
		if len(refused) == pick.MaxDials || a.tried.anotherDecode || a.pair.Tied || h.Handover != nil && time.Now().After(h.until) {
			return nil, err
		}
		next, noneErr := a.deps.Picker.AnotherDecode(a.Attempt, a.pair, refused)
		if noneErr != nil {
			// Prefill's blocks can't wait until an instance has a free slot. A new attempt can.
			a.tried.anotherDecode = errors.Is(noneErr, upstream.ErrBusy)
			return nil, err
		}
		incarnation = next.Fresh() // the engine is not asked, because the lease of prefill's blocks runs
	}
}

// unsent reports whether err is the failure of a leg of which nothing was sent, because the engine refused the connection.
func unsent(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && !leg.Sent && leg.Kind == upstream.Dial
}

// decodeOn runs the decode leg on one engine. The leg does not end at once if the client leaves: when decode has got the hand-over, the leg
// must reach its first event (upstream.Client.Decode).
func (a *attempt) decodeOn(ctx context.Context, incarnation *fleet.Incarnation, h handed) (*decoding, error) {
	edit, plan, err := a.decodeEdit(incarnation, h)
	if err != nil {
		return nil, err
	}
	d := &decoding{
		leg:    answer.Leg{API: a.Request.API, AnswerIDs: &incarnation.Engine().AnswerIDs, Choices: a.Body.Choices()},
		origin: reuse.Origin{Decode: incarnation, BlockSize: incarnation.BlockSize(), Epoch: a.epoch, Prefilled: h.prefilled},
	}
	asks := &d.leg.Asks
	asks.IDs = a.proving.IDs.Wanted() && asksIDs(a.Request.API, incarnation.PlugIn.Found())
	asks.Hidden = asks.IDs && !a.Body.WantsTokenIDs()
	asks.Usage = a.proving.IDs.Wanted() && a.Request.Stream && !a.Body.WantsUsage()
	asks.UsageDue = !a.Request.Stream || asks.Usage || a.Body.WantsUsage()
	asks.Stops = a.Body.Has("stop")
	edit.ReturnTokenIDs, edit.Usage = asks.IDs, asks.Usage
	if h.Handover != nil {
		d.unread = h.rescue != nil && !h.left && !h.arrived // else decode finds the KV at home, or in a store
		d.origin.Prefill, d.origin.Pair, d.leg.Rewrite = h.from, h.from.PairWith(incarnation), h.Rewrite
		if a.Request.Stream {
			d.head = h.Head
		}
		d.leg.Cached = answer.CachedTokens{Told: h.Cached >= 0, Tokens: h.Cached}
	}
	leg := a.leg(incarnation, plan, a.Body.DecodeBody(edit))
	d.leg.RequestID, d.leg.Size = leg.RequestID, leg.Body.Len()
	limits := upstream.Limits{FirstByte: a.cfg.begins(a.Request.Stream), Idle: a.cfg.IdleTimeout, Gone: gone}
	if h.together {
		limits.Gone = nil // end at once: prefill's leg may fail, and decode would wait for KV that never comes
	}
	d.sent = a.Record.Sent(&leg, incarnation.ID())
	owed := limits.FirstByte
	switch { // a pair that has never exchanged KV may not be able to, which says nothing of decode
	case !a.Request.Stream, h.together, h.Handover == nil && a.pair.Uncached > oneStep, d.unread && (d.origin.Pair == nil || !d.origin.Pair.Loaded()):
		owed = 0
	}
	began := time.Now()
	d.wait = incarnation.Engine().Health.Wait(owed)
	defer func() {
		if d.Stream == nil {
			d.wait.Over()
		}
	}()
	stream, err := a.deps.Legs.Decode(ctx, leg, limits)
	d.sent.Answered(time.Since(began), err)
	if err != nil {
		a.blameDecode(d, a.tried, a.Record.ID(), err, tookLong(a.Request.Stream, err), a.doubts, a.PrefillError)
		return nil, err
	}
	incarnation.Engine().Health.Answered() // told now, because the stream may last for minutes
	d.Stream, d.origin.Began = stream, began
	d.leg.Arrived = stream.FreshAsOf()
	return d, nil
}

// asksIDs reports whether decode is asked for the ids of its answer, which is so if no plug-in adds them. Of Messages the plug-in adds the
// ids, and no request can ask for them; Responses the plug-in does not know.
func asksIDs(api body.API, plugIn facts.Finding) bool {
	switch api {
	case body.Messages:
		return false
	case body.Responses:
		return true
	}
	return plugIn != facts.Yes
}

// gone returns how long decode may take to begin its answer after the turn has ended for this cause.
func gone(cause error) time.Duration {
	if errors.Is(cause, background.ErrShuttingDown) {
		return background.AbandonDelay / 2 // the client is still there, and must get its error event in time
	}
	return detachedLimit
}

// decodeEdit returns what the decode leg adds to the client's request: the hand-over, and the ids that prefill computed, so that decode
// can't render another prompt and need not tokenise again. It is an error if the hand-over's epoch has ended.
func (a *attempt) decodeEdit(incarnation *fleet.Incarnation, h handed) (_ body.DecodeEdit, _ upstream.LegPlan, _ error) {
	if h.Handover != nil && a.inDoubt() {
		return body.DecodeEdit{}, upstream.LegPlan{}, idEchoFailed(h.from.Engine(), true)
	}
	ids := a.proving.IDs.ForDecode(incarnation)
	plan := upstream.LegPlan{API: a.Request.API}
	if h.Handover != nil {
		plan = h.Leg(ids)
	}
	return body.DecodeEdit{CacheSalt: a.cacheSalt(incarnation), PromptIDs: ids, Members: plan.Members, AnswerID: a.answerID()}, plan, nil
}

// inDoubt reports whether the KV that prefill hands over is in doubt: the fleet's epoch has ended.
func (a *attempt) inDoubt() bool { return a.pair.Salt == "" && a.epoch != a.deps.Epoch.Now() }
