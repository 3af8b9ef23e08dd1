package turn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"carryover/server/pick"
	"carryover/sse/rawjson"
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

var (
	errNoRoom  = errors.New("too many hand-overs are rescued at once")
	errTooLate = errors.New("the hand-over budget is over")
	errInDoubt = errors.New("its KV is in doubt")
)

// untaken is a hand-over that decode has not taken yet.
type untaken struct {
	handed
	by *attempt
}

// rescue makes decode take a hand-over that no leg of the turn takes: the client has left, decode has failed the leg, or the KV has come too late.
// Otherwise prefill would keep the blocks until their lease ends, and LMCache's receiver would keep its chunks for ever.
//
// The leg has one token, and of the client's request only the prompt. It has a cache_salt of its own, because decode may have taken the hand-over
// all the same. The leg then reads blocks that are free by now, and no other request may find what it reads.
//
// r is decode's answer, nil if there is none. Its events show whether decode takes the hand-over.
func (a *attempt) rescue(plan upstream.Plan, h handed, r *reading) {
	switch {
	case h.Rescue == nil:
	case r != nil && !h.Left:
		r.untaken = &untaken{h, a}
	case a.inDoubt():
		a.h.strand(a.record.ID(), errInDoubt)
	default:
		select {
		case a.h.rescues <- struct{}{}:
			a.sendRescue(plan, h)
			return
		default:
			a.h.strand(a.record.ID(), errNoRoom)
		}
	}
	closePlan(plan)
}

func closePlan(plan upstream.Plan) {
	if plan.Close != nil {
		plan.Close()
	}
}

// sendRescue sends the leg in the background, and then closes the plan. Any decode instance can get the leg, unless the hand-over is bound to one.
func (a *attempt) sendRescue(plan upstream.Plan, h handed) {
	to, pair, model, id := a.h, a.pair, a.Request.Model, a.record.ID() // the work keeps nothing else of the attempt
	edit := body.LegEdit{Members: h.Rescue(), CacheSalt: upstream.Salted(upstream.NewID()+"~", a.proof.Salt)}
	if ids := a.proof.IDs.Prompt(); ids != nil {
		edit.PromptIDs = rawjson.AppendIDs(nil, ids)
	}
	leg := upstream.Leg{RequestID: a.legID, Authorization: a.Request.Authorization}
	leg.API, leg.Body = a.Body.RescueBody(edit)
	a.record.Joins(&leg)
	to.deps.Background.Run("turn", id, func() {
		defer func() { <-to.rescues }()
		defer closePlan(plan)
		var err error
		if plan.Ready != nil && !h.arrived { // decode must not look for KV that is on its way
			bounded, cancel := context.WithTimeoutCause(to.deps.Background.Context(), max(0, time.Until(h.until))+detachedLimit, upstream.ErrNotReady)
			err = plan.Ready(bounded)
			h.arrived = err == nil
			cancel()
		}
		if err == nil {
			err = to.rescueOn(pair, leg, h, model)
		}
		if err != nil && (h.Leg != nil || h.arrived) { // else nobody knows that anything has come
			to.strand(id, err)
		}
	})
}

// rescueOn sends the leg to one instance after another until one has taken the hand-over. The first is the one that the hand-over was for. The time
// is bounded, because prefill's blocks have a lease. The blocks of decode's answer are released. rescueOn also returns nil if an engine has made
// prefill free the blocks.
//
// The fleet hears of a failure as of a leg of our own. A good end says nothing about the engine: one token is easier for it than the client's leg,
// which failed.
func (h *Handler) rescueOn(pair *pick.Pair, leg upstream.Leg, of handed, model string) (err error) {
	freed, decodes := false, []*fleet.Incarnation{pair.Decode}
	for _, e := range h.deps.Fleet.Engines(upstream.RoleDecode) {
		if !of.Bound && e != pair.Decode.Engine() && e.Reachable() && !e.Health.Pauses() && e.MayServe(model) {
			decodes = append(decodes, e.Last())
		}
	}
	for _, decode := range decodes[:min(len(decodes), pick.MaxDials)] {
		if !of.arrived && time.Now().After(of.until) {
			return errors.Join(errTooLate, err)
		}
		engine := decode.Engine()
		leg.RequestID += "-rescue" // a new id for each instance, because each leg may have been sent
		leg.Instance, leg.Body = engine.Instance(), slices.Clone(leg.Body)
		began := time.Now()
		ctx, cancel := context.WithTimeoutCause(context.Background(), detachedLimit, upstream.ErrFirstByteTimeout)
		answer, failed := h.deps.Legs.Prefill(ctx, leg) // the answer is read whole, like prefill's
		cancel()
		if failed == nil && leg.API != body.Responses && engine.AnswerIDs.Foreign(leg.RequestID, answer.ID) {
			failed = h.foreign(decode)
		}
		if failed == nil {
			pair.Prefill.PairWith(decode).ExchangedKV()
			h.deps.Pins.UnuseParams(answer.Params, decode, model, began)
			return nil
		}
		engine.Ended(failed, true)
		err, freed = failed, freed || !of.arrived && frees(failed)
	}
	if freed {
		return nil
	}
	return err
}

// frees reports whether an engine that failed the leg has told prefill that it does not read the KV. The leg has only a prompt and a hand-over.
// vLLM tells prefill if its serving layer refuses the leg because of the prompt's length or the model (#41269), and if it is paused (0.33,
// core.py).
func frees(err error) bool {
	leg := legOf(err)
	return leg != nil && (leg.Status == http.StatusBadRequest || leg.Status == http.StatusNotFound || leg.Paused())
}

// strand counts a hand-over that nobody takes.
func (h *Handler) strand(turn string, err error) {
	h.Stranded.Add(1)
	h.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", turn, "error", err)
}
