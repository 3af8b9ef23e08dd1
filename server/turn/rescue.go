package turn

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

const (
	// mostRescues is how many rescues run at once. Each holds the ids of a prompt.
	mostRescues = 256
	// detachedLimit is the time limit of a leg that goes on without its client. Prefill's lease lasts 30 s (vLLM 0.33).
	detachedLimit = 10 * time.Second
)

// rescue makes decode take a hand-over that no leg of the turn takes: the client has left, decode has failed the leg, or the KV has come too late.
// Otherwise prefill would keep the blocks until their lease ends, and LMCache's receiver would keep its chunks for ever. It closes the plan.
//
// The leg has one token, and of the client's request only the prompt. It has a cache_salt of its own, because decode may have taken the hand-over
// all the same. The leg then reads blocks that are free by now, and no other request may find what it reads.
func (a *attempt) rescue(plan upstream.Plan, h handed) {
	to, id := a.h, a.record.ID()
	switch {
	case h.Rescue == nil:
	case a.inDoubt():
		to.strand(id, "its KV is in doubt")
	case plan.Ready == nil && !h.arrived && time.Now().After(h.until):
		to.strand(id, "the hand-over budget is over")
	case to.rescues.Add(1) > mostRescues:
		to.rescues.Add(-1)
		to.strand(id, "too many hand-overs are rescued at once")
	default:
		a.sendRescue(plan, h)
		return
	}
	plan.Done()
}

// sendRescue sends the leg in the background, and then closes the plan. One instance after another gets it until one has taken the hand-over, first the
// one that the hand-over was for. The time is bounded, because prefill's blocks have a lease. The blocks of decode's answer are released.
//
// The fleet hears of a failure as of a leg of our own. A good end says nothing about the engine: one token is easier for it than the client's leg,
// which failed.
func (a *attempt) sendRescue(plan upstream.Plan, h handed) {
	to, pair, model, id := a.h, a.pair, a.Request.Model, a.record.ID() // the work keeps nothing else of the attempt
	api, text := a.Body.RescueBody(body.LegEdit{
		Members: h.Rescue(), CacheSalt: upstream.Salted(upstream.NewID()+"~", a.proof.Salt),
		PromptIDs: bytes.Clone(a.proof.IDs.ForDecode(a.pair.Decode)), // the turn may give the list's memory back before the leg is written
	})
	leg := upstream.Leg{API: api, RequestID: a.legID, Authorization: a.Request.Authorization}
	a.record.Joins(&leg)
	to.deps.Background.Run("turn", id, func() {
		defer to.rescues.Add(-1)
		defer plan.Done()
		if plan.Ready != nil && !h.arrived { // decode must not look for KV that is on its way
			bounded, cancel := context.WithTimeoutCause(to.deps.Background.Context(), max(0, time.Until(h.until))+detachedLimit, upstream.ErrNotReady)
			defer cancel()
			if err := plan.Ready(bounded); err != nil {
				if h.Leg != nil { // else nobody knows that anything has come
					to.strand(id, err)
				}
				return
			}
			h.arrived = true
		}
		decodes := []*fleet.Incarnation{pair.Decode} // the first one ends the turn's leg before it reads
		for _, e := range to.deps.Fleet.Engines(upstream.RoleDecode) {
			if !h.Bound && e != pair.Decode.Engine() && e.Takes(model) {
				decodes = append(decodes, e.Last())
			}
		}
		var err error
		freed := false
		for _, decode := range decodes[:min(len(decodes), pick.MaxDials)] {
			engine, began := decode.Engine(), time.Now()
			leg.RequestID += "-rescue" // a new id for each instance, because each leg may have been sent
			leg.Instance, leg.Body = engine.Instance(), slices.Clone(text)
			if api != body.Responses { // whose body names no id
				leg.AnswerIDs = &engine.AnswerIDs
			}
			ctx, cancel := context.WithTimeoutCause(context.Background(), detachedLimit, upstream.ErrFirstByteTimeout)
			defer cancel()
			var answer upstream.PrefillAnswer
			if answer, err = to.deps.Legs.Prefill(ctx, leg); err == nil { // the answer is read whole, like prefill's
				pair.Prefill.PairWith(decode).ExchangedKV()
				to.deps.Pins.UnuseParams(answer.Params, decode, model, began)
				return
			}
			engine.Ended(err, true)
			freed = freed || !h.arrived && frees(err)
		}
		if !freed {
			to.strand(id, err)
		}
	})
}

// frees reports whether an engine that failed the leg has told prefill that it does not read the KV. The leg has only a prompt and a hand-over.
// vLLM tells prefill if its serving layer refuses the leg because of the prompt's length or the model (#41269), and if it is paused (0.33,
// core.py).
func frees(err error) bool {
	leg := upstream.LegOf(err)
	return leg.Status == http.StatusBadRequest || leg.Status == http.StatusNotFound || leg.Paused()
}

// strand counts a hand-over that nobody takes.
func (h *Handler) strand(turn string, why any) {
	h.Stranded.Add(1)
	h.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", turn, "error", why)
}
