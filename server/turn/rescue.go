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

// The bounds of rescues.
const (
	// mostRescues is how many rescues run at once. Each holds the ids of a prompt.
	mostRescues = 256
	// detachedLimit is the time limit of a leg that goes on without its client. Prefill's lease lasts 30 s (vLLM 0.33).
	detachedLimit = 10 * time.Second
)

// Why a hand-over stays where it is.
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

// rescue has decode take a hand-over that no leg of the turn takes: the client has left, decode has failed the leg, or the KV has come too
// late. Prefill would keep the blocks for their lease, and LMCache's receiver would keep its chunks for ever. The leg has one token and
// nothing of the client's but the prompt, and a cache_salt of its own, because decode may have taken the hand-over all the same: what it
// reads then in blocks that are free by now is found by no other request. d is decode's answer, nil if there is none; its events show
// whether decode takes the hand-over.
func (a *attempt) rescue(plan upstream.Plan, h handed, d *decoding) {
	switch {
	case h.Rescue == nil:
		closePlan(plan)
	case d != nil && !h.Left:
		closePlan(plan)
		d.untaken = &untaken{h, a}
	default:
		a.sendRescue(plan, h)
	}
}

// closePlan gives back the resources that a plan has reserved.
func closePlan(plan upstream.Plan) {
	if plan.Close != nil {
		plan.Close()
	}
}

// sendRescue sends the leg in the background, and then closes the plan.
func (a *attempt) sendRescue(plan upstream.Plan, h handed) {
	r, id, unable := a.h, a.Record.ID(), errInDoubt
	if !a.inDoubt() {
		select {
		case r.rescues <- struct{}{}:
			unable = nil
		default:
			unable = errNoRoom
		}
	}
	if unable != nil {
		closePlan(plan)
		r.strand(id, unable)
		return
	}
	leg, model, first := a.rescueLeg(h), a.Request.Model, a.pair.Decode // the work keeps nothing else of the attempt
	r.deps.Background.Run("turn", id, func() {
		defer func() { <-r.rescues }()
		defer closePlan(plan)
		var err error
		if plan.Ready != nil && !h.arrived { // decode must not look for KV that is on its way
			bounded, cancel := context.WithTimeoutCause(r.deps.Background.Context(), max(0, time.Until(h.until))+detachedLimit, upstream.ErrNotReady)
			err = plan.Ready(bounded)
			h.arrived = err == nil
			cancel()
		}
		if err == nil {
			err = r.rescueOn(first, leg, h, model)
		}
		if err != nil && (h.Leg != nil || h.arrived) { // else nothing has come of which anybody knows
			r.strand(id, err)
		}
	})
}

// rescueLeg makes the leg, which any decode instance can get.
func (a *attempt) rescueLeg(h handed) upstream.Leg {
	edit := body.PrefillEdit{Members: h.Rescue(), CacheSalt: upstream.Salted(upstream.NewID()+"~", a.proof.Salt)}
	if ids := a.proof.IDs.Prompt(); ids != nil {
		edit.PromptIDs = rawjson.AppendIDs(nil, ids)
	}
	leg := upstream.Leg{RequestID: a.legID, Authorization: a.Request.Authorization}
	leg.API, leg.Body = a.Body.RescueBody(edit)
	a.Record.Joins(&leg)
	return leg
}

// rescueOn sends the leg to one instance after the other until one has taken the hand-over, whose blocks at prefill have a lease: first to
// the one that the hand-over was for. The blocks of decode's answer are released. It returns nil also if an engine has had prefill free the
// blocks.
func (h *Handler) rescueOn(first *fleet.Incarnation, leg upstream.Leg, of handed, model string) (err error) {
	instances, freed := []*fleet.Incarnation{first}, false
	for _, e := range h.deps.Fleet.Engines(upstream.RoleDecode) {
		if !of.Bound && len(instances) < pick.MaxDials && e != first.Engine() && e.Reachable() && !e.Health.Pauses() && e.MayServe(model) {
			instances = append(instances, e.Last())
		}
	}
	for _, decode := range instances {
		if !of.arrived && time.Now().After(of.until) {
			return errors.Join(errTooLate, err)
		}
		leg.RequestID += "-rescue" // another one for each instance: each may have been sent
		leg.Instance, leg.Body = decode.Engine().Instance(), slices.Clone(leg.Body)
		began := time.Now()
		var params []byte
		if params, err = h.rescueBy(decode.Engine(), leg); err == nil {
			of.from.PairWith(decode).ExchangedKV()
			h.deps.Pins.UnuseParams(params, decode, model, began)
			return nil
		}
		freed = freed || !of.arrived && frees(err)
	}
	if freed {
		return nil
	}
	return err
}

// frees reports whether an engine that has failed a leg of only a prompt and a hand-over has told prefill that it does not read the KV. vLLM
// does so where its serving layer refuses the leg (#41269), for the prompt's length or the model, and where it is paused (0.33, core.py).
func frees(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Kind == upstream.Status &&
		(leg.Status == http.StatusBadRequest || leg.Status == http.StatusNotFound || leg.Paused())
}

// rescueBy runs the leg, and returns decode's kv_transfer_params. It tells the fleet of a failure as of a leg of our own. A good end says
// nothing of the engine: it takes one token more easily than the client's leg that has failed before.
func (h *Handler) rescueBy(decode *fleet.Engine, leg upstream.Leg) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), detachedLimit, upstream.ErrFirstByteTimeout)
	defer cancel()
	answer, err := h.deps.Legs.Prefill(ctx, leg) // which is read whole, too
	if err == nil && leg.API != body.Responses && decode.AnswerIDs.Foreign(leg.RequestID, answer.ID) {
		err = h.foreign(decode)
	}
	if err != nil {
		Blame(decode, err, true)
		return nil, err
	}
	return answer.Params, nil
}

// strand counts a hand-over that nobody takes.
func (h *Handler) strand(turn string, err error) {
	h.stranded.Add(1)
	h.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", turn, "error", err)
}
