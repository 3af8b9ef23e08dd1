package turn

import (
	"bytes"
	"context"
	"net/http"
	"time"

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

// sendRescue sends the leg in the background, and then closes the plan. The time is bounded, because prefill's blocks have a lease. The blocks of
// decode's answer are released.
//
// The fleet hears of a failure as of a leg of our own. A good end says nothing about the engine: one token is easier for it than the client's leg,
// which failed.
func (a *attempt) sendRescue(plan upstream.Plan, h handed) {
	to, from, decode, model, id := a.h, a.pair.Prefill, a.rescuer(h), a.Request.Model, a.record.ID() // the work keeps nothing else of the attempt
	api, text := a.Body.RescueBody(body.LegEdit{
		Members: h.Rescue(), CacheSalt: upstream.Salted(upstream.NewID()+"~", a.proof.Salt),
		PromptIDs: bytes.Clone(a.proof.IDs.ForDecode(a.pair.Decode)), // the turn may give the list's memory back before the leg is written
	})
	leg := a.leg(decode, upstream.LegPlan{API: api}, text)
	if leg.RequestID += "-rescue"; api == body.Responses {
		leg.Foreign = nil // the body names no id
	}
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
		engine, began := decode.Engine(), time.Now()
		ctx, cancel := context.WithTimeoutCause(context.Background(), detachedLimit, upstream.ErrFirstByteTimeout)
		defer cancel()
		answer, err := to.deps.Legs.Prefill(ctx, leg) // the answer is read whole, like prefill's
		if err == nil {
			from.PairWith(decode).ExchangedKV()
			to.deps.Pins.UnuseParams(answer.Params, decode, model, began)
			return
		}
		if engine.Ended(err, true); h.arrived || !frees(err) {
			to.strand(id, err)
		}
	})
}

// rescuer returns the decode instance that gets the leg: another one than the hand-over was for, which has not taken it, if there is one. A hand-over
// that is bound goes to no other instance.
func (a *attempt) rescuer(h handed) *fleet.Incarnation {
	for _, e := range a.h.deps.Fleet.Engines(upstream.RoleDecode) {
		if !h.Bound && e != a.pair.Decode.Engine() && e.Takes(a.Request.Model) {
			return e.Last()
		}
	}
	return a.pair.Decode
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
