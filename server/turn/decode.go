package turn

import (
	"context"
	"errors"
	"time"

	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// detachedLimit is the time limit of work that goes on after its client has left.
const detachedLimit = 10 * time.Second

// decoding is a decode leg whose headers have arrived. It lives as long as the stream, so that it holds nothing of the prompt. Its Stream
// is nil if the client has its whole answer already.
type decoding struct {
	*upstream.Stream
	leg    answer.Leg
	sent   record.SentLeg
	origin reuse.Origin // of the answer's KV
	unread func()       // has decode take the KV of the hand-over if decode has not read it; nil once an event has reached the client

	both   context.Context //nolint:containedctx // of both legs if they run at once: the failure of one ends the other
	finish func()          // ends the other leg if it still runs
}

// Close ends the leg.
func (d *decoding) Close() {
	if d.finish != nil {
		d.finish()
	}
	if d.Stream != nil {
		_ = d.Stream.Close()
	}
}

// leavesUnread notes that the engine has failed the leg, which it may not have begun: its receiver may hold what was to be read.
func (d *decoding) leavesUnread() {
	if take := d.unread; take != nil {
		d.unread = nil
		take()
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
		leg:    answer.Leg{API: a.Request.API, AnswerIDs: &incarnation.Engine().AnswerIDs},
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
		d.origin.Prefill, d.origin.Pair, d.leg.Rewrite = h.from, h.from.PairWith(incarnation), h.Rewrite
		d.leg.Cached = answer.CachedTokens{Told: h.Cached >= 0, Tokens: h.Cached}
	}
	leg := a.leg(incarnation, plan, a.Body.DecodeBody(edit))
	d.leg.RequestID = leg.RequestID
	limits := upstream.Limits{FirstByte: a.cfg.FirstByteTimeout, Idle: a.cfg.IdleTimeout, Gone: gone}
	if h.together {
		limits.Gone = nil // end at once: prefill's leg may fail, and decode would wait for KV that never comes
	}
	d.sent = a.Record.Sent(&leg, incarnation.ID())
	began := time.Now()
	stream, err := a.deps.Legs.Decode(ctx, leg, limits)
	d.sent.Answered(time.Since(began), err)
	if err != nil {
		Blame(incarnation.Engine(), err, false)
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
	if h.Handover != nil && a.pair.Salt == "" && a.epoch != a.deps.Epoch.Now() {
		return body.DecodeEdit{}, upstream.LegPlan{}, idEchoFailed(h.from.Engine(), true)
	}
	ids := a.proving.IDs.ForDecode(incarnation)
	plan := upstream.LegPlan{API: a.Request.API}
	if h.Handover != nil {
		plan = h.Leg(ids)
	}
	edit := body.DecodeEdit{CacheSalt: a.cacheSalt(incarnation), PromptIDs: ids, Members: plan.Members}
	edit.AnswerID = a.answerID(plan)
	return edit, plan, nil
}

// drainHandover frees prefill's blocks when the client has left between the legs. Decode reads them for an answer of one token, which
// nobody sees and whose own blocks are then released. Otherwise they would be pinned until their lease ends. It works in the background,
// so that the handler can end, and reports whether it will close the plan.
func (a *attempt) drainHandover(ctx context.Context, plan upstream.Plan, h handed) bool {
	if h.Handover == nil && plan.Late == nil {
		return false
	}
	leg, err := a.takingLeg(plan, h)
	if err != nil {
		a.counts.stranded(false)
		return false
	}
	id, model, pair, r := a.Record.ID(), a.Request.Model, a.pair, a.legRunner // the work keeps nothing else of the attempt
	ctx = context.WithoutCancel(ctx)
	end, leave := a.turn.detach(), pair.DetachDecode()
	r.deps.Background.Run("turn", id, func() {
		defer end()
		defer leave()
		defer closePlan(plan)
		err := r.arrived(ctx, plan, h)
		ctx, cancel := context.WithTimeoutCause(ctx, detachedLimit, upstream.ErrFirstByteTimeout)
		defer cancel()
		began := time.Now()
		var params []byte
		if err == nil {
			params, err = r.readWhole(ctx, sending(&leg))
			Blame(pair.Decode.Engine(), err, false)
		}
		if err != nil {
			r.counts.stranded(false)
			r.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", id, "decode", leg.Instance.Name, "error", err)
			return
		}
		pair.Prefill.PairWith(pair.Decode).ExchangedKV()
		r.deps.Pins.Releases.UnuseParams(params, pins.Leftover{Decode: pair.Decode, Model: model, FreshAsOf: began})
		r.counts.stranded(true) // the answer's own blocks have been counted as pinned by now
	})
	return true
}

// takingLeg makes a decode leg of one token, which has decode read the KV and serves nothing else.
func (a *attempt) takingLeg(plan upstream.Plan, h handed) (upstream.Leg, error) {
	switch {
	case plan.Late != nil:
		h.Handover = &upstream.Handover{Leg: func([]byte) upstream.LegPlan { return plan.Late() }}
	case h.Take != nil:
		h.Handover = &upstream.Handover{Leg: h.Take}
	}
	edit, as, err := a.decodeEdit(a.pair.Decode, h)
	if err != nil {
		return upstream.Leg{}, err
	}
	edit.OneToken = true
	leg := a.leg(a.pair.Decode, as, a.Body.DecodeBody(edit))
	a.Record.Joins(&leg)
	return leg, nil
}

// take has decode read the KV that the client's leg would leave unread. If that fails, the KV stays, and the client's leg is sent all the
// same.
func (a *attempt) take(ctx context.Context, h handed) {
	if h.Handover == nil || h.Take == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), detachedLimit, upstream.ErrFirstByteTimeout)
	defer cancel()
	leg, err := a.takingLeg(upstream.Plan{}, h)
	if err != nil {
		return // the client's leg will fail for the same reason
	}
	if _, err := a.readWhole(ctx, leg); err != nil {
		Blame(a.pair.Decode.Engine(), err, false)
		a.cfg.Logger.Warn("decode leaves KV that has arrived", "turn", a.Record.ID(), "decode", a.pair.Decode.Engine().Name, "error", err)
	}
}

// readWhole runs a decode leg for which no client waits, and returns its kv_transfer_params.
func (r *legRunner) readWhole(ctx context.Context, leg upstream.Leg) ([]byte, error) {
	stream, err := r.deps.Legs.Decode(ctx, leg, upstream.Limits{FirstByte: detachedLimit, Idle: detachedLimit})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	body, err := upstream.ReadAll(stream, maxAnswer)
	if err != nil {
		return nil, err
	}
	_, params, _ := rawjson.Cut(body, answer.ParamsMember)
	return params, nil
}
